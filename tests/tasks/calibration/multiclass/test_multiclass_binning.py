"""Federated binning: the pooled one where there is no noise; under noise, what the counts and their noise say."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import gammaln, softmax

from conformal_drive import answer, setting_of
from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.kernel.client import Client
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    All,
    Part,
    Query,
    Released,
    Sample,
    Setting,
    Step,
    TrustModel,
    Unit,
)
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.summaries.multiclass.binned_map import Binned, BinnedChanged
from fedassay.summaries.multiclass.histograms import UNITS, ClassCounts
from fedassay.tasks.calibration.multiclass.binned_flow import (
    BINNINGS,
    FederatedBinning,
    Merged,
    fit_bbq,
    fit_histogram,
    weights_of_noise,
    weights_of_rows,
)
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from flows import Asked, finished
from multiclass_rows import Columns, dirichlet, drawn
from secure_sum_driver import Run, vectors
from simulated_clients import open_site

CLIENT = {"unit": Unit.CLIENT, "rows_per_client": 200}
DELTA = 1e-5


def binning(method: str, classes: int, **options: Any) -> FederatedBinning:
    return FederatedBinning(method=method, classes=classes, **options)


@dataclass(frozen=True, kw_only=True)
class OnlyFit:
    """A task that fits and does nothing else."""

    method: str
    classes: int
    options: dict[str, Any] = field(default_factory=dict)

    def steps(self, setting: Setting) -> Generator[Step, Any, Fit]:
        fitted = yield from binning(self.method, self.classes, **self.options).fit(setting)
        return fitted


def fitted(
    method: str, clients: Sequence[Columns], setting: Setting | None = None, **options: Any
) -> tuple[Fit, Asked]:
    setting = setting or setting_of(clients=len(clients))
    flow = binning(method, clients[0]["logits"].shape[1], **options).fit(setting)

    def answered(query: Query[Any], number: int) -> Released[Any]:
        cohort = clients
        if isinstance(query.cohort, Sample):
            taken = np.random.default_rng(number).random(len(clients)) < query.cohort.rate
            cohort = [one for one, is_in in zip(clients, taken, strict=True) if is_in]
        return answer(query, setting, cohort, number)

    return finished(flow, answered)


# --- the pooled binnings, written down a second time, slowly ----------------------------------------------


CountsAt = Callable[[int], tuple[list[float], list[float]]]
"""Positives and negatives of one class in so many bins."""


def pooled_counts(p: np.ndarray, positive: np.ndarray) -> CountsAt:
    def at(bins: int) -> tuple[list[float], list[float]]:
        m, n = [0.0] * bins, [0.0] * bins
        for one, is_it in zip(p, positive, strict=True):
            (m if is_it else n)[min(math.floor(one * bins), bins - 1)] += 1
        return m, n

    return at


def slow_histogram(at: CountsAt, bins: int) -> list[float]:
    m, n = at(bins)
    return [m[b] / (m[b] + n[b]) if m[b] + n[b] else (b + 0.5) / bins for b in range(bins)]


def log_score(at: CountsAt, bins: int) -> float:
    m, n = at(bins)
    score = 0.0
    for b in range(bins):
        middle = (b + 0.5) / bins
        alpha, beta = 2 / bins * middle, 2 / bins * (1 - middle)
        score += gammaln(2 / bins) - gammaln(m[b] + n[b] + 2 / bins)
        score += gammaln(m[b] + alpha) - gammaln(alpha) + gammaln(n[b] + beta) - gammaln(beta)
    return score


def slow_bbq(at: CountsAt, bins: int) -> list[float]:
    numbers = [2**k for k in range(1, bins.bit_length())]
    scores = [log_score(at, number) for number in numbers]
    parts = [math.exp(score - max(scores)) for score in scores]
    values = [0.0] * bins
    for number, part in zip(numbers, parts, strict=True):
        one = slow_histogram(at, number)
        for b in range(bins):
            values[b] += part / sum(parts) * one[b * number // bins]
    return values


SLOW = {"histogram": slow_histogram, "bbq": slow_bbq}


def pooled(method: str, columns: Columns, bins: int) -> np.ndarray:
    p, c = softmax(columns["logits"], axis=1), columns["logits"].shape[1]
    return np.array([SLOW[method](pooled_counts(p[:, j], columns["class"] == j), bins) for j in range(c)])


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("method", BINNINGS)
@pytest.mark.parametrize("height", [1, 4, 7])
def test_skewed_clients_find_the_pooled_binning(method: str, height: int, trust: TrustModel) -> None:
    columns = drawn(800, 4)
    clients = dirichlet(columns, 100, 0.1)
    assert min(len(one["class"]) for one in clients) == 0
    found, asked = fitted(method, clients, setting_of(trust, clients=100), height=height, part=Part.ALL)
    assert isinstance(found.map, Binned)
    assert np.array(found.map.values) == pytest.approx(pooled(method, columns, 2**height), abs=1e-12)
    assert found.map.weights == (1.0,) * 4
    assert (found.rows, found.clients, found.sums, found.converged) == (800, 100, 1, True)
    assert (found.loss, found.noise) == (None, {})
    ((query,),) = asked
    assert (query.share, query.part, query.cohort, query.of.clipped) == (1.0, Part.ALL, All(), False)


def test_bbq_is_neither_of_the_binnings_that_it_averages() -> None:
    """That the test above can fail: weights matter, and so does what is averaged."""
    columns = drawn(800, 4)
    values = pooled("bbq", columns, 16)
    for bins in (2, 4, 8, 16):
        one = np.repeat(pooled("histogram", columns, bins), 16 // bins, axis=1)
        assert np.abs(values - one).max() > 0.01


def test_masked_sums_give_the_same_fit() -> None:
    """With real keys, masks and shares between the clients, not only their law."""
    clients = dirichlet(drawn(300, 3, seed=3), 6, 0.1)

    def masked(query: Query[Any], number: int) -> Released[Any]:
        values = {
            f"c{j}": (query.of.measure(ArrayRows(columns=one), {})[0],) for j, one in enumerate(clients)
        }
        (total,) = vectors(Run(trust=SecureSum(), values=values, lengths=(query.of.length,)).go())
        return Released(value=query.of.read(np.array(total)), noise=NO_NOISE, clients=len(clients))

    setting = setting_of(SecureSum(), clients=6)
    found, _ = finished(binning("bbq", 3).fit(setting), masked)
    assert found == fitted("bbq", clients)[0]


def test_calibration_improves() -> None:
    fit, fresh = (drawn(20_000, 5, seed=0), drawn(5_000, 5, seed=0, scale=2.51))
    found, _ = fitted("bbq", [fit])
    y, p = fresh["class"], softmax(fresh["logits"], axis=1)

    def loss(q: np.ndarray) -> float:
        return -float(np.log(np.clip(q[np.arange(len(y)), y], 1e-12, 1)).mean())

    assert loss(found.map.predict_proba(fresh["logits"])) < loss(p) - 0.05


# --- counts ---------------------------------------------------------------------------------------------


def counts_of(positives: Any, negatives: Any) -> ClassCounts:
    m, n = (np.array(one, dtype=np.float64) for one in (positives, negatives))
    return ClassCounts(positives=m, negatives=n, unit_positive=1.0, unit_negative=1.0)


def test_bins_are_merged_before_noise_is_cut_at_zero() -> None:
    """Noise that cancels within a coarse bin must not become rows: 40 of 500 stay 40 of 500."""
    noise = 9.0 * np.tile([1.0, -1.0], 64)
    m, n = np.full(128, 40 / 64), np.full(128, 460 / 64)
    counts = counts_of([m + noise] * 2, [n - noise] * 2)
    merged = Merged.of(counts, 2)
    assert merged.values == pytest.approx(np.full((2, 2), 40 / 500))
    first = counts_of(np.maximum(counts.positives, 0), np.maximum(counts.negatives, 0))
    assert Merged.of(first, 2).values.min() > 3 * 40 / 500


def test_noisy_counts_are_averaged_as_they_are_merged() -> None:
    rng = np.random.default_rng(0)
    m, n = np.linspace(0, 40, 32) + rng.normal(0, 5, 32), np.linspace(40, 0, 32) + rng.normal(0, 5, 32)
    assert min(m.min(), n.min()) < -3

    def merged_first(bins: int) -> tuple[list[float], list[float]]:
        a, b = ([max(sum(part), 0.0) for part in np.split(one, bins)] for one in (m, n))
        return a, b

    def cut_first(bins: int) -> tuple[list[float], list[float]]:
        a, b = ([sum(max(x, 0.0) for x in part) for part in np.split(one, bins)] for one in (m, n))
        return a, b

    found = fit_bbq(counts_of([m, m], [n, n]))
    assert found[0] == pytest.approx(slow_bbq(merged_first, 32), abs=1e-12)
    assert np.abs(found[0] - slow_bbq(cut_first, 32)).max() > 1e-3


def test_a_bin_without_rows_says_its_midpoint() -> None:
    counts = counts_of([[0, -3, 2, 0], [0, 0, 0, 0]], [[0, -1, 0, 4], [-1, 0, 0, 0]])
    assert fit_histogram(counts).tolist() == [[0.125, 0.375, 1.0, 0.0], [0.125, 0.375, 0.625, 0.875]]
    # No rows at all: every binning is as likely, and none says more than where a bin is.
    assert fit_bbq(counts)[1] == pytest.approx(np.array([0.1875, 0.3125, 0.6875, 0.8125]))


NOISY = st.floats(-1e9, 1e9) | st.sampled_from([0.0, -0.5, 5e-324, 1e12])


@given(arrays(np.float64, (2, 3, 8), elements=NOISY))
def test_whatever_noise_does_values_are_probabilities(counts: np.ndarray) -> None:
    for fit in BINNINGS.values():
        values = fit(counts_of(*counts))
        assert values.shape == (3, 8)
        assert ((values >= 0) & (values <= 1)).all()


def test_weights() -> None:
    assert weights_of_rows(np.array([1.0, 8.0, 0.0, 0.0]), np.array([4.0, 4.0, 4.0, 0.0])).tolist() == [
        *(0.25, 1.0, 0.0, 0.0),
    ]
    assert weights_of_noise(np.array([-1.0, 50.0, 1e4]), 2.0, 64) == pytest.approx(
        [0.0, 50 / (math.sqrt(2 / math.pi) * 2.0 * 64), 1.0]
    )


# --- rounds and cohorts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("weighting", "kind"), [("all", Binned), ("changed", BinnedChanged)])
def test_sampled_rounds_add_up_and_are_believed_as_far_as_rows_were_seen(
    weighting: str, kind: type[Binned]
) -> None:
    columns = drawn(2_000, 5, seed=1)
    clients = dirichlet(columns, 60, 0.1)
    found, asked = fitted("bbq", clients, rounds=3, participation=0.2, weighting=weighting, height=5)
    assert [len(step) for step in asked] == [2, 1, 1]
    query, everybody = asked[0]
    assert asked[1:] == [(query,), (query,)]
    assert (query.cohort, everybody.cohort, everybody.of.height) == (Sample(rate=0.2), All(), 0)
    total, seen = 0, []
    for number in range(3):
        taken = np.random.default_rng(number).random(60) < 0.2
        cohort = [one for one, is_in in zip(clients, taken, strict=True) if is_in]
        for one in cohort:
            seen.append(one["class"])
            total = total + query.of.measure(ArrayRows(columns=one), {})[0]
    seen, every = (np.bincount(y, minlength=5) for y in (np.concatenate(seen), columns["class"]))
    assert (seen < every).any()
    assert type(found.map) is kind
    assert np.array(found.map.values) == pytest.approx(fit_bbq(query.of.read(total)))
    assert found.map.weights == pytest.approx(np.minimum(seen / every, 1.0))
    assert (found.rows, found.clients, found.sums) == (2_000, 60, 3)


def test_who_is_asked_what() -> None:
    """Rows by class are counted only where weights need them: not if all are asked, not if there are no weights."""
    clients = dirichlet(drawn(400, 3), 20, 1.0)
    alone, asked = fitted("histogram", clients, rounds=2, participation=0.5, weighting="none")
    assert [len(step) for step in asked] == [1, 1]
    assert [query.share for (query,) in asked] == [0.5, 0.5]
    assert (alone.rows, alone.map.weights) == (None, (1.0,) * 3)
    every, asked = fitted("histogram", clients, rounds=2)
    assert [query.cohort for (query,) in asked] == [All(), All()]
    assert (every.rows, every.map.weights) == (400, (1.0,) * 3)
    assert every.map == fitted("histogram", clients)[0].map


def test_a_class_that_nobody_has_is_left_to_the_model() -> None:
    columns = drawn(500, 4)
    columns = {name: column[columns["class"] != 2] for name, column in columns.items()}
    found, _ = fitted("bbq", [columns])
    assert found.map.weights == (1.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("weighting", ["none", "all", "changed"])
def test_without_rows_the_model_stands(weighting: str) -> None:
    empty = {name: column[:0] for name, column in drawn(1, 3).items()}
    found, _ = fitted("bbq", [empty, empty], weighting=weighting)
    z = drawn(100, 3)["logits"]
    assert found.map.predict_proba(z) == pytest.approx(softmax(z, axis=1))
    assert (found.rows, found.clients, found.reason) == (0, 2, "there are no rows")
    assert found.map.keeps_order


def test_clients_without_rows_in_every_cohort() -> None:
    """Others have some: that is another reason, and the model stands all the same."""
    columns = drawn(50, 3)
    empty = {name: column[:0] for name, column in columns.items()}
    taken = np.random.default_rng(0).random(10) < 0.5
    assert 0 < taken.sum() < 10
    found, _ = fitted("bbq", [empty if is_in else columns for is_in in taken], participation=0.5)
    assert found.reason == "none of the clients that took part had rows"
    assert (found.rows, found.map.weights) == (50 * (10 - taken.sum()), (0.0,) * 3)


def test_a_run_asks_a_sample_and_everybody_in_one_step() -> None:
    columns = drawn(600, 3)
    clients = dirichlet(columns, 12, 1.0)
    source = SimulatedRandomness(7)
    runtime = Faithful(
        Client(open_site(f"c{j}", lambda one=one: ArrayRows(columns=one), source.child(f"c{j}")))
        for j, one in enumerate(clients)
    )
    job = Job(
        name="task",
        task=OnlyFit(method="bbq", classes=3, options={"rounds": 3, "participation": 0.4, "part": Part.ALL}),
        setting=setting_of(Plain(), clients=12),
    )
    found = run(
        [job], runtime=runtime, ledger=MemoryLedger(None), randomness=SimulatedRandomness(1), study="s"
    )["task"]
    assert (found.rows, found.clients, found.sums, found.reason) == (600, 12, 3, "")
    assert min(found.map.weights) > 0


# --- noise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("rounds", [1, 4])
def test_whole_clients_are_clipped_and_believed_as_far_as_noise_allows(
    trust: TrustModel, joint: bool, rounds: int
) -> None:
    clients = dirichlet(drawn(3_000, 4), 40, 1.0)
    setting = setting_of(trust, clients=40, epsilon=20.0, delta=DELTA, **CLIENT)
    released: list[Released[ClassCounts]] = []

    def answered(query: Query[Any], number: int) -> Released[Any]:
        released.append(answer(query, setting, clients, number))
        return released[-1]

    options = {"rounds": rounds, "joint": joint, "height": 4}
    found, asked = finished(binning("bbq", 4, **options).fit(setting), answered)
    assert all(len(step) == 1 for step in asked)
    query = asked[0][0]
    assert (query.of.positive_clip, query.of.negative_clip, query.of.joint) == (10.0, 50.0, joint)
    assert query.share == 1 / rounds
    counts = released[0].value
    for one in released[1:]:
        counts = counts + one.value
    assert np.array(found.map.values) == pytest.approx(fit_bbq(counts))
    sigma = math.sqrt(rounds * released[0].noise.variance) * 10 / UNITS
    assert found.noise == pytest.approx({"positives": sigma, "negatives": 5 * sigma})
    wanted = counts.positives.sum(axis=1) / (math.sqrt(2 / math.pi) * sigma * 16)
    assert found.map.weights == pytest.approx(np.clip(wanted, 0, 1))
    assert min(found.map.weights) > 0
    assert (found.rows, found.clients, found.sums) == (None, 40, rounds)
    # As published: √(2c) times as much noise where each histogram is clipped alone.
    both = [
        setting.noise(type(query)(of=type(query.of)(**{**vars(query.of), "joint": way}), share=query.share))
        for way in (True, False)
    ]
    assert both[1].variance / both[0].variance == pytest.approx(8, rel=1e-3)


def test_under_little_noise_all_is_believed_and_under_much_nothing() -> None:
    clients = dirichlet(drawn(3_000, 3), 40, 1.0)
    little, much = (
        fitted("bbq", clients, setting_of(ServerDP(), clients=40, epsilon=epsilon, delta=DELTA, **CLIENT))[0]
        for epsilon in (1e4, 0.01)
    )
    assert little.map.weights == (1.0,) * 3
    assert max(much.map.weights) < 0.5


def test_single_rows_are_protected_by_plain_counts() -> None:
    clients = dirichlet(drawn(2_000, 3), 10, 1.0)
    setting = setting_of(ServerDP(), clients=10, epsilon=2.0, delta=DELTA)
    found, asked = fitted("histogram", clients, setting, height=3, participation=0.5)
    ((query,),) = asked
    assert not query.of.clipped
    sigma = math.sqrt(setting.noise(query).variance)
    assert found.noise == pytest.approx({"positives": sigma, "negatives": sigma})


def test_clients_that_take_part_by_chance_get_less_noise() -> None:
    """Rounds have equal shares and nothing else is asked: what amplification by sampling asks for."""
    setting = setting_of(ServerDP(), clients=100, epsilon=1.0, delta=DELTA, **CLIENT)
    steps = binning("bbq", 10, rounds=4, participation=0.1).fit(setting)
    query = next(steps)
    assert isinstance(query, Query)
    plan = setting.trust.plan(query, setting)
    assert plan.sampled == 0.1
    everybody = next(binning("bbq", 10, rounds=4).fit(setting))
    assert setting.noise(everybody).variance > 4 * plan.noise.variance  # type: ignore[arg-type]


# --- nonsense -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("platt", {}, "method: got 'platt', expected one of histogram, bbq"),
        ("bbq", {"weighting": "some"}, "weighting: got 'some', expected one of none, all, changed"),
        ("bbq", {"height": 0}, "height: got 0"),
        ("bbq", {"rounds": 0}, "rounds: got 0"),
        ("bbq", {"participation": 0.0}, "sampling rate: got 0"),
        ("bbq", {"participation": 1.5}, "sampling rate: got 1.5"),
        ("bbq", {"positive_clip": -1.0}, "clips: got -1"),
    ],
)
def test_what_makes_no_sense_is_refused(method: str, options: dict[str, Any], message: str) -> None:
    setting = setting_of(clients=10)
    with pytest.raises(UsageError, match=message):
        next(binning(method, 3, **options).fit(setting))
