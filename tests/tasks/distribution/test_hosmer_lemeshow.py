"""The Hosmer-Lemeshow task: with noise off the classical test, with noise what is asked, spent and said."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from binormal import Population, measure
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.estimation.calibration_error import hosmer_lemeshow
from fedassay.kernel.agenda import Alone
from fedassay.kernel.run import rehearse
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Budget,
    Neighbours,
    Noise,
    Protection,
    Released,
    Setting,
    Unit,
)
from fedassay.study.simulation import Simulation, simulate
from fedassay.summaries.bounded_sums import ONE
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.distribution.calibration_groups import (
    CalibrationGroups,
    enough_rows,
    fourth_cumulant,
    from_evidence,
    upper_tail,
)
from fedassay.tasks.distribution.hosmer_lemeshow import METHODS, HosmerLemeshow
from fedassay.tasks.distribution.published_groups import ScoreCurve
from fedassay.trust import TRUST_MODELS
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.server_dp import ServerDP
from group_test_runs import PLAIN, judged, server_dp

Rows = tuple[np.ndarray, np.ndarray]
TWO_STEPS = ("corrected", "published")


def reference(rows: Rows, edges: list[float], *, closed: str) -> tuple[float, np.ndarray]:
    """The classical statistic on given groups, in the words of the textbook, and the table of its groups."""
    scores, labels = rows
    total, groups = 0.0, []
    for j, (low, high) in enumerate(pairwise(edges)):
        if closed == "above":
            inside = (scores <= high) & ((scores > low) | (j == 0))
        else:
            inside = (scores >= low) & ((scores < high) | (j == len(edges) - 2))
        n, o, e = inside.sum(), labels[inside].sum(), scores[inside].sum()
        mean = e / n
        total += (o - n * mean) ** 2 / (n * mean * (1 - mean))
        groups.append((low, high, n, o, e))
    return total, np.array(groups)


def rounded(rows: Rows, task: HosmerLemeshow) -> Rows:
    """The rows with scores that lose nothing: binary fractions for sums in fixed point, mid-bins for a histogram."""
    if task.method != "free":
        return np.rint(rows[0] * ONE) / ONE, rows[1]
    edges = next(task.steps(PLAIN)).of.grid.edges
    return ((edges[1:] + edges[:-1]) / 2)[np.searchsorted(edges, rows[0], side="right") - 1], rows[1]


SAMPLES = {
    "miscalibrated": Population(0.4, shift=0.3).sample(3_000, np.random.default_rng(1)),
    "calibrated": Population(0.2).sample(5_000, np.random.default_rng(2)),
    "tied": (np.repeat([0.1, 0.25, 0.7], 400), np.tile([0, 1, 0, 1, 1], 240)),
}


@pytest.mark.parametrize("degrees", ["Q", "Q-2"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sample", list(SAMPLES))
def test_without_noise_it_is_the_classical_test(sample: str, method: str, degrees: str) -> None:
    task = HosmerLemeshow(method=method, degrees=degrees)
    rows = rounded(SAMPLES[sample], task)
    test = judged(task, PLAIN, *rows)
    edges = [0.0, *(group["upper"] for group in test["groups"])]
    expected, groups = reference(rows, edges, closed="below" if method == "free" else "above")
    assert test["value"] == pytest.approx(expected, rel=1e-9)
    table = [
        [group[name] for name in ("lower", "upper", "rows", "observed", "expected")]
        for group in test["groups"]
    ]
    np.testing.assert_allclose(table, groups, rtol=1e-12)
    Q = len(groups)
    assert test["degrees_of_freedom"] == Q - 2 * (degrees == "Q-2")
    assert test["p_value"] == pytest.approx(chi2.sf(expected, test["degrees_of_freedom"]), rel=1e-9)
    if method == "published":
        assert test["asymptotic_p_value"] == pytest.approx(chi2.sf(expected, Q - 2), rel=1e-9)
    assert (Q == 10) == (sample != "tied") == (not test["warnings"])


@pytest.mark.parametrize("method", METHODS)
def test_scores_that_are_not_on_the_grid_move_it_within_the_stated_bound(method: str) -> None:
    rows = SAMPLES["miscalibrated"]
    test = judged(HosmerLemeshow(method=method, height=15 if method == "free" else None), PLAIN, *rows)
    edges = [0.0, *(group["upper"] for group in test["groups"])]
    expected, _ = reference(rows, edges, closed="below" if method == "free" else "above")
    assert 0 < abs(test["value"] - expected) <= test["error"]["discretisation"] * 1.01
    assert test["error"]["discretisation"] < 0.1


@pytest.mark.parametrize("method", TWO_STEPS)
def test_without_noise_groups_end_at_quantiles(method: str) -> None:
    scores, labels = SAMPLES["calibrated"]
    groups = judged(HosmerLemeshow(method=method, points=256), PLAIN, scores, labels)["groups"]
    points = np.arange(1, 257) / 256
    below = np.array([(scores <= point).mean() for point in points])
    expected = [points[np.argmax(below >= q / 10)] for q in range(1, 10)]
    assert [group["upper"] for group in groups] == [*expected, 1.0]


def test_the_free_statistic_is_that_of_the_evaluation() -> None:
    """Where no groups have to be joined; the p-value differs, because it knows the tails of the noise."""
    rows = SAMPLES["miscalibrated"]
    setting = server_dp(3.0)
    query = next(HosmerLemeshow().steps(setting))
    plan, histogram = setting.trust.plan(query, setting), query.of
    (released,) = setting.trust.aggregate([plan], [measure(histogram, *rows)], 10, SimulatedRandomness(4))
    evidence = histogram.read(released.value).evidence(released.noise)
    groups, oracle = from_evidence(evidence, 10), hosmer_lemeshow(evidence)
    assert groups.statistic == pytest.approx(oracle.value, rel=1e-9)
    assert groups.statistic_rounding == pytest.approx(oracle.discretisation, rel=1e-9)
    mean, variance = groups.moments(groups.nothing_removed)
    assert mean == pytest.approx(10)
    assert variance > 20.01
    assert upper_tail(groups.statistic, mean=mean, variance=variance) > oracle.details["p_value"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("trust", ["plain", "secure-sum", "distributed-dp", "server-dp", "local-dp"])
def test_every_summing_trust_model_answers(method: str, trust: str) -> None:
    """Every client's own message through bytes; without noise the result is that of pooled rows."""
    scores, labels = SAMPLES["miscalibrated"]
    model = TRUST_MODELS[trust]()
    task = HosmerLemeshow(method=method)
    result = simulate(
        Alone(name="hosmer-lemeshow", task=task),
        {"p": scores, "y": labels, "site": np.arange(len(scores)) % 5},
        columns={"score": "p", "label": "y"},
        client="site",
        trust=model,
        budget=Budget(epsilon=8.0) if model.private else None,
        protection=Protection(),
        parameters={},
        simulation=Simulation(seed=1, mode="faithful"),
    )
    test = result.results["hosmer_lemeshow"]
    assert method == "published" or test["p_value"] < 0.01
    if not model.private:
        assert test == judged(task, PLAIN, scores, labels)


