"""Hosmer-Lemeshow test: its groups as a table and a plot, and a check that it is reliable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Document, Results, TableBlock, table
from fedassay.documents.palette import BLUE

FEWEST = 5
"""Fewest expected positives and negatives of a group: the usual rule for a chi-squared test."""

THIN = f"It rests on groups with fewer than {FEWEST} expected positives or negatives; do not rely on it."


def goodness_blocks(document: Document) -> Iterator[TableBlock | CurveBlock]:
    """Yield observed over expected rates, then the groups and the meaning of the test."""
    test = document["results"]["hosmer_lemeshow"]
    groups = test.get("groups") or ()
    if groups:
        text = f"Observed and expected rates; {meaning(test)}"
        yield CurveBlock(draw=lambda: _rates(test), alternative=text)
    yield table(
        f"Hosmer-Lemeshow, {document['parameters']['method']}",
        ("scores", "rows", "observed", "expected", "difference"),
        (
            (
                f"{group['lower']:.4g} to {group['upper']:.4g}",
                f"{group['rows']:,.0f}",
                f"{group['observed']:,.1f}",
                f"{group['expected']:,.1f}",
                f"{group['observed'] - group['expected']:+,.1f}",
            )
            for group in groups
        ),
        notes=(meaning(test), THIN if is_thin(test) else "", *test.get("warnings", ())),
    )


def meaning(test: Results) -> str:
    """Describe the statistic, its p-value, and its meaning."""
    if test["value"] is None:
        return f"There is no test: {test['reason']}."
    if test["p_value"] is None:
        return f"Statistic {test['value']:.1f}; {test['reason']}."
    words = figures.chi_squared(test)
    means = (
        "the probabilities are wrong by more than chance"
        if test["p_value"] < 0.05
        else "no evidence against the probabilities"
    )
    return f"{words[0].upper()}{words[1:]}: {means}."


def p_value(results: Results) -> dict[str, Any]:
    """Return the p-value of a test among results, under its name for programs."""
    return {"hosmer_lemeshow_p_value": (results.get("hosmer_lemeshow") or {}).get("p_value")}


def is_thin(test: Results) -> bool:
    """Return whether a test with a p-value rests on a group with too few expected positives or negatives.

    Examples
    --------
    >>> is_thin({"p_value": 0.001, "groups": [{"rows": 34, "expected": 0.9}]})
    True
    >>> is_thin({"p_value": 0.001, "groups": [{"rows": 34, "expected": 17.0}]})
    False
    """
    groups = test.get("groups") or ()
    return test.get("p_value") is not None and any(_thin(one["rows"], one["expected"]) for one in groups)


def _thin(rows: float, expected: float) -> bool:
    return min(expected, rows - expected) < FEWEST


def thin_buckets(results: Results) -> str:
    """Return the warning `THIN` for an evaluation whose test rests on too thin buckets of its curve, else nothing."""
    rows = results.get("histogram", {}).get("rows")
    if rows is None or results["hosmer_lemeshow"].get("p_value") is None:
        return ""
    curve = results["reliability_curve"]
    buckets = zip(curve.get("share") or (), curve.get("mean_score") or (), strict=False)
    known = ((share * rows, score) for share, score in buckets if share is not None and score is not None)
    return f" {THIN}" if any(_thin(count, count * score) for count, score in known) else ""


def _rates(test: Results) -> alt.LayerChart:
    """Plot the observed against the expected rate of each group."""
    marks = [
        {name: group[name] / group["rows"] for name in ("expected", "observed")}
        for group in test["groups"]
        if group["rows"] > 0
    ]
    rates = [rate for mark in marks for rate in mark.values()]
    # Rates of a rare event fill the plot too; under noise an observed one can be below zero.
    scale = alt.Scale(domain=[min(0.0, *rates), min(1.0, 1.05 * max(rates))] if rates else [0, 1])
    x = alt.X("expected:Q", title="expected rate", scale=scale)
    y = alt.Y("observed:Q", title="observed rate", scale=scale)
    base = alt.Chart(alt.Data(values=marks)).mark_line(color=BLUE, point=True, clip=True)
    title = "Observed and expected rates"
    if test.get("p_value") is not None:
        title += f", {figures.p_equals(test['p_value'])}"
    line = base.encode(x=x, y=y, order="expected:Q")
    return plots.square(alt.layer(plots.diagonal(), line), title)
