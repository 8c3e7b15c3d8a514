"""Isotonic regression: the non-decreasing map nearest to the labels (Zadrozny and Elkan 2002)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.estimation.evidence import Evidence, Floats
from fedassay.summaries.maps import Points
from fedassay.tasks.calibration.binning import Binning, Indices, binning_of, finest_number
from fedassay.tasks.calibration.fitted import Fitted


def isotonic(evidence: Evidence) -> Fitted:
    """Pool adjacent violators over the leaves, straight lines between them as in scikit-learn.

    Without noise it equals scikit-learn's ``IsotonicRegression(out_of_bounds="clip")`` on the binned scores;
    its first and last block may say 0 or 1. Under noise, leaves are merged first into as many buckets as the
    noise allows, and each pooled block says what is known about its counts: blocks are large, so noise that
    looks like structure is averaged away.
    """
    evidence.require_classes()
    return _exact(evidence) if evidence.exact else _noisy(evidence)


def _exact(evidence: Evidence) -> Fitted:
    used = np.flatnonzero(evidence.counts)
    values, blocks = _pool(evidence.positives[used] / evidence.counts[used], evidence.counts[used])
    return _fitted(evidence.scores[used], values, blocks, optimism=float(len(blocks) - 1))


def _noisy(evidence: Evidence) -> Fitted:
    binning = binning_of(evidence, finest_number(evidence, evidence.leaves))
    rows = np.maximum(binning.positives + binning.negatives, 1.0)
    _, blocks = _pool(binning.positives / rows, rows)
    pooled = Binning(evidence=evidence, edges=binning.edges[blocks])
    m, n = pooled.counts
    # What is known about the counts of a block is not always ordered like the counts: one more pass.
    ordered, _ = _pool(m / (m + n), m + n)
    values = np.repeat(ordered, np.diff(blocks))
    return _fitted(binning.centres, values, blocks, optimism=float(np.sum(pooled.dispersions)))


def _pool(values: Floats, weights: Floats) -> tuple[Floats, Indices]:
    """The non-decreasing values nearest to these, and where each block of equal ones begins (and the end)."""
    pooled = isotonic_regression(values, weights=weights)
    return np.asarray(pooled.x), np.asarray(pooled.blocks, dtype=np.int64)


def _fitted(x: Floats, y: Floats, blocks: Indices, *, optimism: float) -> Fitted:
    """Straight lines join the last point of a block and the first of the next; points between are redundant."""
    ends = np.unique(np.concatenate([blocks[:-1], blocks[1:] - 1]))
    x, y = x[ends], y[ends]
    distinct = np.concatenate([[True], np.diff(x) > 0])
    return Fitted(
        method="isotonic",
        map=Points(scores=tuple(x[distinct].tolist()), values=tuple(y[distinct].tolist())),
        parameters={"blocks": len(blocks) - 1},
        optimism=optimism,
    )
