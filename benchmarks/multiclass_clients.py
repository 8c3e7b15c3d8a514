"""What one round of multiclass calibration costs a client: seconds against the published ones, bytes beside them.

    OMP_NUM_THREADS=1 python benchmarks/multiclass_clients.py

100 clients with 70 rows each of 10 classes, as CIFAR-10 has them in the paper, classes skewed by Dirichlet(0.1). Times
are processor seconds of everything that a client computes for its message in one round (fit, clip, round), each the
best of three, as the mean and the largest over clients; for averaged methods in the second of two rounds, which starts
where the first one led. Published times (Table 11) and sizes (Table 5) are those of the authors on their machine: a
ratio says that local work is no obstacle, not more.

`sent` and `received` are what is on the wire without masks and headers: whole numbers of eight bytes for each number of
the message, and the question with the current parameters. Published sizes are 1,024 bytes to the kb.

The bar: less time than is published, at every client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from time import process_time
from typing import Any

import numpy as np
from scipy.special import softmax

from fedassay.protocol import wire
from fedassay.protocol.vocabulary import NO_NOISE, Batch, Budget, Protection, Released, Setting, Summary, Unit
from fedassay.summaries.multiclass.histograms import ProbabilityHistograms
from fedassay.tasks.calibration.multiclass.fedavg import FederatedAveraging
from fedassay.trust.server_dp import ServerDP

CLIENTS, ROWS, CLASSES = 100, 70, 10

SECONDS: Mapping[str, float] = {
    "temperature": 0.111,
    "order-preserving": 0.017,
    "fedcal": 0.008,
    "bbq": 0.032,
}
SENT: Mapping[str, float] = {"temperature": 0.01, "order-preserving": 0.16, "fedcal": 43.08, "bbq": 20.0}
RECEIVED: Mapping[str, float] = {**SENT, "bbq": 0.0}
"""Mean client times of Table 11, and kb of Table 5."""


class InMemory:
    """Rows of one client."""

    def __init__(self, logits: np.ndarray, labels: np.ndarray) -> None:
        self.batch = {"logits": logits, "class": labels}

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        yield self.batch


def drawn() -> list[InMemory]:
    """Logits of a model that is right nine times in ten and twice as sure as it should be, few classes a client."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20 * CLIENTS * ROWS, CLASSES))
    z[np.arange(len(z)), rng.integers(0, CLASSES, len(z))] += 5.0
    y = (softmax(z, axis=1).cumsum(axis=1) > rng.random((len(z), 1))).argmax(axis=1)
    of_class = [list(np.flatnonzero(y == k)) for k in range(CLASSES)]
    clients = []
    for _ in range(CLIENTS):
        wanted = rng.multinomial(ROWS, rng.dirichlet(np.full(CLASSES, 0.1)))
        mine = [of_class[k].pop() for k, many in enumerate(wanted) for _ in range(many)]
        chosen = rng.permutation(np.array(mine))
        clients.append(InMemory(2 * z[chosen], y[chosen]))
    return clients


def seconds(summary: Summary[Any], client: InMemory) -> float:
    """The best of three."""
    best = float("inf")
    for _ in range(3):
        started = process_time()
        summary.measure(client, {})
        best = min(best, process_time() - started)
    return best


def second_round(method: str, clients: list[InMemory]) -> Summary[Any]:
    """What is asked in the second round under user-level privacy."""
    protection = Protection(unit=Unit.CLIENT, rows_per_client=ROWS)
    budget = Budget(epsilon=1.0, delta=1e-5)
    setting = Setting(trust=ServerDP(), protection=protection, budget=budget, clients=CLIENTS)
    flow = FederatedAveraging(
        method=method, classes=CLASSES, setting=setting, rounds=2, noisiest=float("inf")
    ).fit()
    query: Any = next(flow)
    total = np.sum([query.of.measure(client, {})[0] for client in clients], axis=0)
    again: Any = flow.send(Released(value=query.of.read(total), noise=NO_NOISE, clients=CLIENTS))
    return again.of  # type: ignore[no-any-return]


def show(name: str, summary: Summary[Any], clients: list[InMemory]) -> None:
    """One line."""
    times = np.array([seconds(summary, client) for client in clients])
    vector, _ = summary.measure(clients[0], {})
    question: Any = summary
    sent, received = (len(wire.encode({"x": x})) / 1024 for x in (vector, asdict(question)))
    line = f"{name:17} {1e3 * times.mean():8.2f} ms {1e3 * times.max():8.2f} ms"
    if name in SECONDS:
        bar = "" if times.max() < SECONDS[name] else "  above what is published"
        ratio = f"{SECONDS[name] / times.mean():.0f}x"
        line += f" {1e3 * SECONDS[name]:8.0f} ms {ratio:>6}"
        line += f"   {sent:8.2f} {SENT[name]:8.2f}   {received:8.2f} {RECEIVED[name]:8.2f}{bar}"
    else:
        line += f" {'-':>8}    {'-':>6}   {sent:8.2f} {'-':>8}   {received:8.2f} {'-':>8}"
    print(line, flush=True)


def main() -> None:
    clients = drawn()
    print(f"{CLIENTS} clients, {ROWS} rows x {CLASSES} classes each")
    print(
        f"{'':17} {'mean':>11} {'largest':>11} {'published':>11} {'ratio':>6}"
        f"   {'sent kb':>8} {'publ.':>8}   {'recv. kb':>8} {'publ.':>8}"
    )
    for method in ("temperature", "order-preserving", "fedcal", "vector", "matrix"):
        show(method, second_round(method, clients), clients)
    show(
        "bbq",
        ProbabilityHistograms(classes=CLASSES, height=7, positive_clip=5.0, negative_clip=50.0),
        clients,
    )


if __name__ == "__main__":
    main()
