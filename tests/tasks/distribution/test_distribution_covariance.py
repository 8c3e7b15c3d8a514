"""The covariances of the three mechanisms are those of the dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from drawn_values import leaves
from fedassay.estimation.count_noise import LeafCovariance
from fedassay.estimation.covariances import RootCovariance
from fedassay.protocol.vocabulary import Noise
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import Distribution, ValueSummary
from fedassay.tasks.distribution.curve import curve_of
from fedassay.tasks.distribution.mechanisms import mean_variance

NOISE = Noise(law="discrete-gaussian", scale=3.0, variance=9.0)


def summaries(height: int) -> list[ValueSummary]:
    fields = {"lower": 0.0, "upper": 1.0, "points": 1 << height}
    widths = tuple(1 << k for k in range(0, height, 2))
    return [
        leaves(1 << height, widths=widths),
        leaves(1 << height, widths=widths, multipliers=tuple(range(1, len(widths) + 1))),
        ValuePath(**fields),
        ValuePath(**fields, multiplier=4),
        ValueRoots(**fields),
    ]


def dense(summary: ValueSummary) -> np.ndarray:
    """The covariance of the sums F_1..F_N: each draw of noise, spread and read, one after the other."""
    columns = []
    for draw in np.eye(summary.draws, dtype=np.int64):
        noisy = summary.spread(draw * 1000).reshape(1, -1) / 1000  # whole numbers, however they are read
        columns.append(Distribution(summary=summary, classes=noisy).sums(NOISE)[0, 1:])
    matrix = np.array(columns).T
    return NOISE.variance * matrix @ matrix.T


@pytest.mark.parametrize("height", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", range(5))
def test_every_covariance_is_that_of_the_draws(kind: int, height: int) -> None:
    summary = summaries(height)[kind]
    fit, of_sums, N = summary.leaf_covariance(NOISE), dense(summary), summary.points
    difference = np.eye(N) - np.eye(N, k=-1)
    C = difference @ of_sums @ difference.T
    prefixes, signs = np.tri(N + 1, N, -1), np.sign(np.subtract.outer(np.arange(N), np.arange(N)))
    assert np.allclose(fit.prefix_variances, np.diag(prefixes @ C @ prefixes.T))
    assert np.allclose(fit.prefix_total_covariances, prefixes @ C.sum(1))
    assert fit.total_variance == pytest.approx(C.sum())
    assert fit.leaf_variance == pytest.approx(np.diag(C).mean())
    assert fit.sign_trace == pytest.approx(np.trace(signs.T @ C @ signs @ C))
    weights = np.random.default_rng(height).normal(size=(3, N))
    assert np.allclose(fit.covariance(weights), weights @ C @ weights.T)
    assert fit.variance(weights[0]) == pytest.approx(weights[0] @ C @ weights[0])
    assert mean_variance(summary, NOISE) == pytest.approx(np.diag(of_sums).mean())
    assert not fit.exact


@pytest.mark.parametrize("kind", range(5))
def test_no_draw_weighs_more_than_the_reach(kind: int) -> None:
    """What the tail bound of the bands assumes, for F_r - s·F_N and every share s."""
    summary = summaries(5)[kind]
    fit: LeafCovariance = summary.leaf_covariance(NOISE)
    columns = []
    for draw in np.eye(summary.draws, dtype=np.int64):
        columns.append(Distribution(summary=summary, classes=summary.spread(draw)[None]).sums(NOISE)[0])
    of_draws = np.array(columns).T
    for share in (0.0, 0.3, 1.0):
        assert np.abs(of_draws - share * of_draws[-1]).max() <= fit.reach * (1 + 1e-9)


def test_the_trace_of_many_points_grows_in_proportion() -> None:
    roots = ValueRoots(lower=0, upper=1, points=1 << 12)
    whole = RootCovariance(response=roots.response, draw_variance=1.0)
    g, above, exact = roots.response, np.zeros(1 << 12), 0.0
    for x in range(1 << 12):
        here = g[x] * g + np.concatenate([[0.0], above[:-1]])
        exact += float(((np.concatenate([[0.0], here[:-1]]) - above) ** 2).sum())
        above = here
    assert whole.sign_trace == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("kind", range(5))
def test_the_variance_of_a_share_takes_in_that_of_the_rows(kind: int) -> None:
    summary = summaries(4)[kind]
    fit, of_sums = summary.leaf_covariance(NOISE), dense(summary)
    curve = curve_of(summary.grid, np.arange(17.0) * 1000, fit, NOISE)
    shares = np.arange(1, 17) / 16
    weights = np.eye(16) - shares[:, None] * (np.arange(16) == 15)
    expected = np.diag(weights @ of_sums @ weights.T) / 16_000**2
    assert np.allclose(curve.share_variances(shares), expected, atol=1e-20)
    assert curve.share_variances(shares[3:5], np.array([3, 4])) == pytest.approx(expected[3:5])


def test_two_classes_together_have_twice_the_variance() -> None:
    summary = summaries(3)[0]
    fit = summary.leaf_covariance(NOISE)
    one, two = (curve_of(summary.grid, np.arange(9.0), fit, NOISE, times=times) for times in (1, 2))
    assert np.allclose(two.law.below, 2 * one.law.below)
    assert two.law.total == 2 * one.law.total
