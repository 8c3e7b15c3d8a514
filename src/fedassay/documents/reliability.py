"""Reliability diagrams: observed over predicted frequencies, drawn and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Results, missing
from fedassay.documents.palette import BLUE, ORANGE

BEFORE_AFTER = ("before", "after")

_LOOKS = {"all": (BLUE, [1, 0]), "before": (ORANGE, [5, 3]), "after": (BLUE, [1, 0])}
"""Colour and dashes of each part."""


def reliability(results: Results, *, name: str = "Reliability") -> CurveBlock:
    """Plot the observed fraction over the mean score in each bucket, with simultaneous intervals."""
    curve, metric = results["reliability_curve"], results["expected_calibration_error"]
    if not known(curve):
        return missing(name, why_not(curve), f"{name}: no diagram, because {why_not(curve)}.")
    title = name if metric["value"] is None else f"{name}, ECE {metric['value']:.3f}"
    below = f"bars: {curve['level']:.0%} for all buckets at once"
    return CurveBlock(
        draw=lambda: _diagram({"all": curve}, plots.titled(title, below)),
        alternative=f"{name} diagram: ECE {figures.told(metric)}; {_farthest(curve)}.",
    )


def change(results: Results, *, name: str = "Reliability") -> CurveBlock:
    """Plot before and after calibration in a diagram, on held-out rows; only one of them if the other is missing."""
    title, drawn = f"{name}, before and after", drawn_parts(results)
    if not drawn:
        reason = why_not(results["reliability_curve"]["before"])
        return missing(title, reason, f"No reliability diagram: {reason}.")
    errors = {part: results[part]["expected_calibration_error"] for part in drawn}
    below = ", ".join(f"{part} {figures.value(errors[part])}" for part in drawn)
    text = "; ".join(
        f"{part} calibration ECE {figures.told(errors[part])}, {_farthest(curve)}"
        for part, curve in drawn.items()
    )
    return CurveBlock(
        draw=lambda: _diagram(drawn, plots.titled(title, f"held-out rows; ECE {below}")),
        alternative=f"Reliability diagram on held-out rows: {text}.",
    )


def drawn_parts(results: Results) -> dict[str, Results]:
    """Return the curves before and after that have points."""
    curves = results["reliability_curve"]
    return {part: curves[part] for part in BEFORE_AFTER if known(curves[part])}


def known(curve: Results | None) -> list[dict[str, Any]]:
    """Return the buckets that have a point; none if there is no curve."""
    points = plots.points(curve, "mean_score", "observed", "lower", "upper") if curve else []
    return [point for point in points if point["observed"] is not None]


def why_not(curve: Results | None) -> str:
    """Return the reason why a curve has no point."""
    return str((curve or {}).get("reason", "no bucket has enough rows"))


def _diagram(curves: Mapping[str, Results], title: alt.TitleParams) -> alt.LayerChart:
    """Draw bars and lines with dots, distinguished by colour, and by dashes for the colour-blind."""
    points = [{**point, "part": part} for part, curve in curves.items() for point in known(curve)]
    parts = list(curves)
    colours, dashes = (list(looks) for looks in zip(*(_LOOKS[part] for part in parts), strict=True))
    several = alt.Legend(
        title=None, orient="bottom", symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1
    )
    legend = None if parts == ["all"] else several
    x = plots.unit("mean_score:Q", "mean score")
    y = plots.unit("observed:Q", "observed fraction", channel=alt.Y)
    colour = alt.Color("part:N", scale=alt.Scale(domain=parts, range=colours), legend=legend)
    rules = alt.Chart(alt.Data(values=points)).mark_rule(opacity=0.45, strokeWidth=3, clip=True)
    bars = rules.encode(x=x, y=alt.Y("lower:Q"), y2="upper:Q", color=colour)
    dots = alt.OverlayMarkDef(filled=True, size=36, opacity=1)
    lines = plots.strokes(points, "part", parts, colours=colours, dashes=dashes, legend=legend, point=dots)
    lines = lines.encode(x=x, y=y, order="mean_score:Q")
    return plots.square(alt.layer(plots.diagonal(), bars, lines), title)


def _farthest(curve: Results) -> str:
    """Describe the bucket in which the curve is farthest from the diagonal."""
    worst = max(known(curve), key=lambda point: abs(point["mean_score"] - point["observed"]))
    return (
        f"farthest off where scores of about {worst['mean_score']:.2f} meet an observed fraction of "
        f"{worst['observed']:.2f} ({worst['lower']:.2f} to {worst['upper']:.2f})"
    )
