"""Plots of a regression: coefficients, odds ratios, intervals that shrink; each drawn and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Results, missing
from fedassay.documents.palette import BAND, BAND_OPACITY, BLUE

MOST_LINES = 40
"""Largest number of coefficients in one plot."""

MOST_PATHS = 6
"""Largest number of coefficients whose intervals are shown over rounds."""

_MUCH = 25.0
"""Factor between the widths of intervals beyond which they cannot be read on one axis."""

_INTERCEPT = "intercept"
_WIDTH, _STEP = 320, 20
_SIDE, _HEIGHT = 220, 150


def slopes(results: Results) -> list[Results]:
    """Return the coefficients of features, or the intercept if there is nothing else; of many, the first ones."""
    entries = results["coefficients"]
    return ([entry for entry in entries if entry["name"] != _INTERCEPT] or list(entries))[:MOST_LINES]


def scales_differ(results: Results) -> bool:
    """Return whether intervals are too different in width for one axis."""
    widths = [entry["interval"][1] - entry["interval"][0] for entry in slopes(results)]
    wide = [width for width in widths if width > 0]
    return len(wide) > 1 and max(wide) > _MUCH * min(wide)


# --- coefficients -----------------------------------------------------------------------------------------------------


def coefficients(results: Results) -> CurveBlock:
    """Plot every coefficient with its interval: in the data's units, or in standard errors if scales differ much."""
    entries, reason = slopes(results), results["coefficients"][0].get("reason", "")
    if results["coefficients"][0]["interval"] is None:
        text = "; ".join(f"{entry['name']} {figures.amount(entry['value'])}" for entry in entries)
        without = (
            f"Coefficients without intervals: {text}"
            if entries[0]["value"] is not None
            else "No coefficients"
        )
        return missing("Coefficients", reason, f"{without}. {reason}")
    text = "; ".join(f"{entry['name']} {_told(entry['value'], *entry['interval'])}" for entry in entries)
    units = ", drawn in standard errors because their scales differ" if scales_differ(results) else ""
    return CurveBlock(
        draw=lambda: _coefficients(entries, scaled=scales_differ(results)),
        alternative=f"Coefficients with intervals{units}: {text}.",
    )


