"""The curves of a binary classifier with their bands, and each in words. Read only a task's ``results``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.palette import BLUE, MUTED, ORANGE
from fedassay.documents.reliability_plots import reliability

Results = Mapping[str, Any]

_WIDTH, _HEIGHT = 300, 240
_ROOM = 0.4
"""How far below zero a plot of net benefits reaches, as a share of how far it reaches above."""


def overview(document: Results) -> alt.HConcatChart:
    """ROC curve and reliability diagram beside each other."""
    results = document["results"]
    return plots.framed(alt.hconcat(roc(results), reliability(results)))


def save_overview(document: Results, path: str | os.PathLike[str]) -> None:
    """Write the overview to a file, see `plots.save`."""
    plots.save(overview(document), path)


# --- ROC --------------------------------------------------------------------------------------------------------------

_ROC = ("fpr", "tpr", "lower", "upper")


def roc(results: Results) -> alt.LayerChart:
    """The ROC curve with its simultaneous band."""
    curve = results["roc_curve"]
    if not curve.get("fpr"):
        return plots.empty("ROC curve", curve["reason"])
    points = plots.points(curve, *_ROC)
    x = plots.unit("fpr:Q", "false positive rate")
    y = plots.unit("tpr:Q", "true positive rate", channel=alt.Y)
    layers = (plots.diagonal(), plots.band(points, x), plots.line(points, x, y, order="fpr:Q"))
    words = plots.titled(_with("ROC curve", "AUC", results["roc_auc"]), _banded(curve))
    return plots.square(alt.layer(*layers), words)


def roc_alternative(results: Results) -> str:
    """The plot in words."""
    curve = results["roc_curve"]
    if not curve.get("fpr"):
        return f"No ROC curve: {curve['reason']}."
    said = ", ".join(
        f"at a false positive rate of {at['fpr']:.2f} the true positive rate is {_between(at, 'tpr')}"
        for rate in (0.1, 0.2)
        for at in [plots.nearest(plots.points(curve, *_ROC), "fpr", rate)]
    )
    return f"ROC curve with its band: AUC {figures.told(results['roc_auc'])}; {said}."


# --- precision and recall ---------------------------------------------------------------------------------------------

_PRECISION = ("recall", "precision", "lower", "upper")


def precision_recall(results: Results) -> alt.LayerChart:
    """Precision over recall with its simultaneous band; dashed: the prevalence, where a useless model stays."""
    curve = results["precision_recall_curve"]
    if not curve.get("recall"):
        return plots.empty("Precision-recall curve", curve["reason"])
    points = plots.points(curve, *_PRECISION)
    x = plots.unit("recall:Q", "recall")
    y = plots.unit("precision:Q", "precision", channel=alt.Y)
    rule = plots.level_rule(results["prevalence"]["value"], axis="y")
    layers = (rule, plots.band(points, x), plots.line(points, x, y, order="recall:Q"))
    title = _with("Precision-recall curve", "AP", results["average_precision"])
    words = plots.titled(title, f"{_banded(curve)}; dashed: prevalence")
    return plots.square(alt.layer(*layers), words)


def precision_recall_alternative(results: Results) -> str:
    """The plot in words."""
    curve = results["precision_recall_curve"]
    if not curve.get("recall"):
        return f"No precision-recall curve: {curve['reason']}."
    at = plots.nearest(plots.points(curve, *_PRECISION), "recall", 0.8)
    return (
        f"Precision-recall curve with its band: average precision {figures.told(results['average_precision'])}, "
        f"prevalence {figures.value(results['prevalence'])}; at a recall of {at['recall']:.2f} the precision is "
        f"{_between(at, 'precision')}."
    )


# --- net benefit ------------------------------------------------------------------------------------------------------

_BENEFIT = ("thresholds", "net_benefit", "lower", "upper", "treat_all")
_RULES = ("the model", "treat all", "treat none")


def net_benefit(results: Results) -> alt.LayerChart:
    """Net benefit over the threshold with its simultaneous band, and what treating all or none would give."""
    curve, title = results["net_benefit_curve"], "Net benefit"
    if not curve.get("thresholds"):
        return plots.empty(title, curve["reason"])
    points = plots.points(curve, *_BENEFIT)
    columns = {"the model": "net_benefit", "treat all": "treat_all", "treat none": None}
    lines = [
        {"rule": rule, "threshold": point["thresholds"], "benefit": point[column] if column else 0.0}
        for rule, column in columns.items()
        for point in points
    ]
    top = 1.1 * max(max(curve["upper"]), 1e-3)
    scale = alt.Scale(domain=[-_ROOM * top, top], nice=False)
    x = plots.unit("thresholds:Q", "threshold")
    legend = alt.Legend(title=None, orient="bottom", symbolType="stroke", symbolStrokeWidth=3)
    rules = list(_RULES)
    base = alt.Chart(alt.Data(values=lines)).mark_line(strokeWidth=2, clip=True)
    drawn = base.encode(
        x=plots.unit("threshold:Q", "threshold"),
        y=alt.Y("benefit:Q", title="net benefit", scale=scale, axis=alt.Axis(tickCount=6)),
        order="threshold:Q",
        color=alt.Color("rule:N", scale=alt.Scale(domain=rules, range=[BLUE, ORANGE, MUTED]), legend=legend),
        strokeDash=alt.StrokeDash(
            "rule:N", scale=alt.Scale(domain=rules, range=[[1, 0], [5, 3], [2, 2]]), legend=legend
        ),
    )
    chart = alt.layer(plots.band(points, x), drawn)
    return chart.properties(width=_WIDTH, height=_HEIGHT, title=plots.titled(title, _banded(curve)))


def net_benefit_alternative(results: Results) -> str:
    """The plot in words: where the model is better than both simple rules, and what it gives at one threshold."""
    curve = results["net_benefit_curve"]
    if not curve.get("thresholds"):
        return f"No net benefit curve: {curve['reason']}."
    points = plots.points(curve, *_BENEFIT)
    better = [at["thresholds"] for at in points if at["lower"] > max(0.0, at["treat_all"])]
    where = (
        f"surely above treating all and treating none at {len(better)} of {len(points)} thresholds, between "
        f"{min(better):.2f} and {max(better):.2f}"
        if better
        else "nowhere surely above both treating all and treating none"
    )
    first = results["thresholds"][0]
    told = f"; {figures.told(first['net_benefit'])} at {first['threshold']:g}"
    return f"Net benefit over the threshold with its band: {where}{told}."


# --- words ------------------------------------------------------------------------------------------------------------


def _with(title: str, name: str, metric: Results) -> str:
    return title if metric["value"] is None else f"{title}, {name} {metric['value']:.3f}"


def _banded(curve: Results) -> str:
    return f"{curve['level']:.0%} band for the whole curve"


def _between(at: Results, name: str) -> str:
    return f"{at[name]:.2f} ({at['lower']:.2f} to {at['upper']:.2f})"
