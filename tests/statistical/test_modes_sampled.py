"""Aggregate and faithful mode agree where clients are measured one by one: sampled cohorts, bounded clients, memories.

What is not random is equal. What is, is compared by means: |z| < 4.9 in each of at most 20 comparisons has a false
alarm with a probability below 2·10^-5 in all; broken variants must be noticed by the same test.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedassay
from fedassay.data import selection
from fedassay.data.federation import Federation, load
from fedassay.errors import UsageError
from fedassay.kernel.client import Client
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    All,
    Budget,
    Protection,
    Released,
    Sample,
    Setting,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.runtimes.in_process import runtime as totals
from fedassay.runtimes.in_process.runtime import Aggregate, Faithful
from fedassay.study.simulation import Simulation
from fedassay.summaries import CATALOGUE
from fedassay.summaries.multiclass.loss_curves import CLIENT, LossCurves
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.two_server.model import TwoServer
from multiclass_rows import drawn
from simulated_clients import clients_of, open_site
from toys import TOY_SUMMARIES, Once, ThreeRounds

FAR = 4.9
CLIENTS, EACH = 15, 12
MODES = ("faithful", "aggregate")
ROWS = drawn(CLIENTS * EACH, 3)
SILENT = Budget(epsilon=1e4, delta=1e-6)
"""So large that noise does not matter beside who takes part."""

CURVES = LossCurves(classes=3, grid=(0.3, 0.6, 1.0, 1.5), bound=CLIENT, full_rows=1)
COUNTS = ScoreHistogram(transform="uniform", height=2)


def federation() -> Federation:
    site = np.arange(CLIENTS * EACH) % CLIENTS
    return load(
        {
            "site": [f"s{one:02}" for one in site],
            "z": ROWS["logits"],
            "k": ROWS["class"],
            "p": np.linspace(0, 1, CLIENTS * EACH),
            "y": site % 2,
            "v": np.arange(CLIENTS * EACH) % 7,
        },
        client="site",
        columns={"logits": "z", "class": "k", "score": "p", "label": "y", "value": "v"},
    )


FEDERATION = federation()


def answered(mode: Any, seed: int, query: Sum[Any], trust: TrustModel, **protection: Any) -> Released[Any]:
    setting = Setting(
        trust=trust,
        protection=Protection(**protection),
        budget=SILENT if trust.private else None,
        clients=CLIENTS,
    )
    found: Released[Any] = run(
        [Job(name="one", task=Once(query=query), setting=setting)],
        runtime=clients_of(FEDERATION, seed=seed, mode=mode),
        ledger=MemoryLedger(None),
        randomness=SimulatedRandomness(seed, "server"),
        study="modes",
    )["one"]
    return found


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest |z| of the differences between means, over the columns."""
    error = np.sqrt(one.var(axis=0, ddof=1) / len(one) + other.var(axis=0, ddof=1) / len(other))
    return float(np.max(np.abs(one.mean(axis=0) - other.mean(axis=0)) / error))


# --- cohorts that the server draws ----------------------------------------------------------------------


@pytest.mark.parametrize("of", [CURVES, COUNTS], ids=["each by itself", "additive"])
@pytest.mark.parametrize("trust", [Plain(), SecureSum(collusion=0.05)], ids=lambda trust: trust.name)
def test_drawn_cohorts_are_the_same_in_both_modes(trust: TrustModel, of: Any) -> None:
    sizes = set()
    for seed in range(4):
        query = Sum(of=of, cohort=Sample(rate=0.4))
        faithful, aggregate = (answered(mode, seed, query, trust) for mode in MODES)
        assert faithful.clients == aggregate.clients
        for name in vars(faithful.value):
            assert np.array_equal(getattr(faithful.value, name), getattr(aggregate.value, name)), name
        sizes.add(faithful.clients)
    assert len(sizes) > 1