# --- what is spent -----------------------------------------------------------------------------------------------

PROTECTIONS = (
    Protection(),
    Protection(neighbours=Neighbours.REPLACE_ONE),
    Protection(rows_per_client=7),
    Protection(unit=Unit.CLIENT, rows_per_client=7),
    Protection(unit=Unit.CLIENT, rows_per_client=7, neighbours=Neighbours.REPLACE_ONE),
)


def both_queries(task: HosmerLemeshow, setting: Setting) -> tuple[Any, Any]:
    flow = task.steps(setting)
    first = next(flow)
    curve = first.of.read(np.arange(first.of.points) * first.of.multiplier)
    return first, flow.send(Released(value=curve, noise=NO_NOISE, clients=10))


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("points", [2, 64, 1024])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_published_noise_is_as_published(protection: Protection, points: int, epsilon: float) -> None:
    """Laplace noise of scale (L+9)/ε on the curve and on 4Q sums, times the rows of a unit; never a bit less."""
    setting = Setting(trust=ServerDP(), protection=protection, budget=Budget(epsilon=epsilon), clients=10)
    task = HosmerLemeshow(method="published", points=points)
    first, second = both_queries(task, setting)
    L = points.bit_length() - 1
    published = protection.rows_per_unit * (L + 9) / epsilon
    assert (setting.noise(first).law, setting.noise(second).law) == ("discrete-laplace",) * 2
    for query, unit in ((first, 1), (second, ONE)):
        scale = setting.noise(query).scale / unit
        assert published <= scale <= published * (1 + 1e-8)
    assert second.of.length == 4 * second.of.groups
    # What Theorem 2 charges beyond the true sensitivities is left over.
    moves = protection.moves_both_ways
    spent = (L if moves else math.ceil((L + 1) / 2)) + (4 if moves else 2)
    assert first.share + second.share == pytest.approx(spent / (L + 9))


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_the_corrected_budget_is_spent_as_stated(protection: Protection) -> None:
    setting = Setting(trust=ServerDP(), protection=protection, budget=Budget(epsilon=1.0), clients=10)
    first, second = both_queries(HosmerLemeshow(method="corrected", curve_share=0.2), setting)
    assert (first.share, second.share) == (0.2, 0.8)
    r, moves = protection.rows_per_unit, protection.moves_both_ways
    assert setting.noise(first).scale == pytest.approx(r * (10 if moves else 6) / 0.2, rel=1e-6)
    last = second.of.edges[-2]
    assert setting.noise(second).scale / ONE == pytest.approx(r * (3 + last if moves else 2) / 0.8, rel=1e-6)
    assert second.of.length == 3 * second.of.groups


