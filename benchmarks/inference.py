"""Online inference: the simulation tables, what a round costs, and Newton sums beside statsmodels.

    OMP_NUM_THREADS=1 python benchmarks/inference.py             everything, minutes on two cores
    OMP_NUM_THREADS=1 python benchmarks/inference.py --quick     tables with a fiftieth of the replications

* Tables 1 to 4 of docs/experiments/inference.md: two models, four participations, 5000 rounds with five snapshots, 1000
  replications, all methods, in two processes, replications as a leading axis; against the same code with one
  replication at a time, of which a few hundred rounds are timed and the rest is extrapolated. The bar: ten minutes.
* One round of the shipped task, by the number of clients and by the number of features, at three sizes each: processor
  time of all clients together and of the server, and the size of a message. Expected are factors of 1 per client, and
  of at most 4 for twice the features (what is fixed in a round makes them smaller).
* The pooled fit by sums over ten clients with 100,000 rows and 10 features in all, against statsmodels on the pooled
  rows with the same robust errors: seconds, and the largest difference of a coefficient or an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path as File
from time import perf_counter, process_time
from typing import Any

import numpy as np
import statsmodels.api as sm

from fedassay.protocol.vocabulary import NO_NOISE, Batch, Released
from fedassay.summaries.regression.moments import Standard
from fedassay.summaries.regression.rounds import RegressionRound
from fedassay.tasks.inference.newton import RegressionFit, fit_newton, standardised
from fedassay.tasks.inference.path import IteratePath

sys.path.insert(0, str(File(__file__).resolve().parent.parent))

from experiments.inference_published import PARTS, ROUNDS
from experiments.inference_simulation import Case, simulate

REPLICATIONS = 1000
CLIENTS, FEATURES = (20, 100, 500), (64, 128, 256)
MINUTES = 10


# --- the tables -----------------------------------------------------------------------------------------------------


def table_case(given: tuple[Case, int]) -> float:
    """Processor seconds of one line of a table, all methods and numbers of rounds."""
    case, replications = given
    started = process_time()
    for path in {case, case.default}:  # the default has a path of its own where it restarts
        simulate(path, replications, ROUNDS, np.random.default_rng(0))
    return process_time() - started


def tables(replications: int) -> None:
    cases = [Case(model=model, part=part) for part in reversed(PARTS) for model in ("logistic", "linear")]
    started = perf_counter()
    with ProcessPoolExecutor(2) as pool:
        spent = sum(pool.map(table_case, [(case, replications) for case in cases], chunksize=1))
    wall = perf_counter() - started
    alone, few = 0.0, 200
    for case in cases:
        for path in {case, case.default}:
            begun = process_time()
            simulate(path, 1, (few,), np.random.default_rng(0))
            alone += (process_time() - begun) * ROUNDS[-1] / few * replications
    met = "" if wall <= 60 * MINUTES else f", above {MINUTES} minutes"
    print(
        f"tables 1-4, {replications} replications: {wall / 60:6.1f} minutes in two processes "
        f"({spent / 60:.1f} of processor time){met}"
    )
    print(
        f"one replication at a time:       {alone / 60:6.0f} minutes of processor time (extrapolated from {few} rounds "
        f"of one replication of each case): {alone / spent:.0f}x"
    )


# --- one round ------------------------------------------------------------------------------------------------------


class InMemory:
    """Rows of one client."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        yield self.columns


def drawn(clients: int, rows: int, features: int, model: str = "linear") -> list[InMemory]:
    rng = np.random.default_rng(clients)
    made = []
    for _ in range(clients):
        x = rng.standard_normal((rows, features))
        u = x @ np.linspace(-0.5, 0.5, features) + rng.logistic(size=rows)
        made.append(
            InMemory({"features": x, "target": u if model == "linear" else (u > 0).astype(np.float64)})
        )
    return made


