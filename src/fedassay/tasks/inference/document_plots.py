"""The plots of a regression: coefficients, odds ratios, intervals that shrink. Reads only the JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.palette import BAND, BAND_OPACITY, BLUE

Entry = Mapping[str, Any]

MOST_LINES = 40
"""Coefficients in one plot."""

MOST_PATHS = 6
"""Coefficients whose intervals are shown over rounds."""

_MUCH = 25.0
"""Intervals whose widths differ by more than this factor cannot be read on one axis."""

_INTERCEPT = "intercept"
_WIDTH, _STEP = 320, 20
_SIDE, _HEIGHT = 220, 150


def slopes(results: Entry) -> list[Entry]:
    """The coefficients of features, or the intercept if there is nothing else; the first ones of many."""
    entries = results["coefficients"]
    found = [entry for entry in entries if entry["name"] != _INTERCEPT] or list(entries)
    return found[:MOST_LINES]


def scales_differ(results: Entry) -> bool:
    """Whether intervals are too different in width for one axis."""
    widths = [entry["interval"][1] - entry["interval"][0] for entry in slopes(results)]
    wide = [width for width in widths if width > 0]
    return len(wide) > 1 and max(wide) > _MUCH * min(wide)


# --- coefficients -----------------------------------------------------------------------------------------------------


def forest_plot(results: Entry) -> alt.LayerChart:
    """Every coefficient with its interval: in the data's units, or in standard errors if scales differ much."""
    if results["coefficients"][0]["interval"] is None:
        return plots.empty("Coefficients", results["coefficients"][0]["reason"])
    entries, scaled = slopes(results), scales_differ(results)
    units = {entry["name"]: entry["standard_error"] if scaled else 1.0 for entry in entries}
    marks = [
        {
            "name": entry["name"],
            "value": entry["value"] / units[entry["name"]],
            "low": entry["interval"][0] / units[entry["name"]],
            "high": entry["interval"][1] / units[entry["name"]],
        }
        for entry in entries
        if units[entry["name"]] > 0
    ]
    what = "coefficient, in its standard errors" if scaled else "coefficient"
    title = f"Coefficients with {_level(entries)} intervals"
    return _lines(
        marks,
        alt.X("low:Q", title=what, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6)),
        title,
        at=0.0,
    )


def _lines(marks: list[dict[str, Any]], x: alt.X, title: str, *, at: float) -> alt.LayerChart:
    order = [mark["name"] for mark in marks]
    y = plots.named(order)
    base = alt.Chart(alt.Data(values=marks))
    rule = plots.level_rule(at, axis="x")
    bars = base.mark_rule(color=BLUE, strokeWidth=2).encode(x=x, x2="high:Q", y=y)
    points = base.mark_point(filled=True, size=50, opacity=1, color=BLUE).encode(x="value:Q", y=y)
    drawn = alt.layer(rule, bars, points)
    size = {"width": _WIDTH, "height": _STEP * max(1, len(order))}
    return plots.framed(drawn.properties(title=plots.titled(title), **size))


def forest_alternative(results: Entry) -> str:
    """The plot in words."""
    if results["coefficients"][0]["interval"] is None:
        reason = results["coefficients"][0]["reason"]
        if results["coefficients"][0]["value"] is None:
            return f"No coefficients. {reason}"
        said = (f"{entry['name']} {figures.amount(entry['value'])}" for entry in slopes(results))
        return f"Coefficients without intervals: {'; '.join(said)}. {reason}"
    said = (
        f"{entry['name']} {_amount(entry['value'], entry['interval'])} "
        f"({_amount(entry['interval'][0], entry['interval'])} to {_amount(entry['interval'][1], entry['interval'])})"
        for entry in slopes(results)
    )
    units = ", drawn in standard errors because their scales differ" if scales_differ(results) else ""
    return f"Coefficients with intervals{units}: {'; '.join(said)}."


# --- odds ratios ------------------------------------------------------------------------------------------------------


def odds(results: Entry) -> list[Entry]:
    """The coefficients of features that have an odds ratio with an interval."""
    return [
        entry
        for entry in slopes(results)
        if "odds_ratio" in entry and entry["odds_ratio"]["interval"] and entry["name"] != _INTERCEPT
    ]


