"""Common functions of plots: theme, conversion for a page, conversion to a file. Altair draws them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

import altair as alt

from fedassay.documents.palette import BAND, BAND_OPACITY, BLUE, LIGHT, MUTED, THEME
from fedassay.errors import UsageError
from fedassay.protocol.files import replacement

Chart = TypeVar("Chart", bound=alt.TopLevelMixin)

SUFFIXES = (".svg", ".png", ".pdf")

SIDE = 300
"""Width of a square plot in pixels."""

_LINE = 44
"""Number of characters that fit into the width of a square plot."""

_READABLE = 0.7
"""Smallest factor by which a plot may shrink before its words are too small."""

_LONGEST, _WIDE = 180, 7.5
"""Pixels of the longest name, and of a character in a wide font, because the reader's font is unknown."""

_VARIABLES = {colour: f"var({name}, {colour})" for name, colour in LIGHT.items()}
_USE = re.compile(r"url\(#([^)]*)\)")


def framed(chart: Chart) -> Chart:
    """Apply the common theme, as the last step: a plot with a theme cannot become a part of another."""
    looked: Chart = chart.configure(**THEME)
    return looked


# --- into a page ------------------------------------------------------------------------------------------------------


_NOT_IN_XML = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff]")
"""Control characters, lone surrogates and noncharacters."""


def as_svg(chart: alt.TopLevelMixin, *, key: str = "") -> str:
    """Return a chart as SVG text for a page.

    It has no background. Its colours are those of the page, as CSS variables (`palette.LIGHT` names them), and the
    light colours if the page has none. It has its own size if there is room, and shrinks until words would
    be too small; its container should scroll (``overflow-x: auto``) if there is less. Ids are made from the
    drawing, so they differ from those of other plots; if a plot is on a page twice, each needs its `key`.

    The same chart gives the same text. It is hidden from screen readers: the page must describe it in words.
    """
    import vl_convert

    spec = chart.to_dict(validate=False)  # twice as fast; tests save these charts, and saving validates them
    spec["config"] = {**spec.get("config", {}), **THEME, "background": None}
    text = json.dumps(_drawable(spec))
    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(text))
    # Vega numbers ids on and on over all charts.
    found = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    mine = f"plot-{hashlib.sha256((key + text).encode()).hexdigest()[:10]}"
    ids = {name: f"{mine}-{number}" for number, name in enumerate(found)}
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {
            name: _in_a_page(name, value, ids)
            for name, value in element.attrib.items()
            if name != "role" and not name.startswith("aria-")
        }
    root.attrib = _of_the_root(float(root.attrib["width"]), float(root.attrib["height"]))
    return ElementTree.tostring(root, encoding="unicode")


def _in_a_page(name: str, value: str, ids: Mapping[str, str]) -> str:
    """Return an attribute with the page's colours, and with an id that no other plot has."""
    if name in ("fill", "stroke"):
        return _VARIABLES.get(value, value)
    if name == "id":
        return ids[value]
    used = _USE.fullmatch(value)
    return f"url(#{ids[used[1]]})" if used else value


def _of_the_root(width: float, height: float) -> dict[str, str]:
    style = f"width:{width:g}px;max-width:100%;min-width:{_READABLE * width:.0f}px;height:auto"
    return {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {width:g} {height:g}",
        "style": style,
        "fill": "none",
        "aria-hidden": "true",
        "focusable": "false",
    }


# --- into a file ------------------------------------------------------------------------------------------------------


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> None:
    """Write a chart for a paper or slides: ``.svg``, ``.png`` (two pixels for one) or ``.pdf``.

    It has light colours on a white background, unlike a page. The file needs no other; so there is no ``.html``, which
    would load Vega from the network.
    """
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise UsageError(
            f"{target}: got suffix {target.suffix!r}, expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
        )
    drawn = alt.Chart.from_dict(_drawable(chart.to_dict()))
    options = {"scale_factor": 2} if target.suffix == ".png" else {}
    with replacement(target) as partial:
        drawn.save(str(partial), format=target.suffix.removeprefix("."), **options)


def _drawable(spec: Any) -> Any:
    """Remove characters that no SVG can hold: they would make the renderer end this process."""
    if isinstance(spec, dict):
        return {key: _drawable(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_drawable(value) for value in spec]
    return _NOT_IN_XML.sub("\ufffd", spec) if isinstance(spec, str) else spec


# --- parts of plots ---------------------------------------------------------------------------------------------------


def diagonal() -> alt.Chart:
    """Draw the dashed line on which both axes agree."""
    ends = [{"x": 0, "y": 0}, {"x": 1, "y": 1}]
    return (
        alt.Chart(alt.Data(values=ends))
        .mark_line(color=MUTED, strokeDash=[4, 4], strokeWidth=1.5, clip=True)
        .encode(x="x:Q", y="y:Q")
    )


def square(chart: alt.LayerChart, title: str | alt.TitleParams) -> alt.LayerChart:
    """Make a chart square, with a title."""
    return chart.properties(width=SIDE, height=SIDE, title=title)


def titled(text: str, below: str = "") -> alt.TitleParams:
    """Return a title at the left, where a narrow screen shows it, and a smaller line below it."""
    return alt.TitleParams(text=text, anchor="start", **({"subtitle": below} if below else {}))


def unit(field: str, title: str, *, channel: type[Any] = alt.X) -> Any:
    """Return an axis from 0 to 1, for `alt.X` or `alt.Y`."""
    return channel(field, title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))


