"""The truth about drawn rows, and how far evidence is from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.common import DEFAULT, PUBLISHED, THRESHOLDS, Case, Floats, Judge, Key, Sample
from experiments.published import bucket_auc, quantile_edges, uniform_edges
from fedassay.estimation.calibration_error import Buckets
from fedassay.estimation.confusion import Confusion
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.ranking import auc_influence
from fedassay.estimation.shares import Ratio
from fedassay.protocol.metrics import METRICS

DECISIONS = ("precision", "recall", "accuracy")
BUCKETS = (4, 8, 16, 32, 64, 128, 256, 512)
BINS = (5, 10, 15, 20, 30, 50)
AUC_BUCKETS = 100
"""Quantile buckets of the published AUC where their number is not what is varied."""


# --- exact ------------------------------------------------------------------------------------------------------


def exact_decisions(sample: Sample) -> dict[str, Floats]:
    """Precision, recall and accuracy of ``score >= T`` at each of the thresholds."""
    place = np.searchsorted(THRESHOLDS, sample.scores, side="right")
    counts = np.bincount(2 * place + sample.labels, minlength=2 * len(THRESHOLDS) + 2).reshape(-1, 2)
    below = np.cumsum(counts, axis=0)[:-1]
    (TN, FN), (N, P) = below.T, counts.sum(axis=0)
    return _decisions(np.stack([P - FN, FN, N - TN, TN], axis=1).astype(np.float64))


def exact_auc(sample: Sample) -> float:
    """The AUC, ties counting half."""
    size = int(sample.ranks.max()) + 1
    p = np.bincount(sample.ranks[sample.labels == 1], minlength=size)
    n = np.bincount(sample.ranks[sample.labels == 0], minlength=size)
    return float(p @ (np.cumsum(n) - n / 2) / (p.sum() * n.sum()))


def exact_calibration_error(sample: Sample, buckets: int) -> float:
    """The calibration error over buckets of equally many rows."""
    gaps = (sample.labels - sample.scores)[np.argsort(sample.scores, kind="stable")]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, buckets)) / len(sample))


# --- estimated --------------------------------------------------------------------------------------------------


def decisions_at(evidence: Evidence, thresholds: Sequence[float]) -> dict[str, Floats]:
    """The same from evidence, at the edges nearest to these thresholds."""
    return _decisions(np.array([Confusion.at(evidence, threshold).counts for threshold in thresholds]))


def auc(evidence: Evidence, case: Case) -> float:
    """The AUC: as published from quantile buckets, ours from all bins."""
    if case.variant == PUBLISHED:
        return _share(bucket_auc(evidence, quantile_edges(evidence, AUC_BUCKETS)))
    return _share(auc_influence(evidence)[0])


def calibration_error(evidence: Evidence, buckets: int) -> float:
    """The calibration error over buckets of equal depth."""
    table = Buckets(evidence=evidence, edges=tuple(quantile_edges(evidence, buckets)))
    return _share(float(np.abs(table.gaps).sum()) / max(1.0, evidence.rows))


def _decisions(counts: Floats) -> dict[str, Floats]:
    """Ratios of (TP, FN, FP, TN), kept in [0, 1]; 0 where nothing is counted, as in scikit-learn."""
    shown = {}
    for name in DECISIONS:
        share = METRICS[name].estimate
        assert isinstance(share, Ratio)
        numerator, denominator = counts @ share.numerator, counts @ share.denominator
        ratio = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
        shown[name] = np.clip(ratio, 0.0, 1.0)
    return shown


def _share(value: float) -> float:
    """In [0, 1]: nobody would believe anything else, whatever the noise."""
    return min(1.0, max(0.0, value)) if np.isfinite(value) else 0.5


# --- judges -----------------------------------------------------------------------------------------------------


def of_metrics(sample: Sample) -> Judge:
    """Errors of precision, recall and accuracy (one per threshold) and of the AUC."""
    truth, area = exact_decisions(sample), exact_auc(sample)

    def judge(evidence: Evidence, case: Case) -> Mapping[Key, Sequence[float]]:
        seen = decisions_at(evidence, THRESHOLDS)
        errors: dict[Key, Sequence[float]] = {
            (name,): np.abs(seen[name] - truth[name]).tolist() for name in DECISIONS
        }
        return {**errors, ("roc_auc",): [abs(auc(evidence, case) - area)]}

    return judge


def of_buckets(sample: Sample) -> Judge:
    """Errors of the AUC from B buckets, uniform and quantile; ours by default has no buckets."""
    area = exact_auc(sample)

    def judge(evidence: Evidence, case: Case) -> Mapping[Key, Sequence[float]]:
        if case.variant == DEFAULT:
            return {("all bins", 0): [abs(auc(evidence, case) - area)]}
        return {
            (kind, buckets): [abs(_share(bucket_auc(evidence, edges(evidence, buckets))) - area)]
            for kind, edges in (("uniform", uniform_edges), ("quantile", quantile_edges))
            for buckets in BUCKETS
        }

    return judge


def of_calibration_error(sample: Sample) -> Judge:
    """Errors of the estimated calibration error of the model itself, over several numbers of bins."""
    truth = {bins: exact_calibration_error(sample, bins) for bins in BINS}

    def judge(evidence: Evidence, case: Case) -> Mapping[Key, Sequence[float]]:
        return {("ece", bins): [abs(calibration_error(evidence, bins) - truth[bins])] for bins in BINS}

    return judge