def _coefficients(entries: Sequence[Results], *, scaled: bool) -> alt.LayerChart:
    marks = []
    for entry in entries:
        unit = entry["standard_error"] if scaled else 1.0
        if unit > 0:
            low, high = (end / unit for end in entry["interval"])
            metric = {"value": entry["value"] / unit, "interval": (low, high)}
            marks.append(plots.interval_mark(entry["name"], metric))
    title = "coefficient, in its standard errors" if scaled else "coefficient"
    x = alt.X("low:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    return _lines(marks, x, f"Coefficients with {_level(entries)} intervals", at=0.0)


def _lines(marks: Sequence[Results | None], x: alt.X, title: str, *, at: float) -> alt.LayerChart:
    known = [mark for mark in marks if mark is not None]
    lines = plots.intervals(known, x, [mark["name"] for mark in known], at=at, step=_STEP)
    return lines.properties(title=plots.titled(title), width=_WIDTH)


def _told(value: float | None, low: float | None, high: float | None) -> str:
    width = None if low is None or high is None else high - low
    shown = [figures.amount(number, width=width) for number in (value, low, high)]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


# --- odds ratios ------------------------------------------------------------------------------------------------------


def odds(results: Results) -> list[Results]:
    """Return the coefficients of features that have an odds ratio with an interval."""
    return [
        entry
        for entry in slopes(results)
        if "odds_ratio" in entry and entry["odds_ratio"]["interval"] and entry["name"] != _INTERCEPT
    ]


def odds_ratios(results: Results) -> CurveBlock:
    """Plot odds ratios with their intervals on a logarithmic axis; those that no float can hold are left out."""
    ratios = {entry["name"]: entry["odds_ratio"] for entry in odds(results)}
    text = "; ".join(f"{name} {_told(ratio['value'], *ratio['interval'])}" for name, ratio in ratios.items())
    return CurveBlock(
        draw=lambda: _odds_ratios(ratios, f"Odds ratios with {_level(odds(results))} intervals"),
        alternative=f"Odds ratios with intervals on a logarithmic axis: {text}.",
    )


def _odds_ratios(ratios: Mapping[str, Results], title: str) -> alt.LayerChart:
    finite = [
        plots.interval_mark(name, ratio)
        for name, ratio in ratios.items()
        if all(number is not None and number > 0 for number in (ratio["value"], *ratio["interval"]))
    ]
    # All of them and 1, with room at both ends.
    logs = [0.0, *(math.log(mark[end]) for mark in finite if mark for end in ("low", "high"))]
    room = 0.05 * (max(logs) - min(logs)) or 0.1
    domain = [math.exp(min(logs) - room), math.exp(max(logs) + room)]
    x = alt.X(
        "low:Q",
        title="odds ratio for one unit more (logarithmic)",
        scale=alt.Scale(type="log", zero=False, nice=False, domain=domain),
        axis=alt.Axis(tickCount=8, format="~g"),
    )
    return _lines(finite, x, title, at=1.0)


# --- intervals over rounds --------------------------------------------------------------------------------------------


def path(results: Results) -> CurveBlock:
    """Plot the estimate and its interval over the rounds, one panel per coefficient, features first."""
    entries, rounds = results["coefficients"], results["path"]
    places = sorted(range(len(entries)), key=lambda place: entries[place]["name"] == _INTERCEPT)[:MOST_PATHS]
    first, last = rounds[0], rounds[-1]
    text = "; ".join(
        f"{entries[place]['name']} {figures.error(first['standard_errors'][place])} to "
        f"{figures.error(last['standard_errors'][place])}"
        for place in places
    )
    return CurveBlock(
        draw=lambda: alt.concat(*(_panel(entries[at], rounds, at) for at in places), columns=3).properties(
            title=plots.titled("Intervals over the rounds")
        ),
        alternative=f"Estimates with intervals over the rounds. Standard errors from round {first['round']} to round "
        f"{last['round']}: {text}.",
    )


def _panel(entry: Results, rounds: Sequence[Results], place: int) -> alt.LayerChart:
    """Draw one coefficient; intervals of all rounds reach as many standard errors as the final interval."""
    error = entry["standard_error"]
    reach = float((entry["interval"][1] - entry["value"]) / error) if error else 0.0
    points = []
    for at in rounds:
        value, half = at["values"][place], reach * at["standard_errors"][place]
        points.append({"round": at["round"], "value": value, "low": value - half, "high": value + half})
    scale = alt.Scale(zero=False, nice=True, domain=_domain(points))
    base = alt.Chart(alt.Data(values=points))
    x = alt.X("round:Q", title="round", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(tickCount=4))
    band = base.mark_area(color=BAND, opacity=BAND_OPACITY, clip=True)
    band = band.encode(x=x, y=alt.Y("low:Q", title=None, scale=scale), y2="high:Q")
    line = base.mark_line(color=BLUE, clip=True).encode(x=x, y=alt.Y("value:Q", scale=scale), order="round:Q")
    return alt.layer(band, line).properties(width=_SIDE, height=_HEIGHT, title=entry["name"])


def _domain(points: Sequence[Results]) -> list[float]:
    """Return an axis that the last rounds fill; the first intervals may be far wider, and are cut off."""
    last = points[-1]
    room = 2 * median(point["high"] - point["low"] for point in points) or abs(last["value"]) or 1.0
    low = max(min(point["low"] for point in points), last["value"] - room)
    high = min(max(point["high"] for point in points), last["value"] + room)
    return [low, high] if low < high else [last["value"] - room, last["value"] + room]


def _level(entries: Sequence[Results]) -> str:
    return f"{100 * entries[0]['level']:g}%"