def named(order: Sequence[str], *, labels: bool = True) -> alt.Y:
    """Return an axis of names, from above, with room for them in any font."""
    longest = max((len(name) for name in order), default=0) if labels else 0
    axis = alt.Axis(
        labels=labels,
        ticks=False,
        domain=False,
        labelPadding=6,
        labelLimit=_LONGEST,
        minExtent=min(_LONGEST, _WIDE * longest) if labels else 0,
    )
    return alt.Y("name:N", sort=list(order), title=None, scale=alt.Scale(domain=list(order)), axis=axis)


def empty(title: str, reason: str) -> alt.LayerChart:
    """Return an empty plot with the reason why its content is missing."""
    note = alt.Chart(alt.Data(values=[{}])).mark_text(text=textwrap.wrap(reason, _LINE), align="center")
    return square(alt.layer(note), titled(title))


def points(curve: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
    """Return the lists of a curve as an entry for each point.

    Examples
    --------
    >>> points({"x": [0, 1], "y": [2, 3], "level": 0.95}, "x", "y")
    [{'x': 0, 'y': 2}, {'x': 1, 'y': 3}]
    """
    columns = (curve[name] for name in names)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def nearest(entries: Sequence[Mapping[str, Any]], name: str, value: float) -> Mapping[str, Any]:
    """Return the point that is nearest to a value of this coordinate."""
    return min(entries, key=lambda entry: abs(entry[name] - value))


def band(entries: Sequence[Mapping[str, Any]], x: alt.X) -> alt.Chart:
    """Draw a band from `lower` to `upper`, around a single curve."""
    base = alt.Chart(alt.Data(values=list(entries)))
    area = base.mark_area(color=BAND, opacity=BAND_OPACITY, clip=True)
    return area.encode(x=x, y=alt.Y("lower:Q"), y2="upper:Q")


def line(entries: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, *, order: str) -> alt.Chart:
    """Draw the curve itself."""
    base = alt.Chart(alt.Data(values=list(entries))).mark_line(color=BLUE, strokeWidth=2, clip=True)
    return base.encode(x=x, y=y, order=order)


def strokes(
    values: Sequence[Mapping[str, Any]],
    field: str,
    names: Sequence[str],
    *,
    colours: Sequence[str],
    dashes: Sequence[Sequence[int]],
    legend: alt.Legend | None,
    **mark: Any,
) -> alt.Chart:
    """Draw lines of several names, distinguished by colours, and by dashes for the colour-blind."""
    base = alt.Chart(alt.Data(values=list(values))).mark_line(**{"strokeWidth": 2, "clip": True, **mark})
    colour = alt.Scale(domain=list(names), range=list(colours))
    dash = alt.Scale(domain=list(names), range=[list(one) for one in dashes])
    return base.encode(
        color=alt.Color(f"{field}:N", scale=colour, legend=legend),
        strokeDash=alt.StrokeDash(f"{field}:N", scale=dash, legend=legend),
    )


IntervalKind = tuple[str, str, str]
"""Kind of interval: its name, colour and shape."""


def interval_mark(name: str, metric: Mapping[str, Any], kind: str = "one") -> dict[str, Any] | None:
    """Return a metric as a line of `intervals`; None if it has no value."""
    if metric["value"] is None:
        return None
    low, high = metric.get("interval") or (metric["value"], metric["value"])
    return {"name": name, "value": metric["value"], "low": low, "high": high, "kind": kind}


def intervals(
    marks: Sequence[Mapping[str, Any]],
    x: alt.X,
    order: Sequence[str],
    *,
    kinds: Sequence[IntervalKind] = (("one", BLUE, "circle"),),
    labels: bool = True,
    at: float | None = None,
    step: int = 18,
) -> alt.LayerChart:
    """Draw a line for each name: a dot on its interval, colour and shape by kind; a dashed line at `at`."""
    names, colours, shapes = (list(column) for column in zip(*kinds, strict=True))
    colour = alt.Color("kind:N", legend=None, scale=alt.Scale(domain=names, range=colours))
    shape = alt.Shape("kind:N", legend=None, scale=alt.Scale(domain=names, range=shapes))
    y = named(order, labels=labels)
    base = alt.Chart(alt.Data(values=list(marks)))
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q", y=y, color=colour)
    dots = base.mark_point(filled=True, size=50, opacity=1)
    dots = dots.encode(x="value:Q", y=y, color=colour, shape=shape)
    rules = [] if at is None else [level_rule(at, axis="x")]
    return alt.layer(*rules, bars, dots).properties(height=step * max(1, len(order)))


def level_rule(value: float, *, axis: str) -> alt.Chart:
    """Draw a dashed line across the whole plot, at a value of the axis ``x`` or ``y``."""
    base = alt.Chart(alt.Data(values=[{"at": value}]))
    return base.mark_rule(color=MUTED, strokeDash=[4, 4], strokeWidth=1.5).encode(**{axis: "at:Q"})
