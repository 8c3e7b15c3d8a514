"""What privacy adds to the error of counts: closed forms against dense ones, and the guarantees they rest on."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from binormal import Population, discrete_laplace_law, measure
from fedassay.estimation.calibration_error import Buckets, equi_depth_edges
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.count_noise import LevelReports, NodeNoise
from fedassay.estimation.curves import bernstein_half_width, half_width_of, noise_half_width, sharp_half_width
from fedassay.estimation.least_squares import LeastSquares, reporting_clients
from fedassay.estimation.tree import Tree
from fedassay.privacy.accounting import GAUSSIAN, LAPLACE, SKELLAM, noise_of
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.metrics import METRICS
from fedassay.protocol.vocabulary import Budget, Noise, Protection, Released, Setting, Sum
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.local_dp import LocalDP

POPULATION = Population(0.3)


@st.composite
def reports(draw: st.DrawFn) -> LevelReports:
    height = draw(st.integers(1, 5))
    powers = draw(st.sets(st.integers(1, height - 1))) if height > 1 else set()
    tree = Tree(leaves=2**height, widths=(1, *(2**power for power in sorted(powers))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = rng.uniform(0, 20, (2, tree.leaves)) * rng.integers(0, 2, (2, tree.leaves))
    parts = rng.uniform(0.2, 1, tree.levels)
    return LevelReports(
        fit=LeastSquares(tree=tree, variances=tuple(rng.uniform(0.1, 50, tree.levels))),
        bits=tuple(rng.uniform(0.1, 50, tree.levels)),
        reporting=tuple(parts / parts.sum()),
        clients=float(counts.sum() * rng.uniform(1, 3) + 1),
        counts=counts,
    )


def total_covariance(law: LevelReports, weights: np.ndarray) -> np.ndarray:
    """Around the population, node by node, from the law of one client's report; (sums, class, leaf)."""
    result = np.zeros((len(weights), len(weights)))
    M = law.clients
    for level, (bits, part) in enumerate(zip(law.bits, law.reporting, strict=True)):
        width = law.fit.tree.widths[level]
        w = law.fit.node_weights(weights)[level].reshape(len(weights), -1)
        share = law.counts.reshape(2, -1, width).sum(-1).reshape(-1) / M
        # M·part clients, each in node j with probability share_j, their sum scaled by 1/part.
        sampled = w @ (np.diag(share) - np.outer(share, share)) @ w.T
        own_bit = w @ np.diag(share) @ w.T
        result += (M * part) / part**2 * (sampled + own_bit) + bits * w @ w.T
    return result


@given(reports(), st.integers(0, 2**32 - 1))
def test_the_covariance_is_the_total_minus_that_of_the_rows(law: LevelReports, seed: int) -> None:
    G = np.random.default_rng(seed).normal(size=(3, 2, law.fit.tree.leaves))
    rows = max(1.0, law.counts.sum())
    flat, n = G.reshape(3, -1), law.counts.reshape(-1)
    of_rows = flat @ (np.diag(n) - np.outer(n, n) / rows) @ flat.T
    expected = total_covariance(law, G) - of_rows
    scale = np.abs(expected).max()
    assert np.allclose(law.covariance(G[:, 0], G[:, 1]), expected, atol=1e-9 * scale)
    assert law.variance(G[0, 0], G[0, 1]) == pytest.approx(max(0.0, expected[0, 0]), abs=1e-9 * scale)


@given(reports(), st.integers(0, 2**32 - 1))
def test_privacy_never_falls_below_the_bits(law: LevelReports, seed: int) -> None:
    G = np.random.default_rng(seed).normal(size=(4, 2, law.fit.tree.leaves))
    bits = sum(
        b * w.reshape(4, -1) @ w.reshape(4, -1).T
        for b, w in zip(law.bits, law.fit.node_weights(G), strict=True)
    )
    excess = np.linalg.eigvalsh(law.covariance(G[:, 0], G[:, 1]) - bits)
    assert excess.min() >= -1e-9 * np.abs(bits).max()


