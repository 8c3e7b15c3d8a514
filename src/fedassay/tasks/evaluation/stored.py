"""A released histogram inside a result's JSON, and metrics at thresholds chosen after the release.

The release has been paid for; computing something new from it is free. Everything needed is in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedassay.errors import UsageError
from fedassay.estimation.confusion import Confusion, decision_metrics
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import LEVEL, Metric
from fedassay.estimation.tree import Tree
from fedassay.protocol.metrics import of_part
from fedassay.protocol.vocabulary import Noise, Total, Vector
from fedassay.summaries.grid import Grid
from fedassay.summaries.score_histogram import LabelledHistogram


def histogram_to_json(histogram: LabelledHistogram, noise: Noise) -> dict[str, Any]:
    """Return the release as JSON: grid, levels, noise, and the nodes that are not zero in both classes."""
    used = np.flatnonzero((histogram.positives != 0) | (histogram.negatives != 0))
    grid = histogram.grid
    return {
        "transform": grid.transform,
        "height": grid.height,
        "thresholds": list(grid.thresholds),
        "reach": grid.reach,
        "widths": list(histogram.tree.widths),
        "multipliers": list(histogram.multipliers),
        "noise": noise.to_message(),
        "nodes": used.tolist(),
        "positives": histogram.positives[used].tolist(),
        "negatives": histogram.negatives[used].tolist(),
    }


def evidence_from_json(results: Mapping[str, Any]) -> Evidence:
    """Restore the evidence behind the `results` of an evaluation."""
    try:
        stored = results["histogram"]
        grid = Grid(
            transform=stored["transform"],
            height=stored["height"],
            thresholds=tuple(stored["thresholds"]),
            reach=stored["reach"],
        )
        tree = Tree(leaves=grid.leaves, widths=tuple(stored["widths"]))
        nodes = np.asarray(stored["nodes"], dtype=np.int64)
        positives, negatives = (_spread(tree, nodes, stored[name]) for name in ("positives", "negatives"))
        noise = Noise.from_message(stored["noise"])
        multipliers = tuple(stored["multipliers"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError(
            "results: expected the `results` of an evaluation with its `histogram`; got something else "
            f"({type(error).__name__}: {error})."
        ) from error
    histogram = LabelledHistogram(
        grid=grid, tree=tree, multipliers=multipliers, positives=positives, negatives=negatives
    )
    return histogram.evidence(noise)


def metrics_at(results: Mapping[str, Any], threshold: float, *, level: float = LEVEL) -> dict[str, Any]:
    """Compute the metrics of ``score >= threshold`` from a stored result, at a threshold chosen after the release.

    They hold at the nearest edge of the grid, which the answer names as ``applied``. Free: post-processing.

    Parameters
    ----------
    results : the ``results`` object of an evaluation's JSON.
    threshold : any number in [0, 1].
    level : the confidence level of the intervals.
    """
    return threshold_entry(evidence_from_json(results), threshold, level=level)


def threshold_entry(evidence: Evidence, threshold: float, *, level: float) -> dict[str, Any]:
    """Return one entry of the ``thresholds`` list of a result."""
    confusion = Confusion.at(evidence, threshold)
    metrics = decision_metrics(confusion, level=level)
    return {
        "threshold": float(threshold),
        "applied": confusion.threshold,
        **{name: metric.to_json() for name, metric in metrics.items()},
    }


def _spread(tree: Tree, nodes: Vector, counts: list[float]) -> Total:
    values = np.asarray(counts)
    vector: Total = np.zeros(tree.length, dtype=np.float64 if values.dtype.kind == "f" else np.int64)
    vector[nodes] = values
    return vector


# --- metrics at many thresholds -----------------------------------------------------------------------------

THRESHOLDS = tuple(percent / 100 for percent in range(1, 100))


def operating_points(evidence: Evidence, *, level: float = LEVEL) -> dict[str, Any]:
    """Compute the metrics of the decision ``score >= threshold`` at 99 thresholds, each with its own interval.

    Intervals are for one threshold at a time: choosing the best of 99 looks at all of them. The curves with bands
    for all thresholds at once are in `curves`.

    Each threshold is applied at the nearest edge of the grid, which ``applied`` names; the numbers are those of
    `threshold_entry` there. Each metric is a mapping of the lists ``value``, ``lower`` and ``upper``, None where
    it is undefined. ``predicted_positives`` is the share of the rows at or above the threshold.

    Free: computed from a release.

    Examples
    --------
    >>> import numpy as np
    >>> from fedassay.protocol.vocabulary import NO_NOISE
    >>> from fedassay.summaries.score_histogram import ScoreHistogram
    >>> summary = ScoreHistogram(transform="uniform", height=2)
    >>> evidence = summary.read(np.array([0, 1, 2, 3, 4, 0, 1, 0])).evidence(NO_NOISE)
    >>> points = operating_points(evidence)
    >>> points["thresholds"][49], points["applied"][49], round(points["precision"]["value"][49], 3)
    (0.5, 0.5, 0.833)
    """
    found = [Confusion.at(evidence, threshold) for threshold in THRESHOLDS]

    def lists(estimate: Callable[..., Metric]) -> dict[str, list[float | None]]:
        metrics = [estimate(confusion, level=level) for confusion in found]
        low, high = zip(*(metric.interval or (None, None) for metric in metrics), strict=True)
        return {"value": [metric.value for metric in metrics], "lower": list(low), "upper": list(high)}

    return {
        "thresholds": list(THRESHOLDS),
        "applied": [confusion.threshold for confusion in found],
        "level": level,
        "rows": evidence.rows,
        **{record.name: lists(record.estimator) for record in of_part("operating-point")},
    }
