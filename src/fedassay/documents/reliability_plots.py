"""Reliability diagrams: what was observed over what was predicted, and in words. Read only a task's ``results``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.palette import BLUE, ORANGE

Results = Mapping[str, Any]

PARTS = ("before", "after")
_NAMES = ("mean_score", "observed", "lower", "upper")


def reliability(results: Results, *, name: str = "Reliability") -> alt.LayerChart:
    """Observed fraction over mean score in each bucket, with simultaneous intervals."""
    curve = results["reliability_curve"]
    if not known(curve):
        return plots.empty(name, why_not(curve))
    metric = results["expected_calibration_error"]
    title = name if metric["value"] is None else f"{name}, ECE {metric['value']:.3f}"
    below = f"bars: {curve['level']:.0%} for all buckets at once"
    chart = alt.layer(plots.diagonal(), *_marks({"all": curve}, [BLUE], [[1, 0]], legend=None))
    return plots.square(chart, plots.titled(title, below))


def reliability_alternative(results: Results, *, name: str = "Reliability") -> str:
    """The plot in words."""
    curve = results["reliability_curve"]
    if not known(curve):
        return f"{name}: no diagram, because {why_not(curve)}."
    return f"{name} diagram: ECE {figures.told(results['expected_calibration_error'])}; {_farthest(curve)}."


def change(results: Results, *, name: str = "Reliability") -> alt.LayerChart:
    """Before and after calibration in one diagram, on held-out rows; one of them where the other is missing."""
    title, drawn = f"{name}, before and after", drawn_parts(results)
    if not drawn:
        return plots.empty(title, why_not(results["reliability_curve"]["before"]))
    errors = ", ".join(
        f"{part} {figures.value(results[part]['expected_calibration_error'])}" for part in drawn
    )
    colours = {"before": ORANGE, "after": BLUE}
    dashes = {"before": [5, 3], "after": [1, 0]}
    legend = alt.Legend(
        title=None, orient="bottom", symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1
    )
    marks = _marks(drawn, [colours[part] for part in drawn], [dashes[part] for part in drawn], legend=legend)
    return plots.square(
        alt.layer(plots.diagonal(), *marks), plots.titled(title, f"held-out rows; ECE {errors}")
    )


def change_alternative(results: Results) -> str:
    """The plot in words."""
    drawn = drawn_parts(results)
    if not drawn:
        return f"No reliability diagram: {why_not(results['reliability_curve']['before'])}."
    said = "; ".join(
        f"{part} calibration ECE {figures.told(results[part]['expected_calibration_error'])}, {_farthest(curve)}"
        for part, curve in drawn.items()
    )
    return f"Reliability diagram on held-out rows: {said}."


def drawn_parts(results: Results) -> dict[str, Results]:
    """The curves that have points."""
    curves = results["reliability_curve"]
    return {part: curves[part] for part in PARTS if known(curves[part])}


def known(curve: Results | None) -> list[dict[str, Any]]:
    """The buckets that have a point; there may be no curve at all."""
    if not curve:
        return []
    return [point for point in plots.points(curve, *_NAMES) if point["observed"] is not None]


def why_not(curve: Results | None) -> str:
    """Why a curve has no point."""
    return str((curve or {}).get("reason", "no bucket has enough rows"))


def _marks(
    curves: Mapping[str, Results], colours: list[str], dashes: list[list[int]], *, legend: alt.Legend | None
) -> tuple[alt.Chart, alt.Chart]:
    """Bars and lines with dots, told apart by colour, and by dashes for those who do not see it."""
    named = [{**point, "part": part} for part, curve in curves.items() for point in known(curve)]
    base = alt.Chart(alt.Data(values=named))
    x = plots.unit("mean_score:Q", "mean score")
    y = plots.unit("observed:Q", "observed fraction", channel=alt.Y)
    colour = alt.Color("part:N", scale=alt.Scale(domain=list(curves), range=colours), legend=legend)
    dash = alt.StrokeDash("part:N", scale=alt.Scale(domain=list(curves), range=dashes), legend=legend)
    bars = base.mark_rule(opacity=0.45, strokeWidth=3, clip=True).encode(
        x=x, y=alt.Y("lower:Q"), y2="upper:Q", color=colour
    )
    line = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(filled=True, size=36, opacity=1), clip=True)
    return bars, line.encode(x=x, y=y, order="mean_score:Q", color=colour, strokeDash=dash)


def _farthest(curve: Results) -> str:
    """Where the curve is farthest from the diagonal."""
    worst = max(known(curve), key=lambda point: abs(point["mean_score"] - point["observed"]))
    return (
        f"farthest off where scores of about {worst['mean_score']:.2f} meet an observed fraction of "
        f"{worst['observed']:.2f} ({worst['lower']:.2f} to {worst['upper']:.2f})"
    )
