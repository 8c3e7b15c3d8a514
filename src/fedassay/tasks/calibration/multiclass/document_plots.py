"""Plots of a multiclass calibration: reliability, errors of classes, fitted steps; each also in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Results
from fedassay.documents.palette import BLUE, GREEN, INK, MUTED, ORANGE, PAPER, PURPLE, RED
from fedassay.documents.reliability import BEFORE_AFTER
from fedassay.documents.reliability import reliability as diagram

FEW = 30
"""Number of classes up to which each has a line; more classes stand side by side."""

MOST = 100
"""Largest number of classes of a plot: of more, those with the largest errors."""

MOST_RISING, MOST_JAGGED = 4, 2
"""Numbers of curves that can still be distinguished: of rising curves, and of others."""

BELIEVED = 0.1
"""Weight below which the curve of a class hardly counts, and is not drawn."""

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
_WIDTH, _HEIGHT, _LINE, _COLUMN = 340, 280, 20, 7.5


# --- reliability ----------------------------------------------------------------------------------------


def reliability(results: Results, part: str) -> CurveBlock:
    """Draw the reliability diagram of the most probable class, ``before`` or ``after``."""
    error = results[part]["expected_calibration_error"]
    shown = {"reliability_curve": results["reliability_curve"][part], "expected_calibration_error": error}
    return CurveBlock(
        draw=diagram(shown, name=f"Top label, {part}").draw,
        alternative=f"Reliability diagram of the most probable class {part} calibration, on held-out rows: "
        f"ECE {figures.value(error)}",
    )


# --- the errors of classes ------------------------------------------------------------------------------


def ranked(classes: Sequence[Results]) -> list[Results]:
    """Return the classes that have an error, before or after, from the largest."""
    return sorted((entry for entry in classes if _largest(entry) >= 0), key=_largest, reverse=True)


def _largest(entry: Results) -> float:
    return max(-1.0 if entry[part]["value"] is None else float(entry[part]["value"]) for part in BEFORE_AFTER)


def errors(classes: Sequence[Results]) -> CurveBlock:
    """Draw each class before and after, and a line between them: red where the error grows."""
    texts = []
    for part in BEFORE_AFTER:
        known = [(one[part]["value"], one["class"]) for one in classes if one[part]["value"] is not None]
        if known:
            most, which = max(known)
            least = figures.error(min(known)[0])
            texts.append(f"{part} from {least} to {figures.error(most)} (class {which})")
    return CurveBlock(
        draw=lambda: _errors(classes),
        alternative=f"Calibration errors of {len(classes)} classes on held-out rows: {', '.join(texts)}",
    )


def _errors(classes: Sequence[Results]) -> alt.LayerChart:
    entries = ranked(classes)[:MOST]
    names = [str(entry["class"]) for entry in entries]
    dots, lines = [], []
    for entry, name in zip(entries, names, strict=True):
        ends = {part: entry[part]["value"] for part in BEFORE_AFTER if entry[part]["value"] is not None}
        dots += [{"class": name, "part": part, "error": error} for part, error in ends.items()]
        if len(ends) == 2:
            before, after = ends.values()
            lines.append({"class": name, "from": before, "to": after, "grows": after > before})
    chart = _lines(lines, dots, names, across=len(entries) > FEW)
    some = f"; the {MOST} largest of {len(classes)}" if len(entries) < len(classes) else ""
    words = plots.titled("Calibration error by class", f"from before to after; red: it grows{some}")
    return chart.properties(title=words)


def _lines(
    lines: list[dict[str, Any]], dots: list[dict[str, Any]], names: list[str], *, across: bool
) -> alt.LayerChart:
    """Draw a line for each class, the largest error on top; of many, columns with the largest at the left."""
    if across:
        axis = alt.Axis(labelAngle=-90, labelFontSize=7, ticks=False, labelOverlap=False, labelPadding=3)
        sides, size = {"width": _COLUMN * len(names), "height": _HEIGHT}, 22
    else:
        axis = alt.Axis(ticks=False, domain=False, grid=True, labelPadding=6)
        sides, size = {"width": _WIDTH, "height": _LINE * len(names)}, 60
    place, error = ("x", "y") if across else ("y", "x")
    channel = {"x": alt.X, "y": alt.Y}
    by_class = {place: channel[place]("class:N", sort=names, title="class", axis=axis)}
    ends = {
        error: channel[error]("from:Q", title="calibration error", axis=alt.Axis(tickCount=5)),
        f"{error}2": "to:Q",
    }
    rules = _between(lines).encode(**by_class, **ends)
    points = _dots(dots, size=size).encode(**by_class, **{error: "error:Q"})
    return alt.layer(rules, points).properties(**sides)


def _between(lines: list[dict[str, Any]]) -> alt.Chart:
    colour = alt.Color("grows:N", legend=None, scale=alt.Scale(domain=[False, True], range=[MUTED, RED]))
    return alt.Chart(alt.Data(values=lines)).mark_rule(strokeWidth=1.5).encode(color=colour)


def _dots(dots: list[dict[str, Any]], *, size: int) -> alt.Chart:
    """Draw open dots before, filled dots after, to be distinguished without colours too."""
    legend = alt.Legend(title=None, orient="top")
    fill = alt.Scale(domain=list(BEFORE_AFTER), range=[PAPER, BLUE])
    stroke = alt.Scale(domain=list(BEFORE_AFTER), range=[INK, BLUE])
    return (
        alt.Chart(alt.Data(values=dots))
        .mark_point(size=size, strokeWidth=1.5, opacity=1, fillOpacity=1)
        .encode(
            fill=alt.Fill("part:N", scale=fill, legend=legend),
            stroke=alt.Stroke("part:N", scale=stroke, legend=legend),
        )
    )


# --- fitted steps ---------------------------------------------------------------------------------------


def stepped(results: Results) -> list[int]:
    """Return the classes whose steps are drawn: with enough weight, and with the largest known errors."""
    calibrator = results["calibrator"]
    if not {"weights", "values"} <= set(calibrator):
        return []
    most = MOST_RISING if calibrator["kind"] == "isotonic" else MOST_JAGGED
    places = [entry["class"] for entry in sorted(results["classes"], key=_largest, reverse=True)]
    return [place for place in places if calibrator["weights"][place] >= BELIEVED][:most]


def steps(results: Results) -> CurveBlock:
    """Draw the calibrated probability in each bin, for a few classes."""
    calibrator = results["calibrator"]
    curves = {_name(calibrator, place): calibrator["values"][place] for place in stepped(results)}
    text = "; ".join(f"{name} from {values[0]:.2g} to {values[-1]:.2g}" for name, values in curves.items())
    return CurveBlock(
        draw=lambda: _steps(curves, edges(calibrator)),
        alternative=f"Fitted steps of some classes, over probabilities from 0 to 1: {text}",
    )


def _steps(curves: Mapping[str, Sequence[float]], bounds: Sequence[float]) -> alt.LayerChart:
    points = [
        {"class": name, "order": order, "probability": x, "value": y}
        for name, values in curves.items()
        for order, (x, y) in enumerate(_corners(bounds, values))
    ]
    colours = alt.Scale(domain=list(curves), range=list(_COLOURS[: len(curves)]))
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=240)
    line = alt.Chart(alt.Data(values=points)).mark_line(strokeWidth=2, clip=True)
    lines = line.encode(
        x=alt.X("probability:Q", title="probability by the model", scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("value:Q", title="fitted value", scale=alt.Scale(domain=[0, 1])),
        order="order:Q",
        color=alt.Color("class:N", scale=colours, legend=legend),
    )
    words = plots.titled("Fitted steps", "not yet weighed, nor made to add up to 1")
    return plots.square(alt.layer(plots.diagonal(), lines), words)


def _name(calibrator: Results, place: int) -> str:
    return f"class {place} (weight {calibrator['weights'][place]:.2g})"


def edges(calibrator: Results) -> list[float]:
    """Return the edges of the bins of a map: uniform, or equally spaced in the logit where the map has a `reach`.

    Examples
    --------
    >>> edges({"values": [[0.1, 0.2, 0.6, 0.7]]})
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> [round(edge, 4) for edge in edges({"values": [[0.1, 0.2, 0.6, 0.7]], "reach": 4.0})]
    [0.0, 0.1192, 0.5, 0.8808, 1.0]
    """
    bins = len(calibrator["values"][0])
    if "reach" not in calibrator:
        return [m / bins for m in range(bins + 1)]
    steps = (calibrator["reach"] * (2 * m / bins - 1) for m in range(1, bins))
    return [0.0, *(1 / (1 + math.exp(-step)) for step in steps), 1.0]


def _corners(bounds: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the corners of the graph of a step function, without those in the middle of a run."""
    corners = [(bounds[0], values[0])]
    for place, (old, new) in enumerate(pairwise(values), start=1):
        if new != old:
            corners += [(bounds[place], old), (bounds[place], new)]
    return [*corners, (bounds[-1], values[-1])]
