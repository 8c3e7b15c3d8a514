"""How far the probabilities of a multiclass model are from frequencies, in bins of fixed width."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedassay.estimation.intervals import Estimate, z_value
from fedassay.estimation.metric import Metric

Floats = NDArray[np.float64]

SHARED_ROWS = 2.0
"""By how much errors of different classes, which come from the same rows, can enlarge the variance of their sum.

Let s be the signs with which a row's classes count, Y the class of the row, drawn with the true probabilities q, and Y'
an independent copy. Then Var(s_Y) = ½ E(s_Y - s_Y')² <= E[(s_Y² + s_Y'²) 1(Y ≠ Y')] = 2 Σ_j s_j² q_j(1 - q_j): at most
twice the sum of the variances of the single classes. With two classes, which say the same, it is reached.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaps:
    """Sums of p - 1[y = j] over the rows of each bin; one line per class, or a single one.

    Parameters
    ----------
    gaps, squares : the sums, and those of the squares.
    noise : the variance that privacy adds to each gap.
    rows, noise_of_rows : n and its privacy variance.
    resolution : how far rounding can move the number of a row.
    """

    gaps: Floats
    squares: Floats
    noise: float
    rows: float
    noise_of_rows: float
    resolution: float

    @property
    def shares(self) -> Floats:
        """S = gaps/n."""
        return self.gaps / self.rows

    @property
    def second_moments(self) -> Floats:
        """The mean squares; under noise at least what the shares imply."""
        return np.maximum(self.squares / self.rows, self.shares**2)


def calibration_error(gaps: Gaps, *, level: float) -> Metric:
    """The mean over classes of Σ_m |S_m|, with an interval that stays honest near zero.

    The estimate is Σ |S + e| with errors e of mean zero, so that on average it is never too small, and too large by at
    most Σ E|e| = √(2/π) Σ σ; where the sign of a gap is certain (|S| above a simultaneous band), not at all. The lower
    end therefore allows for this `excess` (a field of the metric: what errors alone would show) and the upper end need
    not. Var|S + e| <= Var e, whatever S is. Errors of different classes are combined with `SHARED_ROWS`.
    """
    S, A, n = gaps.shares, gaps.second_moments, gaps.rows
    classes, shared = len(S), SHARED_ROWS if len(S) > 1 else 1.0
    sampling = (A - S**2) / n
    noise = (gaps.noise + S**2 * gaps.noise_of_rows) / n**2
    certain = np.abs(S) > z_value(1 - (1 - level) / S.size) * np.sqrt(sampling + noise)
    linear = np.where(certain, np.abs(S), 0.0).sum(axis=1)
    of_linear = float((np.where(certain, A, 0.0).sum(axis=1) - linear**2).sum()) / n
    noise_of_linear = (np.count_nonzero(certain) * gaps.noise + linear.sum() ** 2 * gaps.noise_of_rows) / n**2
    estimate = Estimate(
        value=float(np.abs(S).sum()) / classes,
        sampling_variance=shared * (of_linear + float(sampling[~certain].sum())) / classes**2,
        privacy_variance=(noise_of_linear + float(noise[~certain].sum())) / classes**2,
        discretisation=gaps.resolution,
    )
    excess = math.sqrt(2 / math.pi) * float(np.sqrt(sampling + noise)[~certain].sum()) / classes
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    value = min(1.0, estimate.value)
    metric = estimate.metric(value, (max(0.0, value - excess - half), min(1.0, value + half)), level=level)
    return replace(metric, details={"excess": excess})