@pytest.mark.parametrize("trust", [Plain(), SecureSum(minimum_cohort=5)], ids=lambda trust: trust.name)
def test_sizes_of_drawn_cohorts(trust: TrustModel) -> None:
    """Binomial, given that the cohort is large enough for the trust model: others are drawn again."""
    least, rate, draws = getattr(trust, "minimum_cohort", 1), 0.25, 400
    query = Sum(of=COUNTS, cohort=Sample(rate=rate))
    found = [answered("aggregate", seed, query, trust).clients for seed in range(draws)]
    assert min(found) == least
    sizes = np.arange(least, CLIENTS + 1)
    law = stats.binom.pmf(sizes, CLIENTS, rate) / stats.binom.sf(least - 1, CLIENTS, rate)
    few = min(least + 6, CLIENTS)
    lumped = [*law[sizes < few], law[sizes >= few].sum()]
    counts = np.bincount(np.minimum(found, few), minlength=few + 1)[least : few + 1]
    assert stats.chisquare(counts, draws * np.array(lumped)).pvalue > 1e-4
    # A rate of 0.35 would be noticed.
    other = stats.binom.pmf(sizes, CLIENTS, 0.35) / stats.binom.sf(least - 1, CLIENTS, 0.35)
    wrong = [*other[sizes < few], other[sizes >= few].sum()]
    assert stats.chisquare(counts, draws * np.array(wrong)).pvalue < 1e-4


def test_a_rate_that_never_gives_a_cohort_is_refused() -> None:
    query = Sum(of=COUNTS, cohort=Sample(rate=1e-9))
    for mode in MODES:
        with pytest.raises(
            UsageError, match=r"participation: got 1e-09 of 15 clients, expected .* at least 3 now"
        ):
            answered(mode, 1, query, SecureSum())


# --- coins that clients throw ---------------------------------------------------------------------------


def taking_part(mode: Any, seeds: int, of: Any = COUNTS, rate: float = 0.3) -> np.ndarray:
    """Rows of each label, which tell how many clients of each kind took part."""
    found = []
    for seed in range(seeds):
        released = answered(mode, seed, Sum(of=of, cohort=Sample(rate=rate)), ServerDP())
        assert released.clients == CLIENTS  # who took part is nobody's business
        value = released.value
        found.append(
            np.append(value.positives.sum(), value.negatives.sum()) if of is COUNTS else value.losses
        )
    return np.array(found, dtype=np.float64)


def test_secret_coins_have_the_same_law_in_both_modes() -> None:
    """7 clients have only positives and 8 only negatives: binomial numbers of them, in both modes."""
    faithful, aggregate = taking_part("faithful", 60), taking_part("aggregate", 150)
    assert apart(faithful, aggregate) < FAR
    for found in (faithful, aggregate):
        for kind, clients in enumerate((7, 8)):
            numbers = found[:, kind] / EACH
            assert np.allclose(numbers, np.rint(numbers))
            z = (numbers.mean() - 0.3 * clients) / np.sqrt(0.21 * clients / len(numbers))
            assert abs(z) < FAR
            # The variance too: coins are independent. χ² with n - 1 degrees of freedom, nearly.
            ratio = numbers.var(ddof=1) / (0.21 * clients)
            assert abs(ratio - 1) < FAR * np.sqrt(2 / len(numbers))


def test_an_aggregate_without_coins_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    faithful = taking_part("faithful", 30)
    monkeypatch.setattr(totals, "takes_part", lambda plan, randomness: int(randomness.words(1)[0]) % 2 == 0)
    assert apart(faithful, taking_part("aggregate", 150)) > FAR


def test_secret_coins_and_what_does_not_add_up() -> None:
    faithful, aggregate = taking_part("faithful", 50, CURVES), taking_part("aggregate", 120, CURVES)
    assert apart(faithful, aggregate) < FAR
    everybody = answered("aggregate", 0, Sum(of=CURVES, cohort=All()), ServerDP()).value.losses
    # On average the part that takes part: the mean of sums over clients is 0.3 times the whole sum.
    error = aggregate.std(axis=0, ddof=1) / np.sqrt(len(aggregate))
    assert (np.abs(aggregate.mean(axis=0) - 0.3 * everybody) < FAR * error).all()


# --- clients that keep some of their rows ---------------------------------------------------------------


def bounded(mode: Any, seeds: int) -> np.ndarray:
    protection = {"unit": Unit.CLIENT, "rows_per_client": 4}
    query = Sum(of=CURVES)
    return np.array(
        [answered(mode, seed, query, Plain(), **protection).value.losses for seed in range(seeds)]
    )