@given(reports())
def test_prefixes_and_the_confusion_are_the_covariance_of_their_sums(law: LevelReports) -> None:
    leaves = law.fit.tree.leaves
    below, none = np.tri(leaves + 1, leaves, -1), np.zeros((leaves + 1, leaves))
    for one, dense in (
        (law.positives, law.covariance(below, none)),
        (law.negatives, law.covariance(none, below)),
    ):
        scale = np.abs(dense).max() + 1
        assert np.allclose(one.below, np.diag(dense), atol=1e-9 * scale)
        assert np.allclose(one.joint, dense[:, -1], atol=1e-9 * scale)
        assert one.total == pytest.approx(dense[-1, -1], abs=1e-9 * scale)
    for edge in (0, leaves // 2, leaves):
        halves = np.stack([1 - below[edge], below[edge]])
        nothing = np.zeros_like(halves)
        dense = law.covariance(np.concatenate([halves, nothing]), np.concatenate([nothing, halves]))
        assert np.allclose(law.confusion(edge), dense, atol=1e-9 * (np.abs(dense).max() + 1))
    ones = np.ones(leaves)
    assert law.rows == pytest.approx(law.variance(ones, ones), rel=1e-6, abs=1e-6)


@given(reports(), st.integers(0, 2**32 - 1))
def test_the_variance_for_bands_is_the_total_without_what_cells_share(law: LevelReports, seed: int) -> None:
    leaves = law.fit.tree.leaves
    rates = np.random.default_rng(seed).uniform(0, 1, leaves + 1)
    for label in (1, 0):
        weights = np.zeros((leaves + 1, 2, leaves))
        weights[:, 1 - label] = (1 - rates)[:, None] - np.tri(leaves + 1, leaves, -1)
        expected = np.diag(total_covariance(law, weights)).copy()
        for level, part in enumerate(law.reporting):
            counts = law.counts.reshape(2, -1, law.fit.tree.widths[level]).sum(-1)
            first = np.einsum("rcj,cj->r", law.fit.node_weights(weights)[level], counts)
            expected += first**2 / (part * law.clients)
        assert np.allclose(law.rate_variances(label, rates), expected, atol=1e-9 * (expected.max() + 1))


def test_ordinary_noise_is_the_fit_s_and_the_same_in_both_classes() -> None:
    fit = LeastSquares(tree=Tree(leaves=16, widths=(1, 4)), variances=(2.0, 3.0))
    law, G = NodeNoise(fit=fit), np.random.default_rng(1).normal(size=(2, 16))
    np.testing.assert_array_equal(law.covariance(G, G), 2 * fit.covariance(G))
    assert law.positives is law.negatives
    assert law.rows == 2 * fit.total_variance
    confusion = law.confusion(5)
    assert confusion[1, 1] == fit.prefix_variances[5]
    assert confusion[:2, :2].sum() == pytest.approx(fit.total_variance)
    assert not confusion[:2, 2:].any()


# --- evidence -----------------------------------------------------------------------------------------------


def local_release(
    epsilon: float,
    clients: int,
    *,
    rows: int | None = None,
    seed: int = 1,
    widths: tuple[int, ...] = (1, 16, 64),
) -> Released[LabelledHistogram]:
    histogram = ScoreHistogram(transform="mixed", height=8, thresholds=(0.5,), widths=widths, reach=8.0)
    trust = LocalDP()
    setting = Setting(
        trust=trust, protection=Protection(rows_per_client=1), budget=Budget(epsilon=epsilon), clients=clients
    )
    rng = np.random.default_rng(seed)
    total = measure(histogram, *POPULATION.sample(rows or clients, rng))
    plan = trust.plan(Sum(of=histogram), setting)
    (released,) = trust.aggregate([plan], [total], clients, SimulatedRandomness(seed))
    return released.with_value(histogram.read(released.value))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0, 31.9, 1000.0])
def test_the_number_of_clients_is_in_the_noise(epsilon: float) -> None:
    released = local_release(epsilon, 3_000, rows=1_000)
    assert reporting_clients(released.noise) == pytest.approx(3_000, rel=1e-3)


def test_counts_for_variances_are_plausible_and_keep_their_totals() -> None:
    released = local_release(0.5, 5_000)
    evidence = released.value.evidence(released.noise)
    law = evidence.count_noise
    assert isinstance(law, LevelReports)
    assert evidence.positives.min() < 0
    assert law.counts.min() >= 0
    assert law.counts.sum(1) == pytest.approx([evidence.positive_rows, evidence.negative_rows])
    assert law.clients >= law.counts.sum()


def test_no_rows_at_all_are_no_evidence_and_no_crash() -> None:
    released = local_release(1.0, 2_000, rows=1)
    results = Evaluate(height=8).results(released)
    assert results["roc_auc"]["value"] is None
    assert "not enough evidence" in results["roc_auc"]["reason"]


def test_everything_is_finite_under_reports() -> None:
    """`Metric` refuses NaN and infinity by itself; this runs all of it, at good and at bad evidence."""
    for epsilon, clients in ((0.2, 2_000), (1.0, 30_000), (8.0, 30_000)):
        for widths in ((1,), (1, 16, 64)):
            results = Evaluate(height=8).results(local_release(epsilon, clients, widths=widths))
            assert "accuracy" in results


