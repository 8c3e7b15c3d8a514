"""The curves of a binary classifier with their simultaneous bands, each drawn and in words."""

from __future__ import annotations

import os
from collections.abc import Sequence

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Document, Results, missing
from fedassay.documents.palette import BLUE, MUTED, ORANGE
from fedassay.documents.reliability import reliability

_WIDTH, _HEIGHT = 300, 240
_ROOM = 0.4
"""How far below zero a plot of net benefits reaches, as a share of how far it reaches above."""


def overview(document: Document) -> alt.HConcatChart:
    """ROC curve and reliability diagram beside each other."""
    results = document["results"]
    return plots.framed(alt.hconcat(roc(results).draw(), reliability(results).draw()))


def save_overview(document: Document, path: str | os.PathLike[str]) -> None:
    """Write the overview to a file, see `plots.save`."""
    plots.save(overview(document), path)


def roc(results: Results) -> CurveBlock:
    """The ROC curve."""
    curve = results["roc_curve"]
    if not curve.get("fpr"):
        return missing("ROC curve", curve["reason"], f"No ROC curve: {curve['reason']}.")
    points = plots.points(curve, "fpr", "tpr", "lower", "upper")
    text = ", ".join(
        f"at a false positive rate of {at['fpr']:.2f} the true positive rate is {_with_band(at, 'tpr')}"
        for rate in (0.1, 0.2)
        for at in [plots.nearest(points, "fpr", rate)]
    )
    return CurveBlock(
        draw=lambda: _square(
            points,
            ("fpr", "false positive rate"),
            ("tpr", "true positive rate"),
            plots.diagonal(),
            plots.titled(_with("ROC curve", "AUC", results["roc_auc"]), _banded(curve)),
        ),
        alternative=f"ROC curve with its band: AUC {figures.told(results['roc_auc'])}; {text}.",
        marks="roc",
    )


def precision_recall(results: Results) -> CurveBlock:
    """Precision over recall; dashed: the prevalence, where a useless model stays."""
    curve, average, prevalence = (
        results[name] for name in ("precision_recall_curve", "average_precision", "prevalence")
    )
    if not curve.get("recall"):
        text = f"No precision-recall curve: {curve['reason']}."
        return missing("Precision-recall curve", curve["reason"], text)
    points = plots.points(curve, "recall", "precision", "lower", "upper")
    at = plots.nearest(points, "recall", 0.8)
    title = _with("Precision-recall curve", "AP", average)
    return CurveBlock(
        draw=lambda: _square(
            points,
            ("recall", "recall"),
            ("precision", "precision"),
            plots.level_rule(prevalence["value"], axis="y"),
            plots.titled(title, f"{_banded(curve)}; dashed: prevalence"),
        ),
        alternative=f"Precision-recall curve with its band: average precision {figures.told(average)}, prevalence "
        f"{figures.value(prevalence)}; at a recall of {at['recall']:.2f} the precision is "
        f"{_with_band(at, 'precision')}.",
        marks="precision-recall",
    )


def _square(
    points: Sequence[Results],
    across: tuple[str, str],
    up: tuple[str, str],
    reference: alt.Chart,
    title: alt.TitleParams,
) -> alt.LayerChart:
    """A curve with its band over a reference line, in a square; axes are given as field and title."""
    x = plots.unit(f"{across[0]}:Q", across[1])
    y = plots.unit(f"{up[0]}:Q", up[1], channel=alt.Y)
    line = plots.line(points, x, y, order=f"{across[0]}:Q")
    return plots.square(alt.layer(reference, plots.band(points, x), line), title)


def net_benefit(results: Results) -> CurveBlock:
    """Net benefit over the threshold, and what treating all or none would give."""
    curve = results["net_benefit_curve"]
    if not curve.get("thresholds"):
        return missing("Net benefit", curve["reason"], f"No net benefit curve: {curve['reason']}.")
    points = plots.points(curve, "thresholds", "net_benefit", "lower", "upper", "treat_all")
    better = [at["thresholds"] for at in points if at["lower"] > max(0.0, at["treat_all"])]
    where = (
        f"surely above treating all and treating none at {len(better)} of {len(points)} thresholds, between "
        f"{min(better):.2f} and {max(better):.2f}"
        if better
        else "nowhere surely above both treating all and treating none"
    )
    first = results["thresholds"][0]
    text = f"{where}; {figures.told(first['net_benefit'])} at {first['threshold']:g}"
    return CurveBlock(
        draw=lambda: _benefits(curve, points),
        alternative=f"Net benefit over the threshold with its band: {text}.",
        marks="threshold",
    )


def _benefits(curve: Results, points: Sequence[Results]) -> alt.LayerChart:
    columns = {"the model": "net_benefit", "treat all": "treat_all", "treat none": None}
    lines = [
        {"rule": rule, "threshold": point["thresholds"], "benefit": point[column] if column else 0.0}
        for rule, column in columns.items()
        for point in points
    ]
    top = 1.1 * max(max(curve["upper"]), 1e-3)
    scale = alt.Scale(domain=[-_ROOM * top, top], nice=False)
    drawn = plots.strokes(
        lines,
        "rule",
        list(columns),
        colours=[BLUE, ORANGE, MUTED],
        dashes=[[1, 0], [5, 3], [2, 2]],
        legend=alt.Legend(title=None, orient="bottom", symbolType="stroke", symbolStrokeWidth=3),
    ).encode(
        x=plots.unit("threshold:Q", "threshold"),
        y=alt.Y("benefit:Q", title="net benefit", scale=scale, axis=alt.Axis(tickCount=6)),
        order="threshold:Q",
    )
    chart = alt.layer(plots.band(points, plots.unit("thresholds:Q", "threshold")), drawn)
    title = plots.titled("Net benefit", _banded(curve))
    return chart.properties(width=_WIDTH, height=_HEIGHT, title=title)


def _with(title: str, name: str, metric: Results) -> str:
    return title if metric["value"] is None else f"{title}, {name} {metric['value']:.3f}"


def _banded(curve: Results) -> str:
    return f"{curve['level']:.0%} band for the whole curve"


def _with_band(at: Results, name: str) -> str:
    return f"{at[name]:.2f} ({at['lower']:.2f} to {at['upper']:.2f})"
