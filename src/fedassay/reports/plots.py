"""The plots of a result, with bands. Read only the result's JSON; Altair draws them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import altair as alt

from fedassay.errors import UsageError

Document = Mapping[str, Any]
Chart = TypeVar("Chart", alt.LayerChart, alt.HConcatChart)

BLUE, GREY = "#2166ac", "#999999"
_SIDE, _LINE = 300, 48
"""Pixels of a plot, and how many characters fit into them."""


def roc_plot(document: Document) -> alt.LayerChart:
    """The ROC curve with its simultaneous band."""
    curve = document["results"]["roc_curve"]
    if not curve.get("fpr"):
        return empty("ROC curve", curve["reason"])
    points = [
        {"fpr": fpr, "tpr": tpr, "lower": lower, "upper": upper}
        for fpr, tpr, lower, upper in zip(
            curve["fpr"], curve["tpr"], curve["lower"], curve["upper"], strict=True
        )
    ]
    metric = document["results"]["roc_auc"]
    title = "ROC curve" if metric["value"] is None else f"ROC curve, AUC {metric['value']:.3f}"
    base = alt.Chart(alt.Data(values=points))
    x = alt.X("fpr:Q", title="false positive rate", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("tpr:Q", title="true positive rate", scale=alt.Scale(domain=[0, 1]))
    band = base.mark_area(color=BLUE, opacity=0.2, clip=True).encode(x=x, y=alt.Y("lower:Q"), y2="upper:Q")
    line = base.mark_line(color=BLUE, clip=True).encode(x=x, y=y, order="fpr:Q")
    return square(alt.layer(diagonal(), band, line), title)


def reliability_plot(document: Document, *, name: str = "Reliability") -> alt.LayerChart:
    """Observed fraction against mean score in each bucket, with simultaneous bands."""
    curve = document["results"]["reliability_curve"]
    if not curve.get("mean_score"):
        return empty(name, curve["reason"])
    points = [
        {"score": score, "observed": observed, "lower": lower, "upper": upper}
        for score, observed, lower, upper in zip(
            curve["mean_score"], curve["observed"], curve["lower"], curve["upper"], strict=True
        )
        if observed is not None
    ]
    metric = document["results"]["expected_calibration_error"]
    title = name if metric["value"] is None else f"{name}, ECE {metric['value']:.3f}"
    base = alt.Chart(alt.Data(values=points))
    x = alt.X("score:Q", title="mean score", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("observed:Q", title="observed fraction", scale=alt.Scale(domain=[0, 1]))
    bars = base.mark_rule(color=BLUE, opacity=0.5, strokeWidth=3, clip=True).encode(
        x=x, y=alt.Y("lower:Q"), y2="upper:Q"
    )
    line = base.mark_line(color=BLUE, point=True, clip=True).encode(x=x, y=y, order="score:Q")
    return square(alt.layer(diagonal(), bars, line), title)


def overview(document: Document) -> alt.HConcatChart:
    """ROC curve and reliability diagram beside each other."""
    return framed(alt.hconcat(roc_plot(document), reliability_plot(document)))


def framed(chart: Chart) -> Chart:
    """With a thin frame around each plot."""
    return chart.configure_view(stroke=GREY)


def save_overview(document: Document, path: Path) -> None:
    """Write the overview as `.svg`, `.png` or `.html`."""
    if path.suffix not in (".svg", ".png", ".html"):
        raise UsageError(f"{path}: got suffix {path.suffix!r}, expected .svg, .png or .html.")
    overview(document).save(str(path), **({"scale_factor": 2} if path.suffix == ".png" else {}))


def as_svg(chart: alt.TopLevelMixin) -> str:
    """A chart as SVG text, to be put into a page."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(chart.to_json()))


def diagonal() -> alt.Chart:
    """The dashed line on which both axes agree."""
    ends = [{"x": 0, "y": 0}, {"x": 1, "y": 1}]
    return (
        alt.Chart(alt.Data(values=ends))
        .mark_line(color=GREY, strokeDash=[4, 4], clip=True)
        .encode(x="x:Q", y="y:Q")
    )


def square(chart: alt.LayerChart, title: str) -> alt.LayerChart:
    """With as many pixels up as across."""
    return chart.properties(width=_SIDE, height=_SIDE, title=title)


def empty(title: str, reason: str) -> alt.LayerChart:
    """A plot of something that is not there, with the reason in its place."""
    note = alt.Chart(alt.Data(values=[{}])).mark_text(text=textwrap.wrap(reason, _LINE), align="center")
    return square(alt.layer(note), title)
