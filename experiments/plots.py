"""Panels of curves with error bars, on log scales, in colours that colour-blind readers can tell apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from experiments.common import Point

WIDTH, HEIGHT = 215, 150
GREY, INK = "#767676", "#333333"


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a curve looks. Colours are those of Okabe and Ito; shape and dash say the same without colour."""

    colour: str
    shape: str = "circle"
    dash: tuple[int, ...] = (1, 0)


PUBLISHED_STYLE = Style(colour="#D55E00", shape="triangle-up")
SECOND_PUBLISHED_STYLE = Style(colour="#E69F00", shape="triangle-down", dash=(5, 2))
SAME_STYLE = Style(colour="#56B4E9", shape="square", dash=(2, 2))
DEFAULT_STYLE = Style(colour="#0072B2", shape="circle")
THIRD_STYLE = Style(colour="#009E73", shape="diamond", dash=(7, 2))
PLAIN_STYLE = Style(colour=GREY, shape="cross", dash=(4, 3))
BLACK_STYLE = Style(colour="#000000", shape="stroke", dash=(1, 2))

Styles = Mapping[str, Style]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point of a curve. Hollow: rows were drawn with replacement, because the data have fewer."""

    x: float
    point: Point
    hollow: bool = False


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A line without error bars, with its label above its last point or below its first."""

    label: str
    line: tuple[tuple[float, float], ...]
    below: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot: curves by name. `note` is written into it; nothing else is drawn."""

    title: str = ""
    x_title: str
    curves: Mapping[str, Sequence[Dot]] = field(default_factory=dict)
    guides: tuple[Guide, ...] = ()
    note: str = ""
    log_x: bool = True
    ticks: tuple[float, ...]


def constant(point: Point, ends: Sequence[float]) -> list[Dot]:
    """The curve of something that does not depend on x."""
    return [Dot(x=ends[0], point=point), Dot(x=ends[-1], point=point)]


def page(rows: Sequence[tuple[str, Sequence[Panel | None]]], styles: Styles, title: str) -> alt.VConcatChart:
    """Rows of panels: one y title and one y scale per row, one legend for all."""
    charts = [_row(y_title, panels, styles) for y_title, panels in rows]
    chart = alt.vconcat(*charts, spacing=18, title=alt.Title(title, anchor="start", fontSize=14, offset=10))
    return (
        chart.resolve_scale(color="shared", shape="shared", strokeDash="shared")
        .configure_axis(labelFontSize=10, titleFontSize=11, gridColor="#e8e8e8", titleFontWeight="normal")
        .configure_view(stroke="#cccccc")
        .configure_legend(
            orient="top",
            title=None,
            labelFontSize=11,
            symbolSize=70,
            symbolStrokeWidth=2,
            symbolOpacity=1,
            columns=4,
            labelLimit=260,
        )
    )


def save(chart: alt.VConcatChart, path: Path) -> None:
    """Write the chart as SVG, without what nobody sees: empty frames, roles of groups, thousandths of pixels."""
    svg = vl_convert.vegalite_to_svg(chart.to_json())
    svg = re.sub(
        r'<path class="(background|foreground)"[^>]*(d="M0,0h0v0h0Z"|display="none")[^>]*/>', "", svg
    )
    svg = re.sub(r' (role|class|aria-[a-z]+|pointer-events)="[^"]*"', "", svg)
    svg = re.sub(
        r' (d|transform)="[^"]*"',
        lambda shape: re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", shape[0]),
        svg,
    )
    path.write_text(svg, encoding="utf-8")


def _row(y_title: str, panels: Sequence[Panel | None], styles: Styles) -> alt.HConcatChart:
    """Panels beside each other; the first one has the axis. None leaves its place empty."""
    shown = [panel for panel in panels if panel is not None]
    domain = _domain(
        [dot.point.mean for panel in shown for dots in panel.curves.values() for dot in dots]
        + [y / 2 for panel in shown for guide in panel.guides if guide.below for _, y in guide.line]
    )
    charts = [
        _gap()
        if panel is None
        else _chart(panel, styles, domain, y_title=y_title if panel is shown[0] else "")
        for panel in panels
    ]
    return alt.hconcat(*charts, spacing=14, bounds="flush")


def _gap() -> alt.Chart:
    nothing = alt.Chart(alt.Data(values=[{}])).mark_point(opacity=0)
    return nothing.properties(width=WIDTH, height=HEIGHT, view=alt.ViewConfig(stroke=None))


def _domain(values: Sequence[float]) -> tuple[float, float]:
    """Whole decades (or their thirds) around all values that are not zero."""
    logs = [math.log10(value) for value in values if value > 0]
    low, high = min(logs), max(logs)
    return 10 ** (math.floor(3 * low) / 3 - 0.15), 10 ** (math.ceil(3 * high) / 3 + 0.15)


def _decades(domain: tuple[float, float]) -> list[float]:
    """Powers of ten, and 2 and 5 times them where there is room for few powers only."""
    first, last = (math.floor(math.log10(end)) for end in domain)
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    numbers = [float(f"{factor}e{power}") for power in range(first, last + 1) for factor in factors]
    return [number for number in numbers if domain[0] <= number <= domain[1]]


def _chart(panel: Panel, styles: Styles, domain: tuple[float, float], *, y_title: str) -> alt.LayerChart:
    records = _records(panel, domain)
    x_scale = alt.Scale(type="log" if panel.log_x else "linear", zero=False, nice=False, padding=8)
    form = "~s" if max(panel.ticks) >= 1000 else "~g"
    x = alt.X("x:Q", title=panel.x_title, scale=x_scale, axis=alt.Axis(values=list(panel.ticks), format=form))
    y_form = "~g" if domain[0] >= 3e-4 else ".0e"
    y_axis = alt.Axis(format=y_form, values=_decades(domain), labels=bool(y_title), ticks=bool(y_title))
    y = alt.Y(
        "y:Q",
        title=y_title or None,
        scale=alt.Scale(type="log", domain=list(domain), nice=False),
        axis=y_axis,
    )
    names = list(styles)
    colour = alt.Color("curve:N", scale=alt.Scale(domain=names, range=[s.colour for s in styles.values()]))
    shape = alt.Shape("curve:N", scale=alt.Scale(domain=names, range=[s.shape for s in styles.values()]))
    dash = alt.StrokeDash(
        "curve:N", scale=alt.Scale(domain=names, range=[list(s.dash) for s in styles.values()])
    )
    base = alt.Chart(alt.Data(values=records))
    bars = base.mark_rule(opacity=0.45, strokeWidth=1.2).encode(
        x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour
    )
    lines = base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, strokeDash=dash)
    dots = base.mark_point(size=38, opacity=1, filled=True).encode(x=x, y=y, color=colour, shape=shape)
    hollow = alt.Chart(alt.Data(values=[record for record in records if record["hollow"]]))
    holes = hollow.mark_point(size=9, opacity=1, filled=True, color="white").encode(x=x, y=y)
    layers = [*_guides(panel, domain), bars, lines, dots, holes, *_note(panel)]
    return alt.layer(*layers).properties(
        width=WIDTH, height=HEIGHT, title=alt.Title(panel.title, fontSize=12, fontWeight="normal")
    )


def _records(panel: Panel, domain: tuple[float, float]) -> list[dict[str, Any]]:
    """What Altair draws. Curves are moved apart a little, so that error bars do not hide each other."""

    def kept(value: float) -> float:
        return float(f"{min(max(value, domain[0]), domain[1]):.3g}")

    records = []
    for place, (name, dots) in enumerate(panel.curves.items()):
        shift = (place - (len(panel.curves) - 1) / 2) / len(panel.curves)
        for dot in dots:
            if dot.point.mean <= 0:
                continue
            records.append(
                {
                    "curve": name,
                    "x": float(f"{dot.x * 1.15**shift if panel.log_x else dot.x + 0.36 * shift:.4g}"),
                    "y": kept(dot.point.mean),
                    "low": kept(dot.point.low),
                    "high": kept(dot.point.high),
                    "hollow": dot.hollow,
                }
            )
    return records


def _guides(panel: Panel, domain: tuple[float, float]) -> list[alt.Chart]:
    layers = []
    for guide in panel.guides:
        line = [{"x": x, "y": y} for x, y in guide.line if domain[0] <= y <= domain[1]]
        if not line:
            continue
        layers.append(
            alt.Chart(alt.Data(values=line))
            .mark_line(color=GREY, strokeWidth=1, strokeDash=[3, 3])
            .encode(x="x:Q", y="y:Q")
        )
        label = alt.Chart(alt.Data(values=[line[0 if guide.below else -1] | {"label": guide.label}]))
        side, dy = ("left", 9) if guide.below else ("right", -9)
        layers.append(
            label.mark_text(color=GREY, align=side, dy=dy, fontSize=10).encode(
                x="x:Q", y="y:Q", text="label:N"
            )
        )
    return layers


def _note(panel: Panel) -> list[alt.Chart]:
    if not panel.note:
        return []
    text = alt.Chart(alt.Data(values=[{"note": panel.note}])).mark_text(
        align="right", baseline="top", fontSize=10, color=INK, lineBreak="\n"
    )
    return [text.encode(x=alt.value(WIDTH - 5), y=alt.value(6), text="note:N")]
