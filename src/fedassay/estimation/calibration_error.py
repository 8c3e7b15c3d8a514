"""How far scores are from frequencies: expected calibration error and the Hosmer-Lemeshow test."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import chdtrc

from fedassay.estimation.buckets import Buckets, equi_depth_edges, uniform_edges
from fedassay.estimation.evidence import ENOUGH, Evidence, Floats
from fedassay.estimation.intervals import Estimate, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator


@estimator
def expected_calibration_error(evidence: Evidence, *, buckets: int = 10, level: float = LEVEL) -> Metric:
    """The weighted mean gap between frequency and mean score over equi-depth buckets (Naeini et al. 2015)."""
    evidence.require_rows()
    edges = tuple(equi_depth_edges(evidence, buckets))
    return _calibration_error(Buckets(evidence=evidence, edges=edges), level=level)


@estimator
def expected_calibration_error_uniform(
    evidence: Evidence, *, buckets: int = 10, level: float = LEVEL
) -> Metric:
    """The same over buckets of equal width, [j/B, (j+1)/B)."""
    evidence.require_rows()
    return _calibration_error(
        Buckets(evidence=evidence, edges=tuple(uniform_edges(evidence, buckets))), level=level
    )


@estimator
def expected_error_of_calibrated(evidence: Evidence, *, buckets: int = 10, level: float = LEVEL) -> Metric:
    """What `expected_calibration_error` will show of a calibrated model where these counts are expected.

    There is no gap, so the estimate is the mean of Σ|e_j|, all of it error. The interval is the usual one, around this
    value.
    """
    evidence.require_rows()
    table = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, buckets)))
    sampling, noise = table.share_sampling_covariance, table.share_noise_covariance
    centre, spread = sum_of_absolute_values(sampling + noise)
    from_noise = float(np.trace(noise) / np.trace(sampling + noise))
    estimate = Estimate(
        value=centre,
        sampling_variance=spread * (1 - from_noise),
        privacy_variance=spread * from_noise,
        discretisation=float(table.expected_bound.sum() / evidence.rows),
    )
    half = centre + z_value(level) * estimate.standard_error + estimate.discretisation
    value = min(1.0, centre)
    return estimate.metric(value, (max(0.0, value - half), min(1.0, value + half)), level=level)


def _calibration_error(buckets: Buckets, *, level: float) -> Metric:
    """ECE = Σ_j |S_j| with S_j = D_j/n, and an interval that stays honest near zero.

    The estimate is Σ |S_j + e_j|. Where a gap's sign is certain (|S_j| above a simultaneous band) the error
    is linear in e_j; elsewhere it is at most |e_j|. So the error is at most |Z + Σ_uncertain |e_j||, Z the
    linear part, and the half-width is the mean plus z standard deviations of that sum. With all signs
    certain this is the ordinary delta interval; near zero, where the delta method covers 3 % of the time, it
    is conservative.
    """
    sampling, noise = buckets.share_sampling_covariance, buckets.share_noise_covariance
    shares, both = buckets.shares, sampling + noise
    band = z_value(1 - (1 - level) / buckets.number) * np.sqrt(np.maximum(np.diag(both), 0.0))
    signs = np.where(np.abs(shares) > band, np.sign(shares), 0.0)
    uncertain = np.ix_(signs == 0, signs == 0)
    centre, spread = sum_of_absolute_values(both[uncertain])
    from_noise = float(np.trace(noise[uncertain]) / np.trace(both[uncertain])) if spread > 0 else 0.0
    estimate = Estimate(
        value=float(np.abs(shares).sum()),
        sampling_variance=float(signs @ sampling @ signs) + spread * (1 - from_noise),
        privacy_variance=float(signs @ noise @ signs) + spread * from_noise,
        discretisation=float(buckets.expected_bound.sum() / buckets.evidence.rows),
    )
    half = centre + z_value(level) * estimate.standard_error + estimate.discretisation
    value = min(1.0, estimate.value)
    interval = max(0.0, value - half), min(1.0, value + half)
    metric = estimate.metric(value, interval, level=level)
    return replace(metric, details={"debiased_squared": debiased_squared_error(buckets)})


def sum_of_absolute_values(covariance: Floats) -> tuple[float, float]:
    """Mean and variance of Σ|e_j| for centred normal e with this covariance.

    E|e_j| = σ_j √(2/π), and Cov(|e_i|, |e_j|) = (2/π) σ_i σ_j (√(1-ρ²) + ρ arcsin ρ - 1) at correlation ρ.

    Examples
    --------
    >>> mean, variance = sum_of_absolute_values(np.array([[4.0]]))
    >>> round(mean, 4), round(variance, 4)
    (1.5958, 1.4535)
    """
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(deviations, deviations)
    rho = np.clip(covariance / np.where(scale > 0, scale, 1.0), -1.0, 1.0)
    joint = scale * (np.sqrt(1 - rho**2) + rho * np.arcsin(rho) - 1)
    return math.sqrt(2 / math.pi) * float(deviations.sum()), 2 / math.pi * float(joint.sum())


def debiased_squared_error(buckets: Buckets) -> float:
    """Σ_j w_j (d_j² - v_j): the squared calibration error without the part that errors alone would give.

    w_j is a bucket's share of rows, d_j its gap, v_j the error variance of d_j (sampling and privacy). Its
    expectation is the true value, so it may be negative near zero. Buckets whose rows drown in noise are
    left out.
    """
    n, rows = buckets.evidence.rows, buckets.rows
    variances = np.diag(buckets.share_sampling_covariance) + np.diag(buckets.share_noise_covariance)
    used = (rows > 0) & (rows >= ENOUGH * np.sqrt(buckets.row_noise_variances))
    return float(((buckets.shares**2 - variances)[used] * n / rows[used]).sum())


@estimator
def hosmer_lemeshow(evidence: Evidence, *, groups: int = 10, level: float = LEVEL) -> Metric:
    """The Hosmer-Lemeshow test of a frozen model on new rows, with the p-value of the null *with* the noise.

    X² = D^T V^{-1} D, where D_j = Σ(y - s) over an equi-depth, half-open group and V = diag(n_j π_j (1-π_j))
    plus the privacy covariance of D. Under calibration X² is χ² with one degree of freedom per group; the
    classical "minus two" is for the rows the model was fitted on. Without noise X² is the classical
    statistic. A value but no interval: it is a test.
    """
    evidence.require_rows()
    table = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, groups)))
    for rows, variance in zip(table.rows, table.row_noise_variances, strict=True):
        evidence.require("rows in a group", float(rows), float(variance))
    binomial = table.expected * (1 - table.expected / table.rows)
    if np.any(binomial <= 0):
        raise Undefined("not enough evidence: under privacy noise a group has no variance")
    V = np.diag(binomial) + table.gap_noise_covariance
    weights = np.linalg.solve(V, table.gaps)
    statistic = float(table.gaps @ weights)
    # To first order, an expected count moves the statistic through its gap and through its variance.
    by_expected = 2 * np.abs(weights) + weights**2 * np.abs(1 - 2 * table.expected / table.rows)
    return Metric(
        value=statistic,
        interval=None,
        level=level,
        discretisation=float(by_expected @ table.expected_bound),
        details={
            "degrees_of_freedom": table.number,
            "p_value": float(chdtrc(table.number, statistic)),
            "groups": table.number,
        },
    )