def test_bounded_clients_have_the_same_law_in_both_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions of curves of 4 rows among 12, drawn by each client: other sums each time, the same mean."""
    faithful, aggregate = bounded("faithful", 60), bounded("aggregate", 150)
    assert len(np.unique(aggregate[:, 0])) == 150
    assert apart(faithful, aggregate) < FAR
    spread = aggregate.var(axis=0, ddof=1) / faithful.var(axis=0, ddof=1)
    assert ((spread > 1 / 3) & (spread < 3)).all()
    # Clients that use all of their rows point in other directions: noticed.
    monkeypatch.setattr(selection, "limit_rows", lambda rows, most, randomness: (rows, 0))
    everything = bounded("aggregate", 1)[0]
    error = faithful.std(axis=0, ddof=1) / np.sqrt(len(faithful))
    assert np.max(np.abs(faithful.mean(axis=0) - everything) / error) > FAR


@dataclass(frozen=True, kw_only=True)
class TwiceTheSame:
    """Two questions about the same rows in one round trip."""

    def steps(self, setting: Setting) -> Generator[Any, Any, None]:
        yield Sum(of=CURVES, share=0.5), Sum(of=replace(CURVES, full_rows=2), share=0.5)


def test_rows_that_are_left_out_are_counted_once_for_two_questions() -> None:
    setting = Setting(trust=Plain(), protection=Protection(rows_per_client=4), budget=None, clients=CLIENTS)
    for mode in MODES:
        runtime = clients_of(FEDERATION, seed=1, mode=mode)
        run(
            [Job(name="twice", task=TwiceTheSame(), setting=setting)],
            runtime=runtime,
            ledger=MemoryLedger(None),
            randomness=SimulatedRandomness(1),
            study="twice",
        )
        assert runtime.truncated == CLIENTS * (EACH - 4)


def test_rows_that_are_left_out_are_counted_once_in_a_calibration() -> None:
    """A judgement asks three questions about the same rows: the last one counts, in both modes."""
    rows = {"site": np.arange(180) % 6, "z": ROWS["logits"], "y": ROWS["class"]}
    for bound in (5, 10, 1000):
        found = [
            fedassay.calibrate(
                rows,
                client="site",
                label="y",
                logits="z",
                method="temperature",
                privacy=Plain(),
                protection=Protection(rows_per_client=bound),
                simulation=Simulation(seed=3, mode=mode),  # type: ignore[arg-type]
            ).cohort
            for mode in MODES
        ]
        assert found[0] == found[1]
        assert (found[0]["truncated"] > 0) == (bound < 1000)
        assert found[0]["rows"] <= 6 * bound


# --- what clients remember ------------------------------------------------------------------------------


def story(mode: str, rate: float, seed: int) -> list[tuple[int, int, int]]:
    """Three rounds of a summary that needs what the round before has left, over clients with toy summaries."""
    randomness = SimulatedRandomness(seed)

    def client(name: str) -> Client:
        site = open_site(name, lambda: FEDERATION.rows_of(name), randomness.child(name))
        return Client(site, summaries={**CATALOGUE, **TOY_SUMMARIES})

    runtime: Any = (
        Faithful([client(name) for name in FEDERATION.clients])
        if mode == "faithful"
        else Aggregate(FEDERATION, randomness=randomness.child("limit"), split_key=bytes(32))
    )
    setting = Setting(trust=Plain(), protection=Protection(), budget=None, clients=CLIENTS)
    found: list[tuple[int, int, int]] = run(
        [Job(name="three", task=ThreeRounds(rate=rate), setting=setting)],
        runtime=runtime,
        ledger=MemoryLedger(None),
        randomness=randomness.child("server"),
        study="memory",
    )["three"]
    return found


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_what_each_client_remembers_is_kept_between_rounds(rate: float) -> None:
    for seed in range(3):
        faithful, aggregate = (story(mode, rate, seed) for mode in MODES)
        assert faithful == aggregate
        rounds = [one[2] for one in faithful]
        # The second number counts rounds that clients remember: 1, 2 and 3 for each, if all are asked.
        assert rounds == [CLIENTS, 2 * CLIENTS, 3 * CLIENTS] or rate < 1
        assert rounds[2] > rounds[0]


# --- summaries that are computed from leaves ------------------------------------------------------------


def test_cohorts_of_summaries_that_are_counted_by_leaves() -> None:
    """Under two servers clients measure the leaves; a tree of a drawn cohort is computed from their sum."""
    tree = ScoreHistogram(transform="uniform", height=3, widths=(1, 2))
    query = Sum(of=tree, cohort=Sample(rate=0.5))
    protection = {"rows_per_client": EACH}
    two = answered("aggregate", 5, query, TwoServer(), **protection)
    plain = answered("aggregate", 5, query, Plain())
    assert np.abs(two.value.positives - plain.value.positives).max() <= 1
    assert plain.value.positives.sum() > 0
