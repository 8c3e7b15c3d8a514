"""Frames of curves with shaded bands, in the colours of `plots`: what the page on distributions draws.

Written as Vega-Lite itself, a mapping: chart objects would copy and check all data many times over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.plots import GREY, Style

WIDTH, HEIGHT = 178, 150

Spec = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A point of a curve: its middle, and how far the band reaches (not at all, if not given)."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, x: float, runs: Sequence[float]) -> Spot:
        """The mean of several runs; the band holds the middle half of them."""
        low, high = np.quantile(runs, [0.25, 0.75])
        return cls(x=x, y=float(np.mean(runs)), low=float(low), high=float(high))


Curve = Sequence[Spot]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What an axis shows. Without a `domain` it spans the data."""

    title: str
    ticks: tuple[float, ...] = ()
    log: bool = True
    domain: tuple[float, float] | None = None
    form: str = "~g"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One plot. `level` is a dotted line across it."""

    title: str
    x: Axis
    y: Axis
    curves: Mapping[str, Curve]
    level: float | None = None
    height: int = HEIGHT
    width: int = WIDTH


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A Vega-Lite specification, as `plots.save` takes it."""

    spec: Spec

    def to_json(self) -> str:
        """As text."""
        return json.dumps(self.spec, ensure_ascii=False)


def page(
    rows: Sequence[Sequence[Frame]], styles: Mapping[str, Style], title: str, *, columns: int = 4
) -> Drawing:
    """Rows of frames with one legend. Frames of a row share the y axis if it has the same title."""
    legend = {
        "orient": "top",
        "title": None,
        "labelFontSize": 11,
        "symbolType": "stroke",
        "symbolSize": 500,
        "symbolStrokeWidth": 2.5,
        "symbolOpacity": 1,
        "columns": columns,
        "labelLimit": 330,
    }
    axis = {"labelFontSize": 10, "titleFontSize": 11, "gridColor": "#e8e8e8", "titleFontWeight": "normal"}
    spec = {
        "title": {"text": title, "anchor": "start", "fontSize": 14, "offset": 10},
        "vconcat": [_row(frames, styles) for frames in rows],
        "spacing": 18,
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        "config": {"axis": axis, "legend": legend, "view": {"stroke": "#cccccc"}},
    }
    return Drawing(spec=spec)


def _row(frames: Sequence[Frame], styles: Mapping[str, Style]) -> Spec:
    charts = []
    for place, frame in enumerate(frames):
        alike = [other for other in frames if other.y.title == frame.y.title]
        domain = frame.y.domain or _domain([_visible(other) for other in alike], log=frame.y.log)
        first = place == 0 or frames[place - 1].y.title != frame.y.title
        charts.append(_chart(frame, styles, domain, labelled=first))
    # Flush bounds align the frames, but leave no room for a second axis.
    bounds = "flush" if len({frame.y.title for frame in frames}) == 1 else "full"
    return {"hconcat": charts, "spacing": 16, "bounds": bounds}


def _visible(frame: Frame) -> list[float]:
    ys = [y for curve in frame.curves.values() for spot in curve for y in (spot.y, spot.low, spot.high)]
    return [y for y in ys if y is not None] + ([] if frame.level is None else [frame.level])


def _domain(values: Sequence[Sequence[float]], *, log: bool) -> tuple[float, float]:
    """A little more than the data, in decades where the axis is logarithmic."""
    flat = [value for several in values for value in several if value > 0 or not log]
    if not log:
        return min(0.0, *flat), 1.05 * max(flat)
    return 10 ** (math.log10(min(flat)) - 0.1), 10 ** (math.log10(max(flat)) + 0.1)


def _decades(domain: tuple[float, float]) -> list[float]:
    """Powers of ten, not more than seven, and 2 and 5 times them where there is room for few powers only."""
    first, last = (math.floor(math.log10(end)) for end in domain)
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    step = max(1, (last - first) // 6)
    numbers = [
        float(f"{factor}e{power}")
        for power in range(first, last + 1)
        for factor in factors
        if power % step == 0
    ]
    return [number for number in numbers if domain[0] <= number <= domain[1]]


def _chart(frame: Frame, styles: Mapping[str, Style], domain: tuple[float, float], *, labelled: bool) -> Spec:
    x = _channel("x", frame.x, frame.x.domain, {"format": frame.x.form}, frame.x.ticks)
    look = {"format": frame.y.form, "labels": labelled, "ticks": labelled}
    ticks = frame.y.ticks or (_decades(domain) if frame.y.log else ())
    y = _channel("y", frame.y, domain, look, ticks) | {"title": frame.y.title if labelled else None}
    names = list(styles)
    colour = _by_curve(names, [style.colour for style in styles.values()])
    dash = _by_curve(names, [list(style.dash) for style in styles.values()])
    shade = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "area", "opacity": 0.16},
        "encoding": {
            "x": x,
            "y": {"field": "low", "type": "quantitative"},
            "y2": {"field": "high"},
            "color": colour,
        },
    }
    order = {"field": "step", "type": "quantitative"}
    lines = {
        "mark": {"type": "line", "strokeWidth": 1.8, "clip": True},
        "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash, "order": order},
    }
    return {
        "title": {"text": frame.title, "fontSize": 12, "fontWeight": "normal"},
        "width": frame.width,
        "height": frame.height,
        "data": {"values": _records(frame, domain)},
        "layer": [*_level(frame), shade, lines],
    }


def _channel(
    name: str, axis: Axis, domain: tuple[float, float] | None, look: Spec, ticks: Sequence[float]
) -> Spec:
    scale: Spec = {"type": "log" if axis.log else "linear", "zero": False, "nice": False}
    if axis.log:
        del scale["zero"]
    return {
        "field": name,
        "type": "quantitative",
        "title": axis.title,
        "scale": scale | ({} if domain is None else {"domain": list(domain)}),
        "axis": look | ({"values": list(ticks)} if ticks else {}),
    }


def _by_curve(names: Sequence[str], looks: Sequence[Any]) -> Spec:
    return {"field": "curve", "type": "nominal", "scale": {"domain": list(names), "range": list(looks)}}


def _records(frame: Frame, domain: tuple[float, float]) -> list[dict[str, Any]]:
    def kept(value: float) -> float:
        return float(f"{min(max(value, domain[0]), domain[1]):.4g}")

    records = []
    for name, curve in frame.curves.items():
        for step, spot in enumerate(curve):
            record = {"curve": name, "step": step, "x": float(f"{spot.x:.5g}"), "y": kept(spot.y)}
            if spot.low is not None and spot.high is not None:
                record |= {"low": kept(spot.low), "high": kept(spot.high)}
            records.append(record)
    return records


def _level(frame: Frame) -> list[Spec]:
    if frame.level is None:
        return []
    rule = {"type": "rule", "color": GREY, "strokeWidth": 1, "strokeDash": [3, 3]}
    y = {"field": "y", "type": "quantitative"}
    return [{"data": {"values": [{"y": frame.level}]}, "mark": rule, "encoding": {"y": y}}]