def test_a_delta_makes_the_curve_gaussian_and_finer() -> None:
    setting = replace(server_dp(1.0), budget=Budget(epsilon=1.0, delta=1e-6))
    first, _ = both_queries(HosmerLemeshow(method="corrected"), setting)
    assert first.of.multiplier == 1024
    assert setting.noise(first).law == "discrete-gaussian"
    with pytest.raises(UsageError, match="published: got delta 1e-06, expected 0"):
        next(HosmerLemeshow(method="published").steps(setting))


@pytest.mark.parametrize("method", TWO_STEPS)
def test_what_cannot_be_answered_is_refused_before_anything_is_spent(method: str) -> None:
    """The first query could be answered, the second could not."""

    class NoSums(ServerDP):
        def plan(self, query: Any, setting: Setting) -> Any:
            if "group-statistics" in query.of.name:
                raise UnsupportedQuery("no sums")
            return super().plan(query, setting)

    with pytest.raises(UnsupportedQuery, match="no sums"):
        rehearse(HosmerLemeshow(method=method), server_dp(1.0, trust=NoSums()))
    with pytest.raises(UnsupportedQuery):
        rehearse(
            HosmerLemeshow(method=method), server_dp(1.0, trust=LocalDP(encoding="unary"), rows_per_client=1)
        )


def test_the_second_question_follows_from_the_first_answer_alone() -> None:
    task, setting = HosmerLemeshow(method="corrected"), server_dp(1.0)
    assert both_queries(task, setting) == both_queries(task, setting)


