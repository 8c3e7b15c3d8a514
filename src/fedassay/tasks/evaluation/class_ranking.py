"""One-vs-rest ranking of a multiclass model: the AUC of each class, and their mean."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, bounded
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator, undefined
from fedassay.estimation.ranking import auc_influence, roc_auc

if TYPE_CHECKING:
    from fedassay.tasks.evaluation.class_evidence import ClassEvidence

NO_RANKINGS = "rankings were not asked for"


def class_auc(evidence: Evidence, *, level: float = LEVEL) -> Metric:
    """The AUC of one class against all others."""
    if evidence.exact and evidence.rows > 0 and evidence.positive_rows == 0:
        return undefined("no row is of this class", level=level)
    if evidence.exact and evidence.rows > 0 and evidence.negative_rows == 0:
        return undefined("every row is of this class", level=level)
    return roc_auc(evidence, level=level)


@estimator
def mean_auc(evidence: ClassEvidence, *, level: float = LEVEL) -> Metric:
    """The mean of the AUCs of the classes that have one.

    * privacy: classes have independent noise.
    * sampling: a row of class j is a positive for j and a negative for all others. The positives of different classes
      are different rows, so their variances V⁺ add up; how a row does as a negative of several classes is not measured
      together, so their deviations √V⁻ are added, and so are the two parts: √ΣV⁺ + Σ√V⁻. This holds whatever the
      dependence (Minkowski's inequality); the interval can be up to about twice as wide as it need be.
    """
    if evidence.rankings is None:
        raise Undefined(NO_RANKINGS)
    used = [(e, m) for e, m in zip(evidence.rankings, evidence.aucs, strict=True) if m.value is not None]
    if not used:
        raise Undefined("no class has an AUC: see the reasons with the classes")
    as_positive, as_negative = 0.0, 0.0
    for ranking, _ in used:
        _, by_positive, by_negative = auc_influence(ranking)
        none = np.zeros_like(by_positive)
        as_positive += max(0.0, ranking.sampling_variance(by_positive, none))
        as_negative += math.sqrt(max(0.0, ranking.sampling_variance(none, by_negative)))
    c = len(used)
    estimate = Estimate(
        value=sum(m.value or 0.0 for _, m in used) / c,
        sampling_variance=((math.sqrt(as_positive) + as_negative) / c) ** 2,
        privacy_variance=sum((m.privacy or 0.0) ** 2 for _, m in used) / c**2,
        discretisation=sum(m.discretisation or 0.0 for _, m in used) / c,
    )
    smallest = [min(e.positive_rows, e.negative_rows) for e, _ in used]
    return bounded(estimate, size=c / sum(1 / size for size in smallest), level=level)
