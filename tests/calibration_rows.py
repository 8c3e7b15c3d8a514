"""Rows and evidence for the tests of calibration."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from binormal import release
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.vocabulary import NO_NOISE, Noise
from fedassay.summaries.score_histogram import ScoreHistogram

GRID = ScoreHistogram(transform="mixed", height=12, thresholds=tuple(j / 10 for j in range(1, 10)))


def crooked(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are too extreme and too high."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-0.3, 1.2, rows)
    labels = (rng.random(rows) < expit(x)).astype(np.int8)
    return expit(1.5 * x + 0.4), labels


def evidence_of(
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    histogram: ScoreHistogram = GRID,
    noise: Noise = NO_NOISE,
    seed: int = 0,
) -> Evidence:
    released = release(histogram, scores, labels, noise=noise, rng=np.random.default_rng(seed))
    return released.value.evidence(noise)


def binned_rows(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """The rows that the evidence stands for: each at the middle of its bin."""
    positives, negatives = evidence.positives.astype(int), evidence.negatives.astype(int)
    scores = np.concatenate([np.repeat(evidence.scores, positives), np.repeat(evidence.scores, negatives)])
    return scores, np.repeat([1, 0], [positives.sum(), negatives.sum()])