# --- groups ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 8), st.integers(2, 20), st.integers(0, 10_000))
def test_edges_increase_whatever_the_curve_looks_like(height: int, groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = np.cumsum(rng.poisson(3, 1 << height)) + rng.laplace(0, 20, 1 << height)
    edges = ScoreCurve(counts=counts).edges(groups)
    assert (edges[0], edges[-1]) == (0.0, 1.0)
    assert all(a < b for a, b in pairwise(edges))
    assert 1 <= len(edges) - 1 <= groups


@given(st.lists(st.floats(-50, 500), min_size=1, max_size=15), st.floats(0, 50))
def test_parts_have_enough_rows_or_there_is_none(rows: list[float], deviation: float) -> None:
    def of(i: int, j: int) -> float:
        return deviation * math.sqrt(j - i)

    cuts = enough_rows(np.array(rows), of)
    for i, j in pairwise(cuts):
        assert sum(rows[i:j]) > 0
        assert sum(rows[i:j]) >= 4 * of(i, j) * (1 - 1e-12)
    if len(cuts) == 1:
        assert cuts == [0]
        assert sum(rows) <= 0 or sum(rows) < 4 * of(0, len(rows)) * (1 + 1e-12)
    else:
        assert (cuts[0], cuts[-1]) == (0, len(rows))


def test_what_the_curve_foresees_is_near_the_truth() -> None:
    scores, _ = SAMPLES["calibrated"]
    counts = np.cumsum(np.histogram(scores, np.arange(1025) / 1024)[0]).astype(float)
    edges = (0.0, 0.125, 0.25, 0.5, 1.0)
    positives, negatives = ScoreCurve(counts=counts).expected(edges)
    for j in range(4):
        inside = (scores > edges[j]) & (scores <= edges[j + 1])
        assert positives[j] == pytest.approx(scores[inside].sum(), abs=inside.sum() / 2048)
        assert positives[j] + negatives[j] == pytest.approx(inside.sum())


def test_one_score_for_all_is_one_group() -> None:
    rows = np.full(1000, 0.25), np.tile([0, 0, 0, 1], 250)
    for method in METHODS:
        test = judged(HosmerLemeshow(method=method), PLAIN, *rows)
        assert (len(test["groups"]), test["degrees_of_freedom"]) == (1, 1)
        assert test["value"] == pytest.approx(0, abs=0.1)
        assert "There is 1 group instead of 10" in test["warnings"][0]
        fitted = judged(HosmerLemeshow(method=method, degrees="Q-2"), PLAIN, *rows)
        assert fitted["value"] is None
        assert "1 groups" in fitted["reason"]


def test_points_are_rounded_up_and_it_is_said() -> None:
    rows = SAMPLES["calibrated"]
    test = judged(HosmerLemeshow(method="corrected", points=1000), PLAIN, *rows)
    assert test["warnings"] == ["The distribution of the scores has 1,024 points, the next power of two."]
    assert test["value"] == judged(HosmerLemeshow(method="corrected"), PLAIN, *rows)["value"]


# --- what is said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_and_too_few(method: str) -> None:
    nobody = np.zeros(0), np.zeros(0, dtype=np.int64)
    for setting in (PLAIN, server_dp(1.0)):
        test = judged(HosmerLemeshow(method=method), setting, *nobody, seed=3)
        json.dumps(test, allow_nan=False)
        assert test.get("p_value") is None
        assert test["reason"]
        assert test["value"] is None or method == "published"


@pytest.mark.parametrize("method", METHODS)
def test_outcomes_that_are_certain_leave_nothing_to_test(method: str) -> None:
    rows = np.repeat([0.0, 0.5, 1.0], 100), np.tile([0, 1], 150)
    test = judged(HosmerLemeshow(method=method, transform="uniform"), PLAIN, *rows)
    if method == "free":  # which takes a score of 0 for one in the middle of the first bin
        assert test["p_value"] < 1e-9
    else:
        assert test["value"] is None
        assert "in some group" in test["reason"]


def test_small_expected_counts_are_warned_of() -> None:
    rows = SAMPLES["calibrated"]
    published = judged(HosmerLemeshow(method="published"), server_dp(1.0), *rows)
    assert published["p_value"] is None
    assert "not enough evidence for a p-value: the smallest expected count is 0." in published["reason"]
    assert published["asymptotic_p_value"] < 1e-9  # which would have been believed
    assert [sentence.split(":")[0][:24] for sentence in published["warnings"]] == [
        "Noise dominates in 10 of",
        "The smallest expected co",
    ]
    corrected = judged(HosmerLemeshow(method="corrected"), server_dp(1.0), *rows)
    assert corrected["p_value"] is not None
    assert any("Noise dominates" in sentence for sentence in corrected["warnings"])
    for method in METHODS:
        assert judged(HosmerLemeshow(method=method), server_dp(1000.0), *rows)["warnings"] == []


def test_a_p_value_belongs_to_a_release() -> None:
    rows = SAMPLES["calibrated"]
    task = HosmerLemeshow(method="published")
    first, again, other = (judged(task, server_dp(60.0), *rows, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first["p_value"] is not None
    assert first["null"] == {"law": "simulated", "draws": 4999}
    assert first["p_value"] != other["p_value"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "best"}, "method: got 'best', expected free, corrected or published"),
        ({"groups": 2, "degrees": "Q-2"}, "groups: got 2 for Q-2 degrees of freedom, expected at least 3"),
        ({"height": 99}, "height"),
    ],
)
def test_bad_parameters_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        HosmerLemeshow(**fields)


