"""How scores are distributed in both classes, and in words. Reads only a task's ``results``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.palette import BLUE, ORANGE

Results = Mapping[str, Any]

CLASSES = ("negatives", "positives")
_WIDTH, _HEIGHT = 300, 220
_TITLE = "Scores of both classes"
_ENOUGH_TICKS = 3


def score_distribution(results: Results) -> alt.LayerChart:
    """The densities of scores in both classes, over a logit axis where scores crowd in a small range."""
    found = results["score_distribution"]
    if not found["edges"]:
        return plots.empty(_TITLE, found["reason"])
    legend = alt.Legend(title=None, orient="bottom", symbolType="square", symbolOpacity=0.9)
    scale = alt.Scale(domain=list(CLASSES), range=[BLUE, ORANGE])
    base = alt.Chart(alt.Data(values=_steps(found)))
    x = alt.X("score:Q", title="score", scale=alt.Scale(nice=False, zero=False), axis=_axis(found))
    y = alt.Y("density:Q", title="density", axis=alt.Axis(tickCount=4), stack=None)
    colour = alt.Color("class:N", scale=scale, legend=legend)
    areas = base.mark_area(opacity=0.3).encode(x=x, y=y, y2=alt.datum(0), color=colour)
    lines = base.mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, order="place:Q")
    chart = alt.layer(areas, lines)
    return chart.properties(width=_WIDTH, height=_HEIGHT, title=plots.titled(_TITLE, _noise(found)))


def densities(found: Results, name: str) -> list[float]:
    """Of a class, per unit of the score, or of its logit where buckets are so spaced: over all buckets it adds up to 1.

    Examples
    --------
    >>> densities({"spacing": "uniform", "edges": [0.0, 0.25, 1.0], "positives": [3.0, 1.0]}, "positives")
    [3.0, 0.3333333333333333]
    """
    ends, counts = positions(found), found[name]
    whole = sum(counts)
    widths = (high - low for low, high in pairwise(ends))
    return [count / whole / width if whole else 0.0 for count, width in zip(counts, widths, strict=True)]


def positions(found: Results) -> list[float]:
    """Where edges are on the axis. On a logit axis the outer buckets have no end; they are as wide as their neighbours.

    Examples
    --------
    >>> positions({"spacing": "logit", "edges": [0.0, 0.5, 0.731058579, 1.0]})
    [-1.0, 0.0, 1.0, 2.0]
    """
    edges = found["edges"]
    if found["spacing"] != "logit":
        return list(edges)
    inner = [_logit(edge) for edge in edges[1:-1]]
    if len(inner) == 1:
        return [inner[0] - 1, *inner, inner[0] + 1]
    return [2 * inner[0] - inner[1], *inner, 2 * inner[-1] - inner[-2]]


def _logit(score: float) -> float:
    return round(math.log(score / (1 - score)), 6)


def _steps(found: Results) -> list[dict[str, Any]]:
    """Two points for each bucket, at its ends."""
    ends = positions(found)
    return [
        {"class": name, "place": 2 * bucket + end, "score": ends[bucket + end], "density": density}
        for name in CLASSES
        for bucket, density in enumerate(densities(found, name))
        for end in (0, 1)
    ]


def _axis(found: Results) -> alt.Axis:
    if found["spacing"] != "logit":
        return alt.Axis(tickCount=6)
    ends = positions(found)
    values = [
        _logit(score) for score in round_scores(*(1 / (1 + math.exp(-end)) for end in (ends[0], ends[-1])))
    ]
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
        found = [score for score in every if low <= score <= high]
        if len(found) >= _ENOUGH_TICKS:
            break
    return found


def _noise(found: Results) -> str:
    if found["noise"] is None:
        return ""
    every = [deviation for name in CLASSES for deviation in found["noise"][name]]
    return f"noise of privacy: about ±{figures.counted(sum(every) / len(every), 'row')} in a bucket"


def score_distribution_alternative(results: Results) -> str:
    """The plot in words."""
    found = results["score_distribution"]
    if not found["edges"]:
        return f"No score distributions: {found['reason']}."
    said = "; ".join(
        f"{figures.counted(sum(found[name]), name[:-1])}, half of them with scores up to {_median(found, name):.2g}"
        for name in reversed(CLASSES)
    )
    noise = f"; {_noise(found)}" if found["noise"] is not None else ""
    return f"Distributions of the score in both classes: {said}{noise}."


def _median(found: Results, name: str) -> float:
    """Within its bucket, rows are taken to be spread evenly."""
    edges: Sequence[float] = found["edges"]
    half, below = sum(found[name]) / 2, 0.0
    for count, low, high in zip(found[name], edges, edges[1:], strict=False):
        if count > 0 and below + count >= half:
            return float(low + (high - low) * (half - below) / count)
        below += count
    return edges[-1]
