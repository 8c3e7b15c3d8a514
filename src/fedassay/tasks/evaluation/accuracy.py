"""How large errors will be, before any data: for planning.

Two kinds of statements. `published_rate` and `balancing_buckets` are the orders of magnitude of the paper (Table 1),
without constants. `predict` is quantitative: it builds the histogram that a model of the scores leads one to expect
and asks the estimators themselves for their errors, so prediction and interval cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import logit, ndtr, ndtri

from fedassay.errors import UsageError
from fedassay.protocol import Noise
from fedassay.summaries.grid import Grid
from fedassay.summaries.tree import LeastSquares, Tree
from fedassay.tasks.evaluation.confusion import RATIOS, Confusion, decision_metric
from fedassay.tasks.evaluation.evidence import Evidence
from fedassay.tasks.evaluation.metric import Metric
from fedassay.tasks.evaluation.ranking import auc_influence, auc_noise_trace, roc_auc

Quantity = Literal["decision", "roc_auc", "calibration"]
"""Precision, recall and accuracy at a threshold; the AUC; the calibration error."""

Privacy = Literal["federated", "distributed", "local"]
"""The paper's three models: an exact secure sum, noise shared by the clients, noise in every message."""


def published_rate(
    quantity: Quantity, privacy: Privacy, *, rows: float, epsilon: float = 1.0, buckets: float = 100, height: float = 10
) -> float:
    """The order of the error in Table 1 of Cormode and Markov (2023), for balanced classes, without constants.

    Examples
    --------
    >>> published_rate("roc_auc", "federated", rows=10**5, buckets=100)
    0.0001
    >>> round(published_rate("decision", "distributed", rows=10**6), 6)
    0.0001
    """
    M, e, B, h = rows, epsilon, buckets, height
    rates: Mapping[tuple[Quantity, Privacy], Callable[[], float]] = {
        ("decision", "federated"): lambda: 1 / B,
        ("decision", "distributed"): lambda: (e * M) ** (-2 / 3),
        ("decision", "local"): lambda: e ** (-2 / 3) * M ** (-1 / 3),
        ("roc_auc", "federated"): lambda: B**-2.0,
        ("roc_auc", "distributed"): lambda: (1 / e + 1 / B) / M,
        ("roc_auc", "local"): lambda: h / (e * math.sqrt(M)),
        ("calibration", "federated"): lambda: M ** (-1 / 3),
        ("calibration", "distributed"): lambda: M ** (-1 / 3) + 1 / (e * M ** (2 / 3)),
        ("calibration", "local"): lambda: e**-0.5 * M**-0.25,
    }
    return rates[quantity, privacy]()


def balancing_buckets(quantity: Quantity, privacy: Privacy, *, rows: float, epsilon: float = 1.0) -> float:
    """The number of buckets that balances binning against noise or sampling (Theorems 2, 5-8), without constants.

    Edge case: for an exact sum, decisions and the AUC only gain from more buckets: the answer is infinity.

    Examples
    --------
    >>> round(balancing_buckets("decision", "distributed", rows=10**5))
    2154
    """
    M, e = rows, epsilon
    if quantity == "calibration":
        return math.sqrt(e * math.sqrt(M)) if privacy == "local" else M ** (1 / 3)
    if privacy == "federated":
        return math.inf
    if quantity == "decision":
        return (e * M) ** (2 / 3) if privacy == "distributed" else e ** (2 / 3) * M ** (1 / 3)
    if privacy == "distributed":
        return math.inf  # beyond a constant, buckets neither help nor hurt (Theorem 5)
    return math.sqrt(M) * (math.exp(e / 2) - math.exp(-e / 2))  # sqrt(M/V), V = e^ε/(e^ε - 1)² per level (Theorem 6)


def balancing_height(buckets: float, *, smoothness: float = 1.0) -> int:
    """The height at which B equi-depth buckets are found to a quarter of their weight: h > 2 + log2(B·ℓ) (2.3).

    Examples
    --------
    >>> balancing_height(100)
    9
    """
    return math.floor(2 + math.log2(buckets * smoothness)) + 1


