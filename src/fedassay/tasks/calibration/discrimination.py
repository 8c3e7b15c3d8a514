"""The ROC AUC of calibrated scores. A map that never falls keeps it, but for new ties."""

from __future__ import annotations

import numpy as np

from fedassay.estimation import ranking
from fedassay.estimation.evidence import dot
from fedassay.estimation.intervals import bounded
from fedassay.estimation.metric import LEVEL, Metric, estimator
from fedassay.tasks.calibration.recalibrated import Recalibrated


@estimator
def roc_auc(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The probability that a positive row gets the higher calibrated score, ties counting half.

    Leaves with equal scores are compared as one. In leaves where all rows get the same score ties are real,
    so the binning bound counts the other leaves only. The noise is propagated to first order, which
    overstates its variance by the second-order term that `evaluation.ranking` removes.
    """
    evidence = seen.evidence
    P, N = evidence.require_classes()
    if seen.order_kept:
        return ranking.roc_auc(evidence, level=level)
    p, n = seen.by_group(evidence.positives), seen.by_group(evidence.negatives)
    beaten, beating = np.cumsum(n) - n / 2, P - np.cumsum(p) + p / 2
    value = dot(p, beaten) / (P * N)
    loose = np.where(seen.tied, 0.0, evidence.positives)
    estimate = evidence.estimate(
        value,
        (beaten[seen.groups] / N - value) / P,
        (beating[seen.groups] / P - value) / N,
        discretisation=max(0.0, dot(loose, evidence.negatives) / (2 * P * N)),
    )
    return bounded(estimate, size=min(P, N), level=level)
