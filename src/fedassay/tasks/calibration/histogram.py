"""Histogram binning: the fraction of positives in each of B buckets of equal depth (Zadrozny and Elkan 2001)."""

from __future__ import annotations

import numpy as np

from fedassay.errors import UsageError
from fedassay.estimation.evidence import Evidence
from fedassay.summaries.maps import Steps
from fedassay.tasks.calibration.binning import Binning, binning_of, finest_number
from fedassay.tasks.calibration.fitted import Fitted


def histogram_binning(evidence: Evidence, *, bins: int | None = None) -> Fitted:
    """The step function of bucket fractions.

    By default B = M^{1/3} for M rows, which balances the two errors of a bucket, the slope within it and the
    sampling error (Cormode and Markov 2023, Theorem 7). Under noise B is at most the number at which noise
    equals sampling error, and counts are replaced by what is known about them (`posterior_counts`), after
    summing over the bucket.

    Edge cases: without noise a bucket with one class only says 0 or 1, as published.
    """
    evidence.require_classes()
    if bins is not None and bins < 1:
        raise UsageError(f"bins: got {bins}, expected at least 1.")
    if bins is None:
        bins = finest_number(evidence, max(1, round(evidence.rows ** (1 / 3))))
    return _fitted(binning_of(evidence, bins))


def _fitted(binning: Binning) -> Fitted:
    m, n = binning.counts
    edges = binning.evidence.edges[binning.edges[1:-1]]
    return Fitted(
        method="histogram",
        map=Steps.merged(edges, m / (m + n)),
        parameters={"buckets": binning.number},
        optimism=float(np.sum(binning.dispersions)),
    )