# --- the null with noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 12.0])
def test_the_fourth_cumulant_of_discrete_laplace_noise(scale: float) -> None:
    x = np.arange(-2000, 2001)
    p = np.exp(-np.abs(x) / scale)
    p /= p.sum()
    variance, fourth = (x**2 * p).sum(), (x**4.0 * p).sum()
    law = Noise(law="discrete-laplace", scale=scale, variance=variance)
    assert fourth_cumulant(law) == pytest.approx(fourth - 3 * variance**2, rel=1e-9)
    three = replace(law, variance=3 * variance, copies=3.0)
    assert fourth_cumulant(three) == pytest.approx(3 * fourth_cumulant(law), rel=1e-9)


def test_other_laws_have_the_cumulants_they_should() -> None:
    assert fourth_cumulant(Noise(law="skellam", scale=3.0, variance=9.0)) == 9.0
    for law in ("discrete-gaussian", "unary", "none"):
        assert fourth_cumulant(Noise(law=law, scale=3.0, variance=9.0)) == 0.0


@given(st.floats(0, 60), st.integers(1, 30))
def test_without_heavy_tails_the_law_is_chi_squared(statistic: float, degrees: int) -> None:
    found = upper_tail(statistic, mean=degrees, variance=2 * degrees)
    assert found == pytest.approx(chi2.sf(statistic, degrees), rel=1e-9, abs=1e-300)


def groups_with(noise: float, fourth: float) -> CalibrationGroups:
    expected = np.array([5.0, 20.0, 50.0, 30.0])
    draws = np.concatenate([np.eye(4), -np.eye(4)], axis=1)
    return CalibrationGroups(
        edges=(0.0, 0.1, 0.3, 0.7, 1.0),
        rows=np.full(4, 100.0),
        observed=expected + 3,
        expected=expected,
        rounding=np.zeros(4),
        noise=2 * noise * np.eye(4),
        loads=fourth**0.25 * draws,
    )


def test_the_moments_of_the_statistic() -> None:
    """In a case in which they can be summed up by hand: groups with independent gaps."""
    noise, fourth = 12.0, 3 * 12.0 * 12.0
    groups = groups_with(noise, fourth)
    mean, variance = groups.moments(groups.nothing_removed)
    V = groups.chance + 2 * noise
    assert mean == pytest.approx(4)
    assert variance == pytest.approx(8 + (2 * fourth / V**2).sum())


def test_a_fit_takes_two_directions_out_of_chance_and_none_out_of_noise() -> None:
    exact = groups_with(0.0, 0.0)
    assert exact.moments(exact.fitted()) == pytest.approx((2, 4))
    noisy = groups_with(1e6, 0.0)
    assert noisy.moments(noisy.fitted()) == pytest.approx((4, 8), rel=1e-4)
    directions = exact.fitted()
    assert directions.T @ directions == pytest.approx(np.eye(2))
    # A logistic fit has Σ(y-s) = 0 and Σ(y-s)·logit s = 0: gaps √B·d with d in these directions are not left.
    share = exact.expected / exact.rows
    for slope in (np.ones(4), np.log(share / (1 - share))):
        removed = np.sqrt(exact.chance) * slope
        assert directions @ (directions.T @ removed) == pytest.approx(removed)


def test_distributed_noise_is_counted_as_it_was_added() -> None:
    """More survivors than are needed add more noise, which the statistic knows."""
    rows = SAMPLES["calibrated"]
    shared = judged(HosmerLemeshow(method="corrected"), server_dp(1.0, trust=DistributedDP()), *rows)
    assert 0 <= shared["p_value"] <= 1
    assert shared["null"]["variance"] > 2 * shared["null"]["mean"]


def test_the_histogram_of_the_free_method_stays_in_the_result() -> None:
    flow = HosmerLemeshow(height=5, transform="uniform").steps(PLAIN)
    summary = next(flow).of
    assert isinstance(summary, ScoreHistogram)
    total = np.tile([3, 2, 1, 2], summary.length // 4)
    with pytest.raises(StopIteration) as finished:
        flow.send(Released(value=summary.read(total), noise=NO_NOISE, clients=3))
    assert finished.value.value["histogram"]["rows"] == total.sum()
