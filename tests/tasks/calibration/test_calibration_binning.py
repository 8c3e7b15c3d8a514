"""Buckets of equal depth, and what noise leaves of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import truncnorm

from binormal import NoisyServer, Population, release
from calibration_rows import GRID, crooked, evidence_of
from fedassay.estimation.calibration_error import equi_depth, equi_depth_edges, prefix_of
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Undefined
from fedassay.protocol.vocabulary import NO_NOISE, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration import Calibrate
from fedassay.tasks.calibration.binning import (
    binning_of,
    finest_number,
    posterior_counts,
    supported_scores,
)

COARSE = ScoreHistogram(transform="uniform", height=4)


def cuts_one_by_one(prefix: np.ndarray, buckets: int) -> list[int]:
    """The edges nearest to j/B of the rows, the lower one of two, each with rows below and above it."""
    edges = [0]
    for target in prefix[-1] * np.arange(1, buckets) / buckets:
        below = [edge for edge in range(1, len(prefix) - 1) if prefix[edge] < target]
        above = [edge for edge in range(1, len(prefix) - 1) if prefix[edge] >= target]
        edge = min([*below[-1:], *above[:1]], key=lambda edge: abs(prefix[edge] - target))
        if prefix[edges[-1]] < prefix[edge] < prefix[-1]:
            edges.append(edge)
    return [*edges, len(prefix) - 1]


@given(
    counts=st.lists(st.integers(0, 5), min_size=16, max_size=16),
    buckets=st.lists(st.integers(1, 20), min_size=1),
)
def test_many_binnings_at_once_are_those_of_one_at_a_time(counts: list[int], buckets: list[int]) -> None:
    counts[0] += 1
    evidence = COARSE.read(np.array([*counts, *[0] * 16])).evidence(NO_NOISE)
    prefix = prefix_of(evidence)
    edges, starts = equi_depth(prefix, buckets)
    for number, one in zip(buckets, np.split(edges, starts[1:]), strict=True):
        assert one.tolist() == equi_depth_edges(evidence, number) == cuts_one_by_one(prefix, number)


def noisy(rows: int, *, epsilon: float, prevalence: float = 0.5, seed: int = 0) -> Evidence:
    setting = NoisyServer(epsilon=epsilon).setting()
    histogram, _ = Calibrate().histograms(setting)
    noise, rng = setting.noise(Sum(of=histogram)), np.random.default_rng(seed)
    released = release(histogram, *Population(prevalence).sample(rows, rng), noise=noise, rng=rng)
    return released.value.evidence(noise)


def test_under_noise_too() -> None:
    evidence = noisy(5000, epsilon=0.5)
    for number in (3, 10, 40):
        assert equi_depth_edges(evidence, number) == cuts_one_by_one(prefix_of(evidence), number)


@given(count=st.floats(-50, 200), sigma=st.floats(0.1, 30))
def test_posterior_counts_are_the_means_of_truncated_normals(count: float, sigma: float) -> None:
    found = float(posterior_counts(np.array([count]), np.array([sigma**2]))[0])
    if count > -6 * sigma:  # further out SciPy's own mean loses its digits
        expected = truncnorm.mean(-count / sigma, np.inf, loc=count, scale=sigma)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6 * sigma)
    assert found >= max(0.0, count)


def test_without_noise_counts_are_what_they_are() -> None:
    evidence = evidence_of(*crooked(2000))
    binning = binning_of(evidence, 10)
    assert binning.counts[0].tolist() == binning.positives.tolist()
    assert binning.dispersion == 1
    assert binning.dispersions.tolist() == [1.0] * 10
    assert finest_number(evidence, 77) == 77
    assert supported_scores(evidence).tolist() == np.clip(evidence.scores, 2.3e-16, 1).tolist()


def test_dispersion_is_the_variance_of_fractions_over_the_binomial_one() -> None:
    """Against the variance over draws of the noise alone, in the middle bucket of five."""
    setting = NoisyServer(epsilon=0.5).setting()
    histogram, _ = Calibrate().histograms(setting)
    noise, rng = setting.noise(Sum(of=histogram)), np.random.default_rng(3)
    scores, labels = Population(0.5).sample(3000, rng)
    edges = equi_depth_edges(evidence_of(scores, labels, histogram=histogram), 5)
    inside = slice(edges[2], edges[3])
    fractions = []
    for _ in range(400):
        e = release(histogram, scores, labels, noise=noise, rng=rng).value.evidence(noise)
        fractions.append(e.positives[inside].sum() / e.counts[inside].sum())
    exact = evidence_of(scores, labels, histogram=histogram)
    n, v = exact.counts[inside].sum(), exact.positives[inside].sum() / exact.counts[inside].sum()
    found = 1 + np.var(fractions) / (v * (1 - v) / n)
    binning = binning_of(noisy(3000, epsilon=0.5, seed=5), 5)
    # The relative error of a variance from 400 draws is 7 %; bucket edges move a little with the noise.
    assert binning.dispersions[2] == pytest.approx(found, rel=0.35)


def test_the_noise_decides_how_fine_buckets_may_be() -> None:
    fine, coarse = (finest_number(noisy(20_000, epsilon=epsilon), 256) for epsilon in (2.0, 0.2))
    assert coarse < fine
    with pytest.raises(Undefined, match=r"not enough evidence: .* at least 5"):
        finest_number(noisy(100, epsilon=0.3), 256)


def test_under_noise_no_score_is_used_beyond_the_rows() -> None:
    evidence = noisy(5000, epsilon=1.0)
    used = supported_scores(evidence)
    assert used[0] > evidence.scores[0]
    assert used[-1] < evidence.scores[-1]
    beyond = evidence.counts[evidence.scores < used[0]].sum()
    assert beyond < 0.05 * evidence.rows


def test_centres_are_mean_scores() -> None:
    scores, labels = crooked(4000)
    binning = binning_of(evidence_of(scores, labels), 8)
    ends = GRID.grid.edges[binning.edges]
    means = [scores[(scores >= low) & (scores < high)].mean() for low, high in itertools.pairwise(ends)]
    assert binning.centres == pytest.approx(means, abs=5e-4)