def odds_plot(results: Entry) -> alt.LayerChart:
    """Odds ratios with their intervals on a logarithmic axis; those that no float can hold are left out."""
    marks = [
        {"name": entry["name"], "value": ratio["value"], "low": low, "high": high}
        for entry in odds(results)
        for ratio in [entry["odds_ratio"]]
        for low, high in [ratio["interval"]]
        if None not in (ratio["value"], low, high) and min(ratio["value"], low, high) > 0
    ]
    x = alt.X(
        "low:Q",
        title="odds ratio for one unit more (logarithmic)",
        scale=alt.Scale(type="log", zero=False, nice=False, domain=_odds_domain(marks)),
        axis=alt.Axis(tickCount=8, format="~g"),
    )
    return _lines(marks, x, f"Odds ratios with {_level(odds(results))} intervals", at=1.0)


def _odds_domain(marks: Sequence[Entry]) -> list[float]:
    """All of them and 1, with room at both ends."""
    logs = [0.0, *(math.log(mark[end]) for mark in marks for end in ("low", "high"))]
    room = 0.05 * (max(logs) - min(logs)) or 0.1
    return [math.exp(min(logs) - room), math.exp(max(logs) + room)]


def odds_alternative(results: Entry) -> str:
    """The plot in words."""
    said = []
    for entry in odds(results):
        value, (low, high) = entry["odds_ratio"]["value"], entry["odds_ratio"]["interval"]
        width = None if None in (low, high) else high - low
        shown = [figures.amount(number, width=width) for number in (value, low, high)]
        said.append(f"{entry['name']} {shown[0]} ({shown[1]} to {shown[2]})")
    return f"Odds ratios with intervals on a logarithmic axis: {'; '.join(said)}."


# --- intervals over rounds --------------------------------------------------------------------------------------------


def path_plot(results: Entry) -> alt.ConcatChart:
    """How the estimate and its interval changed with the rounds, one panel per coefficient."""
    panels = [_panel(results, place) for place in _shown(results)]
    title = plots.titled("Intervals over the rounds")
    return plots.framed(alt.concat(*panels, columns=3).properties(title=title))


def _shown(results: Entry) -> list[int]:
    """The places of coefficients that have a panel: features first."""
    names = [entry["name"] for entry in results["coefficients"]]
    places = sorted(range(len(names)), key=lambda place: names[place] == _INTERCEPT)
    return places[:MOST_PATHS]


def _panel(results: Entry, place: int) -> alt.LayerChart:
    entry = results["coefficients"][place]
    reach = _critical(entry)
    points = [
        {
            "round": at["round"],
            "value": at["values"][place],
            "low": at["values"][place] - reach * at["standard_errors"][place],
            "high": at["values"][place] + reach * at["standard_errors"][place],
        }
        for at in results["path"]
    ]
    scale = alt.Scale(zero=False, nice=True, domain=_domain(points))
    base = alt.Chart(alt.Data(values=points))
    x = alt.X("round:Q", title="round", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(tickCount=4))
    band = base.mark_area(color=BAND, opacity=BAND_OPACITY, clip=True).encode(
        x=x, y=alt.Y("low:Q", title=None, scale=scale), y2="high:Q"
    )
    line = base.mark_line(color=BLUE, clip=True).encode(x=x, y=alt.Y("value:Q", scale=scale), order="round:Q")
    return alt.layer(band, line).properties(width=_SIDE, height=_HEIGHT, title=entry["name"])


def _critical(entry: Entry) -> float:
    """How many standard errors the final interval reaches; the same is drawn for all rounds."""
    error = entry["standard_error"]
    return float((entry["interval"][1] - entry["value"]) / error) if error else 0.0


def _domain(points: Sequence[Entry]) -> list[float]:
    """The last rounds fill the panel; the first intervals may be far wider, and are cut off."""
    last = points[-1]
    room = 2 * median(point["high"] - point["low"] for point in points) or abs(last["value"]) or 1.0
    low = max(min(point["low"] for point in points), last["value"] - room)
    high = min(max(point["high"] for point in points), last["value"] + room)
    return [low, high] if low < high else [last["value"] - room, last["value"] + room]


def path_alternative(results: Entry) -> str:
    """The plot in words."""
    first, last = results["path"][0], results["path"][-1]
    said = (
        f"{results['coefficients'][place]['name']} {figures.error(first['standard_errors'][place])} to "
        f"{figures.error(last['standard_errors'][place])}"
        for place in _shown(results)
    )
    return (
        f"Estimates with intervals over the rounds. Standard errors from round {first['round']} to round "
        f"{last['round']}: {'; '.join(said)}."
    )


def _level(entries: Sequence[Entry]) -> str:
    return f"{100 * entries[0]['level']:g}%"


def _amount(value: float, interval: Sequence[float]) -> str:
    return figures.amount(value, width=interval[1] - interval[0])
