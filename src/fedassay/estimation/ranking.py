"""Ranking of positives above negatives by score: ROC AUC and average precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import digamma

from fedassay.estimation.evidence import ENOUGH, Evidence, dot
from fedassay.estimation.intervals import Estimate, bounded
from fedassay.estimation.metric import LEVEL, Metric, estimator
from fedassay.protocol.arrays import Floats


@estimator
def roc_auc(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate the probability that a positive row has a higher score than a negative one, ties counting half.

    H = (1/PN) Σ_i p_i (Σ_{j<i} n_j + n_i/2) (Cormode and Markov 2023, Eq. 5).

    * discretisation: ½ Σ p_b n_b/(PN), which holds for every score distribution; the 1/(2B) of Lemma 3 does
      not when scores concentrate or repeat.
    * sampling: the influence function of the binned AUC, which is DeLong's variance.
    * privacy: the numerator is bilinear in two histograms with independent noise, so its variance has an
      exact second-order term; see `auc_privacy_variance`.
    """
    return _auc(evidence, auc_privacy_variance, level=level)


@estimator
def expected_roc_auc(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Predict the result of `roc_auc` where these counts are expected: they have no noise to subtract from its
    variance.

    `sampling` is that of exact counts, which noise does not make uncertain.
    """
    metric = _auc(evidence, expected_auc_noise_variance, level=level)
    _, by_positive, by_negative = auc_influence(evidence)
    exact = Evidence.exactly(edges=evidence.edges, positives=evidence.positives, negatives=evidence.negatives)
    return replace(metric, sampling=math.sqrt(max(0.0, exact.sampling_variance(by_positive, by_negative))))


def _auc(
    evidence: Evidence, noise_variance: Callable[[Evidence, float, Floats, Floats], float], *, level: float
) -> Metric:
    P, N = evidence.require_classes()
    value, by_positive, by_negative = auc_influence(evidence)
    estimate = Estimate(
        value=value,
        sampling_variance=evidence.sampling_variance(by_positive, by_negative),
        privacy_variance=noise_variance(evidence, value, by_positive, by_negative),
        discretisation=auc_binning_bound(evidence),
    )
    return bounded(estimate, size=min(P, N), level=level)


def expected_auc_noise_variance(
    evidence: Evidence, value: float, by_positive: Floats, by_negative: Floats
) -> float:
    """Return the noise variance of an AUC at exact counts: `auc_privacy_variance` before the subtraction."""
    return evidence.privacy_variance(by_positive, by_negative) + auc_noise_trace(evidence, value)


def auc_influence(evidence: Evidence) -> tuple[float, Floats, Floats]:
    """Return the AUC and its derivatives by the leaf counts of positives and of negatives."""
    P, N, p, n = evidence.positive_rows, evidence.negative_rows, evidence.positives, evidence.negatives
    beaten = np.cumsum(n) - n / 2  # negatives below a positive in each leaf
    value = dot(p, beaten) / (P * N)
    beating = P - np.cumsum(p) + p / 2  # positives above a negative in each leaf
    return value, (beaten / N - value) / P, (beating / P - value) / N


def auc_binning_bound(evidence: Evidence) -> float:
    """Return ½ Σ p_b n_b/(PN): no order inside the bins can move the AUC further.

    Under noise this is an unbiased estimate of the bound, because the two classes' noise is independent.
    """
    products = dot(evidence.positives, evidence.negatives)
    return max(0.0, products / (2 * evidence.positive_rows * evidence.negative_rows))


def auc_privacy_variance(evidence: Evidence, value: float, by_positive: Floats, by_negative: Floats) -> float:
    """Return the noise variance of p^T K n/(PN) with K_ij = 1[j<i] + ½·1[i=j] - AUC, estimated without bias.

    With noise covariance C in each class it is (n^T K^T C K n + p^T K C K^T p + tr(K^T C K C))/(PN)². Noisy counts make
    each of the first two terms too large by the third. So the estimate is their value minus the trace.
    """
    if evidence.exact:
        return 0.0
    trace = auc_noise_trace(evidence, value)
    # Only by chance can the difference fall below the trace, which is a part of the true variance.
    return max(evidence.privacy_variance(by_positive, by_negative) - trace, trace)


def auc_noise_trace(evidence: Evidence, value: float) -> float:
    """Return tr(K^T C K C)/(PN)², the variance of noise times noise in an AUC; exact, and what matters at 500 rows.

    K = (½ - AUC) 11^T + ½ S with S antisymmetric, so the cross terms vanish and the trace is
    (½ - AUC)² (1^T C 1)² + ¼ tr(S^T C S C). C is that of the fit: where noise also depends on the
    counts, it is what it would be if rows were spread evenly.
    """
    fit = evidence.fit
    trace = (0.5 - value) ** 2 * fit.total_variance**2 + fit.sign_trace / 4
    return trace / (evidence.positive_rows * evidence.negative_rows) ** 2


@estimator
def average_precision(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """Estimate Σ_b (p_b/P) · T_b/(T_b + F_b), T and F the positives and negatives from bin b up; ties as scikit-learn.

    * discretisation: rows of one bin may be in any order. At worst all negatives of the bin come first and
      the positives follow one by one, at best the positives come first, tied; both have closed forms.
    * under noise the precision of the topmost bins is a ratio of noise. They are merged into one bin that
      holds enough rows, and the binning bound covers what that hides. The noise of a bin also is in all T from
      there down, which would bias the sum of products; see `_noise_bias`.
    """
    P, _ = evidence.require_classes()
    first = _highest_supported_edge(evidence)
    p, n = _merge_top(evidence.positives, first), _merge_top(evidence.negatives, first)
    T, F = np.cumsum(p[::-1])[::-1], np.cumsum(n[::-1])[::-1]
    rows = np.where(T + F > 0, T + F, 1.0)  # only empty bins above all rows have none; they carry no weight
    Q = T / rows
    own = p * F / rows**2
    value = dot(p, Q) / P - _noise_bias(evidence, p, T, F, rows) / P
    by_positive = (Q - value + np.cumsum(own)) / P
    by_negative = -np.cumsum(p * T / rows**2) / P
    unmerge = np.minimum(np.arange(evidence.leaves), first)
    estimate = evidence.estimate(
        value,
        by_positive[unmerge],
        by_negative[unmerge],
        discretisation=_order_bound(evidence, p, n, T, F) / P,
    )
    # Every positive counts itself among the rows above it, which raises its precision by F/(T + F)² on
    # average.
    return bounded(replace(estimate, bias=float(own.sum()) / P), size=P, level=level)


def _highest_supported_edge(evidence: Evidence) -> int:
    """Return the highest edge such that at it and at every lower one, the rows above stand out from the noise."""
    if evidence.exact:
        return evidence.leaves - 1
    noise = evidence.count_noise
    above = (evidence.rows - evidence.positives_below - evidence.negatives_below)[:-1]
    variances = (noise.positives.above + noise.negatives.above)[:-1]
    supported = above >= ENOUGH * np.sqrt(np.maximum(variances, 0.0))
    return len(supported) - 1 if supported.all() else int(np.argmin(supported)) - 1


def _noise_bias(evidence: Evidence, p: Floats, T: Floats, F: Floats, rows: Floats) -> float:
    """Return the mean that noise adds to Σ_b p_b Q(T_b, F_b), to second order, Q = T/(T + F).

    Cov(p_b, T_b) Q_T + ½ p_b (Q_TT Var T_b + Q_FF Var F_b), where T_b and T_{b+1} = T_b - p_b have known
    variances, hence 2 Cov(p_b, T_b) = Var p_b + Var T_b - Var T_{b+1}.
    """
    if evidence.exact:
        return 0.0
    noise, bins = evidence.count_noise, len(p)
    of_T, of_F = noise.positives.above[:bins], noise.negatives.above[:bins]
    of_p = np.append(np.full(bins - 1, evidence.fit.leaf_variance), of_T[-1])
    with_T = (of_p + of_T - np.append(of_T[1:], 0.0)) / 2
    return float((with_T * F / rows**2 + p * (T * of_F - F * of_T) / rows**3).sum())


def _merge_top(counts: Floats, first: int) -> Floats:
    """Return the counts with everything from bin `first` up in one bin."""
    return np.append(counts[:first], counts[first:].sum())


def _order_bound(evidence: Evidence, p: Floats, n: Floats, T: Floats, F: Floats) -> float:
    """Bound the change of Σ p_b T_b/(T_b + F_b) by the order inside the bins.

    Under noise, to second order in all bins but the topmost: each term is a product whose noise can be corrected,
    as p·n has independent factors and p² - p is too large by the variance of p. The topmost bin is a merged one. It
    has no rows above it, so second order is not enough there, and its count stands out from the noise: its terms are
    exact, p·n/(p + n) upwards.
    """
    if evidence.exact:
        return max(_order_range(p, n, T, F))
    safe, variance = np.maximum(T + F, 1.0), evidence.fit.leaf_variance
    up, down = p * n * T / safe**2, (p**2 - variance - p) * F / (2 * safe**2)
    top = np.maximum(0.0, [p[-1:], n[-1:]])
    top_up, top_down = _order_range(*top, *top)
    return max(0.0, float(up[:-1].sum()) + top_up, float(down[:-1].sum()) + top_down)


def _order_range(p: Floats, n: Floats, T: Floats, F: Floats) -> tuple[float, float]:
    """Return how far Σ p_b T_b/(T_b + F_b) is below that of the best order inside the bins, and above the worst."""
    used = p > 0
    p, n, T, F = (x[used] for x in (p, n, T, F))
    rows = T + F
    here = p * T / rows
    best = p * T / (rows - n)
    # Σ_{i=1..p} (T - p + i)/(T - p + i + F) in terms of the digamma function.
    worst = p - F * (digamma(rows + 1) - digamma(rows - p + 1))
    return float((best - here).sum()), float((here - worst).sum())
