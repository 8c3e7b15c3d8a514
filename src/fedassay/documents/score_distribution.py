"""The distribution of scores in both classes, drawn and in words."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Results, missing
from fedassay.documents.palette import BLUE, ORANGE

CLASSES = ("negatives", "positives")
_WIDTH, _HEIGHT = 300, 220
_TITLE = "Scores of both classes"
_ENOUGH_TICKS = 3


def score_distribution(results: Results) -> CurveBlock:
    """The densities of scores in both classes, over a logit axis where scores crowd in a small range."""
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
        # On a logit axis the explorer would not know where its threshold is.
        marks="threshold" if scores.get("spacing") == "uniform" else "",
    )


def _areas(scores: Results, noise: str) -> alt.LayerChart:
    """Two points for each bucket, at its ends."""
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
    return alt.layer(areas, lines).properties(width=_WIDTH, height=_HEIGHT, title=title)


def densities(scores: Results, name: str) -> list[float]:
    """Of a class, per unit of the score, or of its logit where buckets are so spaced: over all buckets it adds up to 1.

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
    """Where edges are on the axis. On a logit axis the outer buckets have no end; they are as wide as their neighbours.

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
    """Scores to write at a logit axis: powers of ten and what is missing to 1 of them, or more where these are few.

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
    """Within its bucket, rows are taken to be spread evenly."""
    edges: list[Any] = scores["edges"]
    half, below = sum(scores[name]) / 2, 0.0
    for count, (low, high) in zip(scores[name], pairwise(edges), strict=False):
        if count > 0 and below + count >= half:
            return float(low + (high - low) * (half - below) / count)
        below += count
    return float(edges[-1])