def hanley_mcneil_variance(auc: float, *, positives: float, negatives: float) -> float:
    """The sampling variance of an AUC from its value and the class sizes alone (Hanley and McNeil 1982).

    Assumes negative-exponential scores; `predict` uses the binormal model and the exact influence function instead.

    Examples
    --------
    >>> round(hanley_mcneil_variance(0.8, positives=1000, negatives=1000) ** 0.5, 4)
    0.0099
    """
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = (positives - 1) * (first - auc**2) + (negatives - 1) * (second - auc**2)
    return (auc * (1 - auc) + spread) / (positives * negatives)


def expected_evidence(
    *, rows: float, prevalence: float, auc: float, grid: Grid, tree: Tree, noise: Noise
) -> Evidence:
    """The histogram one expects from calibrated binormal scores with this AUC.

    A latent x is N(0, 1) for negatives and N(δ, 1) for positives, δ = √2 Φ^{-1}(AUC); the score is the probability of
    being positive given x, so its logit is logit(prevalence) + δx - δ²/2.
    """
    if not 0 < prevalence < 1 or not 0.5 < auc < 1 or rows <= 0:
        raise UsageError(
            f"expected data: got {rows} rows, prevalence {prevalence}, AUC {auc}; expected rows above 0, a "
            "prevalence between 0 and 1, an AUC between 0.5 and 1."
        )
    delta = math.sqrt(2) * float(ndtri(auc))
    x = (logit(grid.edges) - float(logit(prevalence)) + delta**2 / 2) / delta
    return Evidence(
        grid=grid,
        fit=LeastSquares(tree=tree, variances=(noise.variance,) * tree.levels),
        positives=rows * prevalence * np.diff(ndtr(x - delta)),
        negatives=rows * (1 - prevalence) * np.diff(ndtr(x)),
        noise=noise,
    )


def predict(
    *,
    rows: float,
    prevalence: float,
    auc: float,
    noise_variance: float,
    widths: tuple[int, ...] = (1,),
    leaves: int = 1024,
    threshold: float = 0.5,
    transform: str = "mixed",
    level: float = 0.95,
) -> dict[str, Metric]:
    """The values, intervals and errors to expect of the AUC and of the metrics at a threshold.

    Parameters
    ----------
    rows, prevalence, auc : what the data are expected to be (calibrated binormal scores).
    noise_variance : of one node of the released tree; 0 without noise.
    widths, leaves, transform : the histogram.
    threshold : of precision, recall, accuracy, specificity and f1.

    A metric without a value says why there will not be enough evidence.

    Examples
    --------
    >>> expected = predict(rows=10**5, prevalence=0.5, auc=0.8, noise_variance=18.0, widths=(1, 16, 256))
    >>> f"{expected['roc_auc'].privacy:.1e}", f"{expected['roc_auc'].sampling:.1e}"
    ('1.2e-04', '1.4e-03')
    """
    if leaves < 4 or leaves & (leaves - 1):
        raise UsageError(f"leaves: got {leaves}, expected a power of two, at least 4.")
    noise = Noise(law="expected", scale=math.sqrt(noise_variance / 2), variance=noise_variance)
    grid = Grid(transform=transform, height=leaves.bit_length() - 1, thresholds=(threshold,))
    tree = Tree(leaves=leaves, widths=widths)
    evidence = expected_evidence(
        rows=rows, prevalence=prevalence, auc=auc, grid=grid, tree=tree, noise=noise
    )
    confusion = Confusion.at(evidence, threshold)
    decisions = {name: decision_metric(confusion, name, level=level) for name in RATIOS}
    return {"roc_auc": _expected_auc(evidence, level), **decisions}


def _expected_auc(evidence: Evidence, level: float) -> Metric:
    metric = roc_auc(evidence, level=level)
    if metric.value is None or evidence.exact:
        return metric
    # The estimator corrects for noise in the counts that it sees; expected counts have none.
    value, by_positive, by_negative = auc_influence(evidence)
    variance = evidence.privacy_variance(by_positive, by_negative) + auc_noise_trace(evidence, value)
    return replace(metric, privacy=math.sqrt(variance))