def test_the_sampling_error_is_what_it_was_and_privacy_is_the_rest() -> None:
    """With next to no lies in the bits, the error that is left is that of coins and of levels."""
    released = local_release(30.0, 40_000, widths=(1, 16))
    evidence = released.value.evidence(released.noise)
    metric = Confusion.at(evidence, 0.5).share(METRICS["accuracy"].estimate).estimate
    v = metric.value
    assert metric.sampling_variance == pytest.approx(v * (1 - v) / 40_000, rel=0.1)
    # Two levels that weigh about the same: the own bit adds as much as the rows, and so does half the clients
    # on each level, but not more than twice as much.
    assert 1 < metric.privacy_variance / metric.sampling_variance < 4


def test_buckets_follow_the_law_of_the_reports() -> None:
    released = local_release(2.0, 50_000)
    evidence = released.value.evidence(released.noise)
    buckets = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, 5)))
    s, edges = evidence.scores, buckets.edges
    member = ((np.arange(256) >= edges[1]) & (np.arange(256) < edges[2])).astype(float)
    assert buckets.row_noise_variances[1] == pytest.approx(evidence.privacy_variance(member, member))
    assert buckets.gap_noise_covariance[1, 1] == pytest.approx(
        evidence.privacy_variance(member * (1 - s), -member * s)
    )
    ordinary = replace(evidence, noise=discrete_laplace_law(3.0))
    same = Buckets(evidence=ordinary, edges=buckets.edges)
    v = float(same.observed[1] / same.rows[1])
    direct = ordinary.privacy_variance((1 - v) * member, -v * member) / same.rows[1] ** 2
    assert same.rate_noise_variance(1) == pytest.approx(direct)


# --- tails --------------------------------------------------------------------------------------------------


def generating(noise: Noise, t: np.ndarray) -> np.ndarray:
    """log E exp(tX) of one draw, from its probabilities."""
    if noise.law == SKELLAM:
        return noise.variance * (np.cosh(t) - 1)
    if noise.law == LAPLACE:
        return -np.log1p(-noise.variance * (np.cosh(t) - 1))
    x = np.arange(-250, 251)
    logs = -(x**2) / (2 * noise.scale**2)
    return logsumexp(np.outer(t, x) + logs, axis=1) - logsumexp(logs)


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN, SKELLAM])
@pytest.mark.parametrize("scale", [0.1, 0.25, 0.4, 0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("copies", [1.0, 7.5])
def test_the_tail_bound_is_chernoff_s_or_wider(law: str, scale: float, copies: float) -> None:
    """For one coordinate: no t gives a smaller valid bound than the one that is used."""
    one = noise_of(law, Fraction(scale))
    noise = replace(one, variance=copies * one.variance, copies=copies)
    used = half_width_of(noise, noise.variance, points=100, error=0.05)
    t = np.linspace(1e-4, min(30.0, (1 - 1e-9) / scale if law == LAPLACE else 12 / scale), 2_000)
    best = ((math.log(2 * 100 / 0.05) + copies * generating(one, t)) / t).min()
    assert used >= best * (1 - 1e-3)


def test_the_bound_of_wide_laplace_noise_does_not_hold_for_narrow_noise() -> None:
    """Why small scales have a bound of their own."""
    variance = discrete_laplace_law(0.15).variance
    assert noise_half_width(400 * variance, 0.15, points=1, error=1e-9) < sharp_half_width(
        400 * variance, 0.15, points=1, error=1e-9
    )


@pytest.mark.parametrize("q", [1e-6, 0.01, 0.1, 0.25, 0.4, 0.499, 0.5])
def test_a_report_has_bernstein_s_generating_function(q: float) -> None:
    """The inequality that the bands under reports rest on: linear in π, so its ends are enough."""
    x = np.linspace(-2.99, 2.99, 5_981)
    bits = np.log1p(q * np.expm1(x)) - q * x
    rest = (1 + np.exp(x)) / 2 / (1 + q * np.expm1(x)) - 1 - (0.5 - q) * x
    for p in (0.0, 1.0):
        bound = (q * (1 - q) / 2 + p * (0.5 - q) ** 2) * x**2 / (1 - np.abs(x) / 3)
        assert (bits + p * rest <= bound + 1e-12).all()


def test_bernstein_s_bound_solves_its_inequality() -> None:
    u = bernstein_half_width(50.0, 4.0, points=10, error=0.01)
    assert 20 * math.exp(-(u**2) / (2 * (50.0 + 4.0 * u / 3))) == pytest.approx(0.01)