def one_round(clients: int, features: int, *, rounds: int = 64) -> tuple[float, float, int]:
    """Seconds of all clients in one round (the least of several) and of the server, and the numbers in a message.

    Some rounds cost the server more than others: its time is the mean from round 17 on.
    """
    everyone = drawn(clients, 200, features)
    memories: list[Any] = [{} for _ in everyone]
    path = IteratePath.start(np.zeros(features))
    standard = Standard(features=features, intercept=False)
    theirs, ours = [], []
    for t in range(1, rounds + 1):
        asked = RegressionRound.of(
            standard,
            model="linear",
            theta=tuple(path.theta.tolist()),
            step=0.001 / features,
            local_steps=4,
            visits=rounds,
        )
        started = process_time()
        answers = []
        for place, rows in enumerate(everyone):
            vector, memories[place] = asked.measure(rows, memories[place])
            answers.append(vector)
        theirs.append(process_time() - started)
        started = process_time()
        sums = asked.read(np.sum(answers, axis=0))
        path = path.after(
            sums.gradient / clients,
            sums.hessian / clients,
            sums.drift / clients,
            step=0.001 / features,
            mean_steps=4.0,
            compare=t > 2,
        )
        ours.append(process_time() - started)
    return min(theirs), float(np.mean(ours[16:])), len(answers[0])


def by_size() -> None:
    print(
        f"\n{'clients':>8} {'features':>9} {'all clients':>12} {'a client':>10} {'server':>10} {'message':>9}"
    )
    for several in ([(n, 8) for n in CLIENTS], [(20, p) for p in FEATURES]):
        found = []
        for clients, features in several:
            theirs, ours, numbers = one_round(clients, features)
            found.append((theirs, ours, numbers))
            print(
                f"{clients:>8} {features:>9} {1e3 * theirs:9.2f} ms {1e6 * theirs / clients:7.0f} us "
                f"{1e3 * ours:7.2f} ms {8 * numbers:7,} B"
            )
        told = "; ".join(
            "clients {:.1f}x, server {:.1f}x, message {:.1f}x".format(*np.divide(after, before))
            for before, after in pairwise(found)
        )
        grown = several[1][0] * several[1][1] / (several[0][0] * several[0][1])
        print(f"{'':8} {grown:.0f} times the size: {told}")


# --- the pooled fit -------------------------------------------------------------------------------------------------


def by_sums(model: str, clients: list[InMemory], features: int) -> RegressionFit:
    """All sums of a fit, fixed-point numbers included."""
    names = tuple(f"x{place}" for place in range(features))

    def steps() -> Any:
        standard, _ = yield from standardised(model, names)
        return (yield from fit_newton(model, standard, ("intercept", *names)))

    flow, reply = steps(), None
    while True:
        try:
            query = flow.send(reply)
        except StopIteration as finished:
            return finished.value
        total = np.sum([query.of.measure(rows, {})[0] for rows in clients], axis=0)
        reply = Released(value=query.of.read(total), noise=NO_NOISE, clients=len(clients))


def newton(rows: int = 100_000, features: int = 10) -> None:
    print(f"\n{rows:,} rows x {features} features, 10 clients")
    for model in ("linear", "logistic"):
        clients = drawn(10, rows // 10, features, model)
        x = sm.add_constant(np.concatenate([one.columns["features"] for one in clients]))
        y = np.concatenate([one.columns["target"] for one in clients])
        ours, theirs = [], []
        for _ in range(3):
            started = process_time()
            fit = by_sums(model, clients, features)
            ours.append(process_time() - started)
            started = process_time()
            reference = (
                sm.OLS(y, x).fit(cov_type="HC1")
                if model == "linear"
                else sm.Logit(y, x).fit(disp=0, cov_type="HC0", tol=1e-12)
            )
            errors = reference.bse
            theirs.append(process_time() - started)
        apart = max(
            np.abs(fit.estimate.value - reference.params).max(),
            np.abs(fit.estimate.standard_errors - errors).max(),
        )
        print(
            f"{model:9} newton {min(ours):6.2f} s, {fit.sums} sums; statsmodels {min(theirs):6.2f} s "
            f"({min(theirs) / min(ours):.1f}x); largest difference {apart:.1e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tables with few replications")
    parser.add_argument("--only", choices=("tables", "rounds", "newton"), help="one of the three")
    options = parser.parse_args()
    if options.only in (None, "tables"):
        tables(REPLICATIONS // 50 if options.quick else REPLICATIONS)
    if options.only in (None, "rounds"):
        by_size()
    if options.only in (None, "newton"):
        newton()


if __name__ == "__main__":
    main()
