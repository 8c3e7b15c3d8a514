"""Rounds over clients: against pooled fits, from a saved state, with intervals of every kind."""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import NO_NOISE, All, Draw, Released
from fedassay.summaries.regression.moments import Standard
from fedassay.summaries.regression.rounds import ClientSpread, RegressionRound, RoundSums, SpreadSums
from fedassay.tasks.inference.estimate import CoefficientEstimate, Normal, RandomScaling, StudentT
from fedassay.tasks.inference.online import INTERVALS, Course, RoundHistory, infer_rounds, run_rounds
from fedassay.tasks.inference.path import IteratePath, StepSizes
from regression_rows import made, pooled
from regression_streams import Stream

NAMES = ("intercept", "x0", "x1", "x2")
STANDARD = Standard(features=3)


def course(**changed: Any) -> Course:
    given = {"model": "linear", "rounds": 40, "sizes": StepSizes(first=0.2, decay=0.6), **changed}
    return Course(**given)


def parts(model: str, sizes: tuple[int, ...], seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Clients of these sizes, that differ: sorted by the first feature."""
    columns = made(model, sum(sizes), seed=seed)
    order = np.argsort(columns["features"][:, 0], kind="stable")
    ends = np.cumsum((0, *sizes))
    return [
        {name: column[order[a:b]] for name, column in columns.items()} for a, b in itertools.pairwise(ends)
    ]


def driven(
    stream: Stream, of: Course, *, per: float, begin: RoundHistory | None = None
) -> tuple[RoundHistory, CoefficientEstimate]:
    clients = len(stream.clients)

    def steps() -> Generator[Any, Any, tuple[RoundHistory, CoefficientEstimate]]:
        seen = yield from run_rounds(of, STANDARD, clients=clients, per=per, begin=begin)
        return seen, (yield from infer_rounds(of, seen, NAMES, clients=clients))

    return stream.drive(steps())  # type: ignore[no-any-return]


def design(clients: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    every = pooled(clients)
    return sm.add_constant(every["features"]), every["target"]


# --- the course -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clients", "participation", "drawn"),
    [(10, 1.0, 10), (10, 0.25, 2), (10, 0.01, 1), (1, 0.2, 1), (3, 0.999, 3), (1000, 0.2, 200)],
)
def test_how_many_are_drawn(clients: int, participation: float, drawn: int) -> None:
    assert course(participation=participation).drawn(clients) == drawn


def test_visits_are_as_many_as_expected_and_two_standard_deviations() -> None:
    of = course(rounds=400, participation=0.5)
    assert of.visits(10) == 200 + 2 * 10
    assert course(rounds=400).visits(10) == 400
    assert course(rounds=2, participation=0.1).visits(10) <= 2
    assert course(rounds=1, participation=0.1).visits(10) == 1
    # Binomial visits exceed it with probability of about 2.3 %, so that few clients begin again.
    visits = np.random.default_rng(0).binomial(400, 0.5, size=10_000)
    assert 0.01 < (visits > of.visits(10)).mean() < 0.03


# --- estimates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("first", [0.01, 0.3])
def test_linear_rounds_that_use_every_row_once_are_the_pooled_fit(first: float, seed: int | None) -> None:
    """Clients of 40, 80 and 200 rows and 40 rounds: each takes the same part of its rows every time."""
    clients = parts("linear", (40, 80, 200))
    of = course(sizes=StepSizes(first=first, decay=0.6), seed=seed)
    stream = Stream(clients)
    seen, estimate = driven(stream, of, per=320 / 3)
    x, y = design(clients)
    np.testing.assert_allclose(estimate.value, sm.OLS(y, x).fit().params, rtol=1e-9)
    assert (seen.rows, seen.again, seen.answers, seen.steps, seen.mean_steps) == (320, 0, 120, 120, 1.0)
    assert [query.cohort for query in stream.asked] == [All()] * 40
    assert [query.of.step for query in stream.asked] == [of.sizes.at(t) for t in range(1, 41)]


def test_clients_that_count_alike_are_a_weighted_fit() -> None:
    clients = parts("linear", (40, 80, 200))
    _, estimate = driven(Stream(clients), course(weights="clients"), per=1.0)
    x, y = design(clients)
    weight = np.repeat([1 / 40, 1 / 80, 1 / 200], [40, 80, 200])
    np.testing.assert_allclose(estimate.value, sm.WLS(y, x, weights=weight).fit().params, rtol=1e-9)


@pytest.mark.parametrize("local_steps", [1, 4])
def test_fixed_local_steps_do_not_bend_the_estimate(local_steps: int) -> None:
    clients = parts("linear", (160, 320, 160))
    of = course(local_steps=local_steps, local="fixed", sizes=StepSizes(first=0.05, decay=0.6))
    seen, estimate = driven(Stream(clients), of, per=640 / 3)
    x, y = design(clients)
    np.testing.assert_allclose(estimate.value, sm.OLS(y, x).fit().params, rtol=1e-9)
    assert seen.mean_steps == local_steps


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_estimates_and_errors_are_those_of_the_pooled_sandwich(model: str) -> None:
    """All clients, one local step, 200 rounds. An error from 200 rounds is itself known to about 6 %."""
    clients = parts(model, (2000, 1000, 3000), seed=1)
    first = 0.25 if model == "linear" else 0.8
    of = course(model=model, rounds=200, sizes=StepSizes(first=first, decay=0.505))
    _, estimate = driven(Stream(clients), of, per=2000.0)
    x, y = design(clients)
    theirs = (
        sm.OLS(y, x).fit(cov_type="HC0") if model == "linear" else sm.Logit(y, x).fit(disp=0, cov_type="HC0")
    )
    ratio = estimate.standard_errors / theirs.bse
    far = np.abs(estimate.value - theirs.params) / theirs.bse
    # Four coefficients, each within three such errors of 6 %: wrong about once in a hundred seeds; this one is fixed.
    assert np.abs(ratio - 1).max() < 0.18
    assert abs(ratio.mean() - 1) < 0.1
    # Linear rounds are the fit itself. Logistic ones leave out the first few, until the path had arrived: of n of
    # 200 rounds the estimate differs from the fit by about sqrt(n/200) standard errors, 0.2 for 8; three such.
    assert far.max() < (1e-6 if model == "linear" else 0.6)
    assert isinstance(estimate.law, StudentT)
    assert 90 < estimate.law.dof < 200


def test_local_steps_bend_the_published_estimate_and_not_the_corrected_one() -> None:
    """Clients that differ and do several steps: the published path ends elsewhere, by more than a standard error."""
    clients = parts("linear", (2000, 2000), seed=2)
    for slope, columns in enumerate(clients):
        columns["target"] = columns["target"] + 2 * slope * columns["features"][:, 1]
    x, y = design(clients)
    theirs = sm.OLS(y, x).fit(cov_type="HC0")
    far = {}
    for local in ("published", "corrected", "fixed"):
        of = course(rounds=100, local_steps=10, local=local, sizes=StepSizes(first=0.02, decay=0.505))
        _, estimate = driven(Stream(clients), of, per=2000.0)
        far[local] = np.abs((estimate.value - theirs.params) / theirs.bse).max()
    assert far["fixed"] < 1e-6
    assert far["corrected"] < 0.5
    assert far["published"] > 1.3


def test_drawn_cohorts_are_asked_for_and_divided_by_those_who_answered() -> None:
    clients = parts("linear", (200,) * 10, seed=3)
    stream = Stream(clients, seed=5)
    of = course(participation=0.3, rounds=50, intervals="separated-plug-in-corrected")
    seen, _ = driven(stream, of, per=200.0)
    assert [query.cohort for query in stream.asked[:-1]] == [Draw(clients=3)] * 50
    assert stream.asked[-1].cohort == All()  # everybody is asked once for what it remembers
    assert all(query.of.remembers for query in stream.asked[:-1])
    assert seen.answers == 150
    path = IteratePath.start(np.zeros(4))
    for query, answer in zip(stream.asked[:-1], stream.answers[:-1], strict=True):
        sums, step = answer.value, query.of.step
        np.testing.assert_allclose(query.of.theta, path.theta, rtol=1e-12)
        path = path.after(sums.gradient / 3, sums.hessian / 3, sums.drift / 3, step=step, mean_steps=1.0)
    np.testing.assert_allclose(seen.path.theta, path.theta, rtol=1e-12)


# --- intervals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("participation", [0.4, 1.0])
def test_the_separated_plug_in_is_its_formula(participation: float, corrected: bool) -> None:
    """V = (1/nu)[sum p² S/m + (1-nu)(N/(N-1)) sum p² g gᵀ], from p, S and g of five clients."""
    rng = np.random.default_rng(4)
    clients, p = 5, np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    half = rng.normal(size=(clients, 4, 4))
    each, between, within = np.array([3, 1, 2, 4, 2]), np.zeros((4, 4)), np.zeros((4, 4))
    gradients = rng.normal(size=(clients, 4))
    for i in range(clients):
        within = within + p[i] ** 2 * half[i] @ half[i].T / each[i]
        between = between + p[i] ** 2 * np.outer(gradients[i], gradients[i])
    nu = participation
    spread = (within + (corrected * (1 - nu) * clients / (clients - 1)) * between) / nu
    path = IteratePath.start(np.zeros(4))
    for _ in range(9):
        path = path.after(
            rng.normal(size=4), np.diag([1.0, 2.0, 3.0, 4.0]), rng.normal(size=4), step=0.1, mean_steps=1
        )
    inverse = np.diag([1.0, 1 / 2, 1 / 3, 1 / 4])
    of = course(
        participation=nu, intervals="separated-plug-in-corrected" if corrected else "separated-plug-in"
    )
    steps = infer_rounds(of, RoundHistory(path=path), NAMES, clients=clients)
    query: Any = next(steps)
    assert query.of == ClientSpread(parameters=4)
    # Weights on the wire have the mean 1: w = N p.
    sums = SpreadSums(within=clients**2 * within, between=clients**2 * between, clients=clients)
    with pytest.raises(StopIteration) as finished:
        steps.send(Released(value=sums, noise=NO_NOISE, clients=clients))
    estimate = finished.value.value
    np.testing.assert_allclose(estimate.covariance, inverse @ spread @ inverse / 9, rtol=1e-12)
    np.testing.assert_array_equal(estimate.value, path.averaged)
    assert isinstance(estimate.law, Normal)


def test_one_client_is_its_own_cohort() -> None:
    clients = parts("linear", (400,))
    of = course(participation=0.5, intervals="separated-plug-in-corrected")
    _, estimate = driven(Stream(clients), of, per=400.0)
    assert np.isfinite(estimate.standard_errors).all()


@pytest.mark.parametrize("intervals", INTERVALS)
def test_every_kind_of_interval_is_about_as_wide(intervals: str) -> None:
    """Of one order of magnitude with the pooled ones, per coefficient; each by its own law."""
    clients = parts("linear", (1000, 1000), seed=6)
    seen, estimate = driven(Stream(clients), course(rounds=100, intervals=intervals), per=1000.0)
    x, y = design(clients)
    width = np.diff(estimate.intervals(0.95), axis=1)[:, 0]
    theirs = 2 * 1.96 * sm.OLS(y, x).fit(cov_type="HC0").bse
    assert ((width / theirs > 0.3) & (width / theirs < 4)).all()
    laws = {"round-plug-in": StudentT, "random-scaling": RandomScaling}
    assert isinstance(estimate.law, laws.get(intervals, Normal))
    if intervals == "random-scaling":
        np.testing.assert_array_equal(estimate.covariance, (seen.path.scaling + seen.path.scaling.T) / 2)


@pytest.mark.parametrize("intervals", INTERVALS)
def test_the_path_ends_with_the_estimate(intervals: str) -> None:
    seen, estimate = driven(Stream(parts("linear", (200, 200))), course(intervals=intervals), per=200.0)
    at = [one[0] for one in seen.shown]
    assert at == sorted(set(at))
    assert at[-1] == 40
    assert len(at) <= 50
    np.testing.assert_allclose(seen.shown[-1][1], estimate.value, rtol=1e-12)
    if intervals in ("round-plug-in", "random-scaling"):
        np.testing.assert_allclose(seen.shown[-1][2], estimate.covariance, rtol=1e-9, atol=1e-15)


# --- a saved state ----------------------------------------------------------------------------------------


def replayed(
    answers: list[Released[RoundSums]], of: Course, begin: RoundHistory | None = None
) -> RoundHistory:
    steps = run_rounds(of, STANDARD, clients=3, per=100.0, begin=begin)
    next(steps)
    for answer in answers[:-1]:
        steps.send(answer)
    with pytest.raises(StopIteration) as finished:
        steps.send(answers[-1])
    return finished.value.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("intervals", ["round-plug-in", "random-scaling"])
def test_going_on_from_a_saved_state_is_going_on(intervals: str) -> None:
    """The same sums: twice 50 rounds with a state written down between are 100 rounds, to the last bit."""
    stream = Stream(parts("logistic", (300, 400, 100)))
    of = course(model="logistic", rounds=100, local_steps=3, intervals=intervals)
    straight, _ = driven(stream, of, per=100.0)
    halves = course(model="logistic", rounds=50, local_steps=3, intervals=intervals)
    first = replayed(stream.answers[:50], halves)
    kept = RoundHistory.from_json(json.loads(json.dumps(first.to_json())))
    second = replayed(stream.answers[50:], halves, begin=kept)
    assert second.to_json() == straight.to_json()
    assert second.path.rounds == 100
    ours, theirs = (list(infer_of(halves, one)) for one in (second, straight))
    assert ours == theirs


def infer_of(of: Course, seen: RoundHistory) -> np.ndarray:
    steps = infer_rounds(of, seen, NAMES, clients=3)
    with pytest.raises(StopIteration) as finished:
        next(steps)
    return np.concatenate([finished.value.value.value, finished.value.value.covariance.reshape(-1)])


def test_the_steps_of_a_resumed_run_go_on_shrinking() -> None:
    stream = Stream(parts("linear", (80, 80, 80)))
    seen, _ = driven(stream, course(rounds=20), per=80.0)
    before = len(stream.asked)
    driven(stream, course(rounds=5), per=80.0, begin=seen)
    assert [query.of.step for query in stream.asked[before:]] == [course().sizes.at(t) for t in range(21, 26)]


# --- what cannot be answered --------------------------------------------------------------------------------


def test_columns_that_depend_on_each_other_are_named() -> None:
    clients = parts("linear", (200, 200))
    for columns in clients:
        columns["features"] = columns["features"].copy()
        columns["features"][:, 2] = 3 * columns["features"][:, 1]
    with pytest.raises(DataError, match="'x1' and 'x2'"):
        driven(Stream(clients), course(), per=200.0)


def test_steps_that_diverge_are_named_with_a_smaller_one() -> None:
    with pytest.raises(
        UsageError, match=r"step: got 50, with which the iterates diverge \(round \d+\).*`step=5`"
    ):
        driven(Stream(parts("linear", (80, 80))), course(sizes=StepSizes(first=50.0, decay=0.6)), per=80.0)


def test_rows_that_were_used_before_are_counted() -> None:
    seen, _ = driven(Stream(parts("linear", (20, 400))), course(), per=210.0)
    assert seen.again == 20  # one row a visit: after 20 of 40 rounds the small client begins again
    assert seen.rows == 40 + 400


def test_means_are_over_those_who_answered_with_rows_or_without() -> None:
    """Three answered, one of them without rows: weights have the mean 1 over all, so sums are divided by three."""
    sums = RoundSums(
        clients=2,
        steps=4,
        again=0,
        rows=6,
        gradient=np.full(4, 6.0),
        hessian=3 * np.eye(4),
        drift=np.zeros(4),
    )
    seen = RoundHistory(path=IteratePath.start(np.zeros(4))).after(sums, 3, step=0.1)
    np.testing.assert_allclose(seen.path.hessian, np.eye(4))
    np.testing.assert_allclose(seen.path.theta, -0.1 * 2 * 2.0)  # two local steps on the mean
    nobody = RoundSums(
        clients=0, steps=0, again=0, rows=0, gradient=np.zeros(4), hessian=np.zeros((4, 4)), drift=np.zeros(4)
    )
    assert RoundHistory(path=IteratePath.start(np.zeros(4))).after(nobody, 0, step=0.1).mean_steps == 1.0


def test_only_rounds_are_asked_for() -> None:
    stream = Stream(parts("linear", (80, 80)))
    driven(stream, course(), per=80.0)
    assert all(isinstance(query.of, RegressionRound) for query in stream.asked)
    assert not any(query.of.remembers for query in stream.asked)
    assert len(stream.asked) == 40


def test_too_few_rows_to_tell_a_spread_are_refused() -> None:
    """Rounds are compared once there were twice as many rows as coefficients; until then nothing is claimed."""
    clients = parts("linear", (9,))
    with pytest.raises(DataError, match=r"rounds: got 8 with 8 rows in all, expected more of both"):
        driven(Stream(clients), course(rounds=8), per=9.0)
    seen, estimate = driven(Stream(parts("linear", (12,))), course(rounds=12), per=12.0)
    assert seen.path.compared == 4  # of the twelve rounds of a row each, those after the eighth
    assert (estimate.standard_errors > 0).all()
