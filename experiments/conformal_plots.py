"""Boxes of runs side by side, and intervals over one feature, for the page on conformal prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.bands import Drawing, Spec
from experiments.common import Floats
from experiments.plots import GREY, INK, Style

WIDTH, HEIGHT = 300, 150


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """One plot: groups on the x axis, in each of them a box of runs per curve. `level` is a dotted line across it."""

    title: str
    y_title: str
    runs: Mapping[tuple[str, str], Sequence[float]]
    """(group, curve) to the values of all runs; those that are not finite are left out."""
    level: float | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    """Group to a line of text above it."""


def page(rows: Sequence[Sequence[Boxes]], styles: Mapping[str, Style], title: str) -> Drawing:
    """Rows of plots with one legend; each plot has a y axis of its own."""
    legend = {
        "orient": "top",
        "title": None,
        "labelFontSize": 11,
        "symbolType": "square",
        "symbolSize": 120,
        "symbolOpacity": 1,
        "columns": 5,
        "labelLimit": 330,
    }
    axis = {"labelFontSize": 10, "titleFontSize": 11, "gridColor": "#e8e8e8", "titleFontWeight": "normal"}
    return Drawing(
        spec={
            "title": {"text": title, "anchor": "start", "fontSize": 14, "offset": 10},
            "vconcat": [
                {"hconcat": [_chart(boxes, styles) for boxes in several], "spacing": 24} for several in rows
            ],
            "spacing": 18,
            "resolve": {"scale": {"color": "shared"}},
            "config": {"axis": axis, "legend": legend, "view": {"stroke": "#cccccc"}},
        }
    )


def _chart(boxes: Boxes, styles: Mapping[str, Style]) -> Spec:
    groups = list(dict.fromkeys(group for group, _ in boxes.runs))
    names = [name for name in styles if any(curve == name for _, curve in boxes.runs)]
    x = {
        "field": "group",
        "type": "nominal",
        "sort": groups,
        "title": None,
        "axis": {"labelAngle": 0, "ticks": False, "labelFontSize": 11, "grid": False},
        "scale": {"paddingInner": 0.12, "paddingOuter": 0.06},
    }
    shift = {"field": "curve", "sort": names, "scale": {"paddingInner": 0.25, "paddingOuter": 0.1}}
    colour = {
        "field": "curve",
        "type": "nominal",
        "scale": {"domain": list(styles), "range": [style.colour for style in styles.values()]},
    }
    y = {"type": "quantitative", "title": boxes.y_title, "scale": {"zero": False}}

    def encoded(**more: Any) -> Spec:
        return {"x": x, "xOffset": shift, **more}

    layers = [
        *_level(boxes),
        {
            "mark": {"type": "rule", "strokeWidth": 1.2},
            "encoding": encoded(y={**y, "field": "least"}, y2={"field": "most"}, color=colour),
        },
        {
            "mark": {"type": "bar", "opacity": 1, "stroke": INK, "strokeWidth": 0.6},
            "encoding": encoded(y={**y, "field": "low"}, y2={"field": "high"}, color=colour),
        },
        {
            "mark": {"type": "tick", "color": INK, "thickness": 1.4},
            "encoding": encoded(y={**y, "field": "middle"}),
        },
        {
            "mark": {
                "type": "point",
                "filled": True,
                "color": "white",
                "stroke": INK,
                "size": 26,
                "opacity": 1,
            },
            "encoding": encoded(y={**y, "field": "mean"}),
        },
        *_notes(boxes, x),
    ]
    return {
        "title": {"text": boxes.title, "fontSize": 12, "fontWeight": "normal"},
        "width": WIDTH,
        "height": HEIGHT,
        "data": {"values": _records(boxes)},
        "layer": layers,
    }


def _records(boxes: Boxes) -> list[dict[str, Any]]:
    """Extremes, quartiles, median and mean of each box."""
    records = []
    for (group, curve), values in boxes.runs.items():
        finite = np.asarray(values, dtype=np.float64)
        finite = finite[np.isfinite(finite)]
        if len(finite) == 0:
            continue
        numbers = [*np.quantile(finite, [0, 0.25, 0.5, 0.75, 1]).tolist(), float(finite.mean())]
        names = ("least", "low", "middle", "high", "most", "mean")
        shown = {name: float(f"{number:.5g}") for name, number in zip(names, numbers, strict=True)}
        records.append({"group": group, "curve": curve, **shown})
    return records


def _level(boxes: Boxes) -> list[Spec]:
    if boxes.level is None:
        return []
    rule = {"type": "rule", "color": GREY, "strokeWidth": 1, "strokeDash": [3, 3]}
    return [
        {
            "data": {"values": [{"y": boxes.level}]},
            "mark": rule,
            "encoding": {"y": {"field": "y", "type": "quantitative"}},
        }
    ]


def _notes(boxes: Boxes, x: Spec) -> list[Spec]:
    if not boxes.notes:
        return []
    values = [{"group": group, "text": text} for group, text in boxes.notes.items()]
    return [
        {
            "data": {"values": values},
            "mark": {"type": "text", "fontSize": 9, "color": GREY, "baseline": "top", "lineBreak": "\n"},
            "encoding": {"x": x, "y": {"value": 3}, "text": {"field": "text"}},
        }
    ]


# --- intervals over one feature -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Interval:
    """Lower and upper ends over x, in the order of x."""

    low: Floats
    high: Floats


def intervals(
    x: Floats,
    y: Floats,
    bands: Mapping[str, Interval],
    styles: Mapping[str, Style],
    *,
    title: str,
    reach: tuple[float, float],
) -> Drawing:
    """Points, and the ends of several intervals as lines; what lies beyond `reach` is cut off."""
    seen = (y >= reach[0]) & (y <= reach[1])
    points = [{"x": float(f"{a:.4g}"), "y": float(f"{b:.4g}")} for a, b in zip(x[seen], y[seen], strict=True)]
    lines = [
        {"x": float(f"{a:.4g}"), "y": float(f"{b:.4g}"), "curve": name, "end": end}
        for name, band in bands.items()
        for end, ends in (("low", band.low), ("high", band.high))
        for a, b in zip(x, ends, strict=True)
    ]
    names, looks = list(styles), list(styles.values())
    place = {"field": "x", "type": "quantitative", "title": "X", "scale": {"zero": False, "nice": False}}
    height = {"field": "y", "type": "quantitative", "title": "Y", "scale": {"domain": list(reach)}}
    by_curve = {"field": "curve", "type": "nominal"}
    strokes = {
        "x": place,
        "y": height,
        "detail": {"field": "end"},
        "color": {**by_curve, "scale": {"domain": names, "range": [look.colour for look in looks]}},
        "strokeDash": {**by_curve, "scale": {"domain": names, "range": [list(look.dash) for look in looks]}},
    }
    dots = {"type": "point", "filled": True, "size": 8, "color": GREY, "opacity": 0.6}
    return Drawing(
        spec={
            "title": {"text": title, "anchor": "start", "fontSize": 14, "offset": 10},
            "width": 2 * WIDTH,
            "height": 2 * HEIGHT,
            "layer": [
                {"data": {"values": points}, "mark": dots, "encoding": {"x": place, "y": height}},
                {
                    "data": {"values": lines},
                    "mark": {"type": "line", "strokeWidth": 1.6, "clip": True, "interpolate": "step-after"},
                    "encoding": strokes,
                },
            ],
            "config": {
                "axis": {"gridColor": "#e8e8e8", "titleFontWeight": "normal"},
                "legend": {
                    "orient": "top",
                    "title": None,
                    "symbolType": "stroke",
                    "symbolSize": 500,
                    "symbolStrokeWidth": 2.5,
                    "labelLimit": 330,
                },
                "view": {"stroke": "#cccccc"},
            },
        }
    )
