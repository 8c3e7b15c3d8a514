"""The curves of a binary classifier with their simultaneous bands and its scores, each drawn and in words."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Document, Results, missing
from fedassay.documents.palette import BLUE, MUTED, ORANGE
from fedassay.documents.reliability import reliability

_WIDTH, _HEIGHT, _LOW = 300, 240, 220
_ROOM = 0.4
"""Extent of a plot of net benefits below zero, as a share of its extent above."""


def overview(document: Document) -> alt.HConcatChart:
    """Plot the ROC curve and the reliability diagram side by side."""
    results = document["results"]
    return plots.framed(alt.hconcat(roc(results).draw(), reliability(results).draw()))


def save_overview(document: Document, path: str | os.PathLike[str]) -> None:
    """Write the overview to a file, see `plots.save`."""
    plots.save(overview(document), path)


def roc(results: Results) -> CurveBlock:
    """Plot the ROC curve."""
    curve = results["roc_curve"]
    if not curve.get("fpr"):
        return missing("ROC curve", curve["reason"], f"No ROC curve: {curve['reason']}.")
    points = plots.points(curve, "fpr", "tpr", "lower", "upper")
    text = ", ".join(
        f"at a false positive rate of {at['fpr']:.2f} the true positive rate is {_with_band(at, 'tpr')}"
        for rate in (0.1, 0.2)
        for at in [plots.nearest(points, "fpr", rate)]
    )
    return CurveBlock(
        draw=lambda: _square(
            points,
            ("fpr", "false positive rate"),
            ("tpr", "true positive rate"),
            plots.diagonal(),
            plots.titled(_with("ROC curve", "AUC", results["roc_auc"]), _banded(curve)),
        ),
        alternative=f"ROC curve with its band: AUC {figures.told(results['roc_auc'])}; {text}.",
        marks="roc",
    )


def precision_recall(results: Results) -> CurveBlock:
    """Plot precision over recall; dashed: the prevalence, which is the precision of a useless model."""
    curve, average, prevalence = (
        results[name] for name in ("precision_recall_curve", "average_precision", "prevalence")
    )
    if not curve.get("recall"):
        text = f"No precision-recall curve: {curve['reason']}."
        return missing("Precision-recall curve", curve["reason"], text)
    points = plots.points(curve, "recall", "precision", "lower", "upper")
    at = plots.nearest(points, "recall", 0.8)
    title = _with("Precision-recall curve", "AP", average)
    return CurveBlock(
        draw=lambda: _square(
            points,
            ("recall", "recall"),
            ("precision", "precision"),
            plots.level_rule(prevalence["value"], axis="y"),
            plots.titled(title, f"{_banded(curve)}; dashed: prevalence"),
        ),
        alternative=f"Precision-recall curve with its band: average precision {figures.told(average)}, prevalence "
        f"{figures.value(prevalence)}; at a recall of {at['recall']:.2f} the precision is "
        f"{_with_band(at, 'precision')}.",
        marks="precision-recall",
    )


def _square(
    points: Sequence[Results],
    across: tuple[str, str],
    up: tuple[str, str],
    reference: alt.Chart,
    title: alt.TitleParams,
) -> alt.LayerChart:
    """Plot a curve with its band over a reference line, in a square; axes are given as field and title."""
    x = plots.unit(f"{across[0]}:Q", across[1])
    y = plots.unit(f"{up[0]}:Q", up[1], channel=alt.Y)
    line = plots.line(points, x, y, order=f"{across[0]}:Q")
    return plots.square(alt.layer(reference, plots.band(points, x), line), title)


def net_benefit(results: Results) -> CurveBlock:
    """Plot net benefit over the threshold, and the net benefit of treating all or none."""
    curve = results["net_benefit_curve"]
    if not curve.get("thresholds"):
        return missing("Net benefit", curve["reason"], f"No net benefit curve: {curve['reason']}.")
    points = plots.points(curve, "thresholds", "net_benefit", "lower", "upper", "treat_all")
    better = [at["thresholds"] for at in points if at["lower"] > max(0.0, at["treat_all"])]
    where = (
        f"surely above treating all and treating none at {len(better)} of {len(points)} thresholds, between "
        f"{min(better):.2f} and {max(better):.2f}"
        if better
        else "nowhere surely above both treating all and treating none"
    )
    first = results["thresholds"][0]
    text = f"{where}; {figures.told(first['net_benefit'])} at {first['threshold']:g}"
    return CurveBlock(
        draw=lambda: _benefits(curve, points),
        alternative=f"Net benefit over the threshold with its band: {text}.",
        marks="threshold",
    )


def _benefits(curve: Results, points: Sequence[Results]) -> alt.LayerChart:
    columns = {"the model": "net_benefit", "treat all": "treat_all", "treat none": None}
    lines = [
        {"rule": rule, "threshold": point["thresholds"], "benefit": point[column] if column else 0.0}
        for rule, column in columns.items()
        for point in points
    ]
    top = 1.1 * max(max(curve["upper"]), 1e-3)
    scale = alt.Scale(domain=[-_ROOM * top, top], nice=False)
    drawn = plots.strokes(
        lines,
        "rule",
        list(columns),
        colours=[BLUE, ORANGE, MUTED],
        dashes=[[1, 0], [5, 3], [2, 2]],
        legend=alt.Legend(title=None, orient="bottom", symbolType="stroke", symbolStrokeWidth=3),
    ).encode(
        x=plots.unit("threshold:Q", "threshold"),
        y=alt.Y("benefit:Q", title="net benefit", scale=scale, axis=alt.Axis(tickCount=6)),
        order="threshold:Q",
    )
    chart = alt.layer(plots.band(points, plots.unit("thresholds:Q", "threshold")), drawn)
    title = plots.titled("Net benefit", _banded(curve))
    return chart.properties(width=_WIDTH, height=_HEIGHT, title=title)


def _with(title: str, name: str, metric: Results) -> str:
    return title if metric["value"] is None else f"{title}, {name} {metric['value']:.3f}"


def _banded(curve: Results) -> str:
    return f"{curve['level']:.0%} band for the whole curve"


def _with_band(at: Results, name: str) -> str:
    return f"{at[name]:.2f} ({at['lower']:.2f} to {at['upper']:.2f})"


# --- the distribution of scores in both classes -------------------------------------------------------------

CLASSES = ("negatives", "positives")
_TITLE = "Scores of both classes"
_ENOUGH_TICKS = 3


def score_distribution(results: Results) -> CurveBlock:
    """Plot the densities of scores in both classes, over a logit axis if scores crowd in a small range."""
    scores = results["score_distribution"]
    if not scores["edges"]:
        return missing(_TITLE, scores["reason"], f"No score distributions: {scores['reason']}.")
    noise = _noise(scores)
    text = "; ".join(
        f"{figures.counted(sum(scores[name]), name[:-1])}, half of them with scores up to {_median(scores, name):.2g}"
        for name in reversed(CLASSES)
    )
    return CurveBlock(
        draw=lambda: _areas(scores, noise),
        alternative=f"Distributions of the score in both classes: {text}{'; ' if noise else ''}{noise}.",
        # On a logit axis the explorer could not place its threshold.
        marks="threshold" if scores.get("spacing") == "uniform" else "",
    )


def _areas(scores: Results, noise: str) -> alt.LayerChart:
    """Plot two points for each bucket, at its ends."""
    ends = positions(scores)
    steps = [
        {"class": name, "place": 2 * bucket + end, "score": ends[bucket + end], "density": density}
        for name in CLASSES
        for bucket, density in enumerate(densities(scores, name))
        for end in (0, 1)
    ]
    base = alt.Chart(alt.Data(values=steps))
    x = alt.X("score:Q", title="score", scale=alt.Scale(nice=False, zero=False), axis=_axis(scores))
    y = alt.Y("density:Q", title="density", axis=alt.Axis(tickCount=4), stack=None)
    colour = alt.Color(
        "class:N",
        scale=alt.Scale(domain=list(CLASSES), range=[BLUE, ORANGE]),
        legend=alt.Legend(title=None, orient="bottom", symbolType="square", symbolOpacity=0.9),
    )
    areas = base.mark_area(opacity=0.3).encode(x=x, y=y, y2=alt.datum(0), color=colour)
    lines = base.mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, order="place:Q")
    title = plots.titled(_TITLE, noise)
    return alt.layer(areas, lines).properties(width=_WIDTH, height=_LOW, title=title)


def densities(scores: Results, name: str) -> list[float]:
    """Return the density of a class in each bucket, per unit of the score, or of its logit for logit spacing.

    It integrates to 1 over all buckets.

    Examples
    --------
    >>> densities({"spacing": "uniform", "edges": [0.0, 0.25, 1.0], "positives": [3.0, 1.0]}, "positives")
    [3.0, 0.3333333333333333]
    """
    counts = scores[name]
    whole = sum(counts)
    widths = (high - low for low, high in pairwise(positions(scores)))
    return [count / whole / width if whole else 0.0 for count, width in zip(counts, widths, strict=True)]


def positions(scores: Results) -> list[float]:
    """Return the places of edges on the axis.

    On a logit axis the outer buckets have no end; they are as wide as their neighbours.

    Examples
    --------
    >>> positions({"spacing": "logit", "edges": [0.0, 0.5, 0.731058579, 1.0]})
    [-1.0, 0.0, 1.0, 2.0]
    """
    edges = scores["edges"]
    if scores["spacing"] != "logit":
        return list(edges)
    inner = [_logit(edge) for edge in edges[1:-1]]
    if len(inner) == 1:
        return [inner[0] - 1, *inner, inner[0] + 1]
    return [2 * inner[0] - inner[1], *inner, 2 * inner[-1] - inner[-2]]


def _logit(score: float) -> float:
    return round(math.log(score / (1 - score)), 6)


def _axis(scores: Results) -> alt.Axis:
    if scores["spacing"] != "logit":
        return alt.Axis(tickCount=6)
    ends = positions(scores)
    low, high = (1 / (1 + math.exp(-end)) for end in (ends[0], ends[-1]))
    values = [_logit(score) for score in round_scores(low, high)]
    return alt.Axis(values=values, labelExpr="format(1 / (1 + exp(-datum.value)), '.4~g')")


def round_scores(low: float, high: float) -> list[float]:
    """Return the labels of a logit axis: powers of ten and 1 minus these, or more if there are few.

    Examples
    --------
    >>> round_scores(0.00005, 0.06), round_scores(0.02, 0.3), round_scores(0.2, 0.995)
    ([0.0001, 0.001, 0.01], [0.02, 0.05, 0.1, 0.2], [0.5, 0.9, 0.99])
    """
    for steps in ((1,), (1, 2, 5)):
        below = [step * 10.0**-power for power in range(10, 0, -1) for step in steps]
        every = sorted({round(score, 11) for one in (*below, 0.5) for score in (one, 1 - one)})
        within = [score for score in every if low <= score <= high]
        if len(within) >= _ENOUGH_TICKS:
            break
    return within


def _noise(scores: Results) -> str:
    if scores["noise"] is None:
        return ""
    every = [deviation for name in CLASSES for deviation in scores["noise"][name]]
    return f"noise of privacy: about ±{figures.counted(sum(every) / len(every), 'row')} in a bucket"


def _median(scores: Results, name: str) -> float:
    """Compute the median, with rows spread evenly within their bucket."""
    edges: list[Any] = scores["edges"]
    half, below = sum(scores[name]) / 2, 0.0
    for count, (low, high) in zip(scores[name], pairwise(edges), strict=False):
        if count > 0 and below + count >= half:
            return float(low + (high - low) * (half - below) / count)
        below += count
    return float(edges[-1])
