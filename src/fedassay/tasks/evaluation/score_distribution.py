"""How scores are distributed in each class, in few buckets, to be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from fedassay.estimation.evidence import Evidence, Floats, plausible
from fedassay.estimation.metric import Undefined

BUCKETS = (40, 20, 10, 5)
"""How many buckets there may be; under noise the first number that is `CLEAR`, else the last."""

CLEAR = 0.25
"""The noise of a bucket, as a share of the rows it would hold if all held the same, up to which shapes can be seen."""

CROWDED = 0.1
"""If nine rows of ten have scores within so small a range, equal buckets would show one column."""


def score_distribution(evidence: Evidence) -> dict[str, Any]:
    """Rows of each class in some 40 buckets of the score: ``edges``, ``positives``, ``negatives``.

    ``spacing`` is ``uniform``, or ``logit`` where nearly all scores crowd in a small range; edges are those of the grid
    that are nearest. Where there is ``noise``, it holds the standard deviation of each count, and there are
    fewer buckets if it would drown 40 of them. Without enough rows of a class the lists are empty, with a ``reason``.

    Guarantee: counts are sums of released ones, so nothing more is released. They are not negative and add up to
    the rows of the class: under noise, the rows below each edge are made monotone (isotonic regression), which
    brings none of them farther from the truth than noise has brought the worst. For the eye only: no metric is
    computed from them.

    Examples
    --------
    >>> from fedassay.protocol import NO_NOISE
    >>> from fedassay.summaries.score_histogram import ScoreHistogram
    >>> summary = ScoreHistogram(transform="uniform", height=2)
    >>> released = summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0]))
    >>> found = score_distribution(released.evidence(NO_NOISE))
    >>> found["edges"], found["positives"], found["negatives"]
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 1.0, 2.0, 3.0], [4.0, 0.0, 1.0, 0.0])
    """
    try:
        P, N = evidence.require_classes()
    except Undefined as error:
        nothing: dict[str, Any] = {"spacing": "uniform", "edges": [], "positives": [], "negatives": []}
        return {**nothing, "noise": None, "reason": str(error)}
    crowd = _crowd(evidence)
    for buckets in BUCKETS:
        places = _places(evidence, buckets, crowd)
        deviations = _deviations(evidence, places)
        if deviations.mean() <= CLEAR * min(P, N) / buckets:
            break
    counts = (plausible(below[places]) for below in (evidence.positives_below, evidence.negatives_below))
    positives, negatives = (count.tolist() for count in counts)
    noise = {"positives": deviations[0].tolist(), "negatives": deviations[1].tolist()}
    return {
        "spacing": "uniform" if crowd is None else "logit",
        "edges": evidence.edges[places].tolist(),
        "positives": positives,
        "negatives": negatives,
        "noise": None if evidence.exact else noise,
    }


def _crowd(evidence: Evidence) -> tuple[float, float] | None:
    """The logits between which nearly all scores are, if these crowd."""
    below = np.concatenate([[0.0], np.cumsum(plausible(np.concatenate([[0.0], np.cumsum(evidence.counts)])))])
    shares = below / below[-1]
    edges = evidence.edges
    low, high = (float(np.interp(share, shares, edges)) for share in (0.05, 0.95))
    if high - low >= CROWDED:
        return None
    inner = edges[1:-1]
    ends = (np.interp(share, shares, edges) for share in (0.002, 0.998))
    first, last = (float(logit(np.clip(end, inner[0], inner[-1]))) for end in ends)
    return first, max(last, first + 1.0)


def _places(evidence: Evidence, buckets: int, crowd: tuple[float, float] | None) -> NDArray[np.int64]:
    """The edges of the grid that are nearest to the wanted ones, both ends among them, each once."""
    wanted = (
        np.linspace(0, 1, buckets + 1)[1:-1] if crowd is None else expit(np.linspace(*crowd, buckets - 1))
    )
    inner = sorted({evidence.nearest_edge(float(edge)) for edge in wanted} - {0})
    return np.array([0, *inner, evidence.leaves], dtype=np.int64)


def _deviations(evidence: Evidence, places: NDArray[np.int64]) -> Floats:
    """The standard deviation that noise gives to the rows of each bucket: positives, then negatives."""
    buckets = len(places) - 1
    if evidence.exact:
        return np.zeros((2, buckets))
    inside = np.repeat(np.arange(buckets), np.diff(places)) == np.arange(buckets)[:, None]
    none = np.zeros(evidence.leaves)
    # One variance at a time: their covariances, which nobody asks for, would take ten times as long.
    positives = [evidence.privacy_variance(rows, none) for rows in inside.astype(np.float64)]
    negatives = [evidence.privacy_variance(none, rows) for rows in inside.astype(np.float64)]
    return np.sqrt([positives, negatives])
