"""The probabilities of Skellam noise in log space, far into the tails."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ive

Reals = np.ndarray[tuple[int], np.dtype[np.float64]]


def log_probabilities(variance: float, reach: int) -> Reals:
    """log P(x) for x = -reach .. reach: P(x) = exp(-v) I_|x|(v), by the continued fraction of I_n/I_(n-1)."""
    top = reach + 60 + int(3 * variance)
    ratio, ratios = 0.0, np.empty(reach)
    for n in range(top, 0, -1):
        ratio = 1 / (2 * n / variance + ratio)
        if n <= reach:
            ratios[n - 1] = ratio
    half = math.log(float(ive(0, variance))) + np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    return np.concatenate([half[:0:-1], half])
