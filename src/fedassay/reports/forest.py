"""Forest plots: an interval per site or group, and below them what they say together. Reads only the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import altair as alt

from fedassay.reports import figures
from fedassay.reports.comparisons import groups_with_rows
from fedassay.reports.plots import BLUE, GREY

Results = Mapping[str, Any]

_METRICS = ("roc_auc", "calibration_slope", "observed_expected_ratio")
_WIDTH, _STEP = 220, 18


def forest(results: Results) -> alt.HConcatChart | None:
    """Three metrics side by side over sites or, without them, groups; None if there are neither."""
    if results.get("sites") is not None:
        what, entries = "site", list(results["sites"])
        below = results["heterogeneity"]
    elif "groups" in results:
        what, entries, below = "group", groups_with_rows(results), {}
    else:
        return None
    names = [entry[what] for entry in entries]
    last = ["all rows", "mean of sites", "a new site"] if below else ["all rows"]
    order = [*names, *(name for name in last if name not in names)]
    panels = []
    for place, metric in enumerate(_METRICS):
        marks = [_mark(entry[what], entry[metric], "one") for entry in entries]
        marks += [_mark("all rows", results[metric], "all")]
        if below and below[metric]["value"] is not None:
            marks += [
                _mark("mean of sites", below[metric], "all"),
                _mark(
                    "a new site", {**below[metric], "interval": below[metric]["prediction_interval"]}, "new"
                ),
            ]
        drawn = [mark for mark in marks if mark is not None]
        panels.append(_panel(drawn, figures.TITLES[metric], order, labelled=place == 0))
    return alt.hconcat(*panels).configure_view(stroke=GREY)


def _mark(name: str, metric: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    if metric["value"] is None or metric["interval"] is None:
        return None
    low, high = metric["interval"]
    return {"name": name, "value": metric["value"], "low": low, "high": high, "kind": kind}


def _panel(marks: list[dict[str, Any]], title: str, order: list[str], *, labelled: bool) -> alt.LayerChart:
    y = alt.Y(
        "name:N",
        sort=order,
        title=None,
        scale=alt.Scale(domain=order),
        axis=alt.Axis(labels=labelled, ticks=False, domain=False, labelLimit=160),
    )
    x = alt.X("low:Q", title=title, scale=alt.Scale(zero=False, nice=True, domain=_domain(marks)))
    base = alt.Chart(alt.Data(values=marks))
    colour = alt.Color(
        "kind:N", legend=None, scale=alt.Scale(domain=["one", "all", "new"], range=[BLUE, "#1a1a1a", GREY])
    )
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q", y=y, color=colour)
    shape = alt.Shape(
        "kind:N",
        legend=None,
        scale=alt.Scale(domain=["one", "all", "new"], range=["square", "diamond", "circle"]),
    )
    points = base.mark_point(filled=True, size=50, opacity=1, clip=True).encode(
        x="value:Q", y=y, color=colour, shape=shape
    )
    return alt.layer(bars, points).properties(width=_WIDTH, height=_STEP * len(order))


def _domain(marks: list[dict[str, Any]]) -> list[float]:
    """All values with room around them; an interval that is far wider than the rest is cut off."""
    if not marks:
        return [0.0, 1.0]
    values = [mark["value"] for mark in marks]
    room = 1.5 * max(max(values) - min(values), median(mark["high"] - mark["low"] for mark in marks))
    low = max(min(mark["low"] for mark in marks), min(values) - room)
    high = min(max(mark["high"] for mark in marks), max(values) + room)
    return [low, high] if low < high else [low - 0.5, high + 0.5]
