"""Document of a distribution function: the curve with its band, its quantiles, and both classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from fedassay.documents import curves, figures, goodness, plots
from fedassay.documents.blocks import (
    CurveBlock,
    Document,
    DocumentBlock,
    KeyNumber,
    Results,
    TableBlock,
    reasons,
    table,
)
from fedassay.documents.kind import FROZEN_MODEL, INDEPENDENT_ROWS, ON_ALL_ROWS, KindDocument
from fedassay.documents.palette import BAND_OPACITY, BLUE, INK, MUTED, RED

ALL_SHOWN = 16
"""Largest number of points of a curve that is printed in full; of others, `SOME_SHOWN` points are printed."""

SOME_SHOWN = 10

MOST_DRAWN = 1024
"""Largest number of points of a plot: more than it has pixels."""

_MOST_QUANTILES = 3
_WIDTH, _HEIGHT = 420, 300


class DistributionDocument(KindDocument):
    """Distribution function of a scalar."""

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield the curve, its quantiles, and with labels the ROC curve."""
        results = document["results"]
        yield distribution(document)
        if results["quantiles"]:
            yield quantiles(document)
        yield points_table(document)
        if "roc_auc" in results:
            yield _classes(results)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield the first quantiles."""
        for entry in results["quantiles"][:_MOST_QUANTILES]:
            label = f"quantile {entry['quantile']:g}"
            if entry["value"] is None:
                yield KeyNumber(label=label, text="", reason=str(entry.get("reason", "there is none")))
                continue
            low, high, width = _ends(entry)
            ends = "" if width is None else _between(low, high, width)
            yield KeyNumber(label=label, text=figures.amount(entry["value"], width=width), detail=ends)

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield that rows are independent, and nothing else."""
        yield "Rows are independent draws from one population; nothing else is assumed of the values."

    def listed_metrics(self, results: Results) -> Iterator[tuple[str, float | None, Any]]:
        """Yield the quantiles."""
        yield from (("quantile", entry["quantile"], entry) for entry in results["quantiles"])


class QuantilesDocument(DistributionDocument):
    """Quantiles that were found by search."""

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield the quantiles, of a curve that was never released."""
        yield quantiles(document)


# --- tables -----------------------------------------------------------------------------------------------------------


def points_table(document: Document) -> TableBlock:
    """Tabulate the distribution function at some of its points."""
    results = document["results"]
    band = f"{results['level']:.0%} band, all points at once"
    rows: list[tuple[str, ...]] = []
    for place in places(len(results["points"])) if results["values"] else ():
        point, value, low, high = (results[name][place] for name in ("points", "values", "lower", "upper"))
        errors = (results["standard_error"][name][place] for name in ("sampling", "privacy"))
        metric = {"value": value, "interval": [low, high]}
        texts = (figures.amount(point), figures.value(metric), figures.interval(metric))
        rows.append((*texts, *map(figures.error, errors)))
    return table(
        f"Distribution of {_value(document)}",
        ("up to", "share of rows", band, "sampling", "privacy"),
        rows,
        notes=(_made(results) if rows else results["reason"], *results["notes"]),
    )


def places(count: int) -> list[int]:
    """Return the points that are printed: all, or some at equal steps, the last among them.

    Examples
    --------
    >>> places(3), places(1024)[:2], places(1024)[-1]
    ([0, 1, 2], [101, 204], 1023)
    """
    if count <= ALL_SHOWN:
        return list(range(count))
    return [round(step * count / SOME_SHOWN) - 1 for step in range(1, 1 + SOME_SHOWN)]


def _made(results: Results) -> str:
    """Describe how the curve was made, such as ``1,024 points (uniform); mechanism tree, smoothing isotonic.``"""
    grid = results["grid"]
    some = "" if len(results["points"]) <= ALL_SHOWN else f", {SOME_SHOWN} of them shown"
    points = f"{figures.counted(grid['points'], 'point')} ({grid['spacing']}){some}"
    if results["mechanism"] == "none":
        return f"{points}; without noise."
    return f"{points}; mechanism {results['mechanism']}, smoothing {results['smoothing']}."


def _value(document: Document) -> str:
    return str(document["parameters"].get("value", "the values"))


def quantiles(document: Document) -> TableBlock:
    """Tabulate the requested quantiles."""
    results = document["results"]
    rows, notes = [], []
    for entry in results["quantiles"]:
        low, high, width = _ends(entry)
        value = figures.amount(entry["value"], width=width)
        rows.append((f"{entry['quantile']:g}", value, _between(low, high, width)))
        if "reason" in entry:
            notes.append(f"quantile {entry['quantile']:g}: {entry['reason']}")
    head = ("quantile", "value", f"{results['level']:.0%} interval")
    return table(f"Quantiles of {_value(document)}", head, rows, notes=dict.fromkeys(notes))


def _ends(entry: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Return both ends of an interval and its width; an end where nothing is known is None."""
    low, high = entry["interval"] or (None, None)
    return low, high, None if low is None or high is None else high - low


def _between(low: float | None, high: float | None, width: float | None) -> str:
    """Format an interval, which may be open: behind the last of given points nothing is known."""
    if low is None and high is None:
        return ""
    if high is None:
        return f"above {figures.amount(low)}"
    if low is None:
        return f"up to {figures.amount(high)}"
    return f"{figures.amount(low, width=width)} to {figures.amount(high, width=width)}"


def _classes(results: Results) -> TableBlock:
    """Tabulate the number of rows of each class, and how well the value separates the classes."""
    counts = {name: results[name]["rows"] for name in ("positives", "negatives")}
    auc = results["roc_auc"]
    rows = [(name, *_count(metric)) for name, metric in counts.items()]
    rows.append(("ROC AUC", figures.value(auc), figures.interval(auc)))
    notes = reasons([*counts.items(), ("ROC AUC", auc)])
    return table("Classes", ("", "value", f"{auc['level']:.0%} interval"), rows, notes=notes)


def _count(metric: Mapping[str, Any]) -> tuple[str, str]:
    """Format a number of rows and its interval, without decimals."""
    if metric["value"] is None:
        return "-", ""
    low, high = metric["interval"]
    return f"{metric['value']:,.0f}", "" if low == high else f"{low:,.0f} to {high:,.0f}"


# --- plots ------------------------------------------------------------------------------------------------------------


def distribution(document: Document) -> CurveBlock:
    """Plot the curve with its band and quantiles; with labels, the curves of both classes and the ROC curve."""
    results = document["results"]
    known = [entry for entry in results["quantiles"] if entry["value"] is not None]
    text = ", ".join(f"quantile {one['quantile']:g} at {figures.amount(one['value'])}" for one in known)
    text = f"Distribution function with its band{': ' + text if text else ''}"
    if "roc_curve" not in results:
        return CurveBlock(draw=lambda: distribution_plot(document), alternative=text)
    return CurveBlock(
        draw=lambda: alt.hconcat(_classes_plot(document), curves.roc(results).draw()),
        alternative=f"{text}; ROC curve, AUC {figures.value(results['roc_auc'])}",
    )


def distribution_plot(document: Document) -> alt.LayerChart:
    """Plot the distribution function, its simultaneous band, and a rule at each quantile."""
    results = document["results"]
    title = f"Distribution of {_value(document)}"
    if not results["values"]:
        return plots.empty(title, results["reason"])
    rules = _quantile_rules(results)
    marked = "; dots: quantiles with their intervals" if rules else ""
    words = plots.titled(title, f"{results['level']:.0%} band for all points at once{marked}")
    layers = _curve(document, results, BLUE) + rules
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=words)


def _classes_plot(document: Document) -> alt.LayerChart:
    """Plot the distribution functions of positives and negatives, each with its band."""
    results = document["results"]
    layers = []
    for name, colour in (("positives", RED), ("negatives", BLUE)):
        if results[name]["values"]:
            layers += _curve(document, results[name], colour)
    title = f"Distribution of {_value(document)}"
    if not layers:
        return plots.empty(title, results["positives"].get("reason", "there are no rows"))
    words = plots.titled(title, "positives red, negatives blue, with their bands")
    return alt.layer(*layers).properties(width=_HEIGHT, height=_HEIGHT, title=words)


def _curve(document: Document, curve: Results, colour: str) -> list[alt.Chart]:
    """Draw a line with its band; if points are few, steps and a bar at each: nothing is known between them."""
    points = document["results"]["points"]
    every = plots.points({**curve, "points": points}, "points", "values", "lower", "upper")
    base = alt.Chart(alt.Data(values=[every[place] for place in thinned(len(every), MOST_DRAWN)]))
    x = alt.X("points:Q", title=_value(document), scale=_scale(document), axis=alt.Axis(tickCount=7))
    y = plots.unit("values:Q", "share of rows up to here", channel=alt.Y)
    ends = {"x": x, "y": alt.Y("lower:Q"), "y2": "upper:Q"}
    if len(points) > ALL_SHOWN:
        band = base.mark_area(color=colour, opacity=BAND_OPACITY, clip=True).encode(**ends)
        return [band, base.mark_line(color=colour, clip=True).encode(x=x, y=y, order="points:Q")]
    bars = base.mark_rule(color=colour, opacity=0.4, strokeWidth=6).encode(**ends)
    steps = base.mark_line(color=colour, interpolate="step-after", point=alt.OverlayMarkDef(color=colour))
    return [bars, steps.encode(x=x, y=y, order="points:Q")]


def _scale(document: Document) -> alt.Scale:
    """Return a scale from the first to the last point, with room around if they are few; logarithmic if points are."""
    points: Sequence[float] = document["results"]["points"]
    low, high = points[0], points[-1]
    if document["results"]["grid"]["spacing"] == "logarithmic":
        return alt.Scale(type="log", domain=[low, high], nice=False)
    room = 0.04 * (high - low or 1.0) if len(points) <= ALL_SHOWN else 0.0
    return alt.Scale(domain=[low - room, high + room], nice=False, zero=False)


def _quantile_rules(results: Results) -> list[alt.Chart]:
    """Draw a dashed rule at the value of each quantile, and a bar over its interval at its height."""
    points, marks = results["points"], []
    for entry in results["quantiles"]:
        if entry["value"] is not None:
            low, high = entry["interval"] or (entry["value"], entry["value"])
            ends = {"from": points[0] if low is None else low, "to": points[-1] if high is None else high}
            marks.append({"points": entry["value"], "value": entry["quantile"], **ends})
    if not marks:
        return []
    base = alt.Chart(alt.Data(values=marks))
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]))
    rules = base.mark_rule(color=MUTED, strokeDash=[4, 4], clip=True).encode(x="points:Q")
    bars = base.mark_rule(color=INK, strokeWidth=3, clip=True).encode(x="from:Q", x2="to:Q", y=y)
    dots = base.mark_point(color=INK, filled=True, size=40, clip=True).encode(x="points:Q", y=y)
    return [rules, bars, dots]


def thinned(count: int, most: int) -> list[int]:
    """Return at most `most` places at equal steps, the first and the last among them.

    Examples
    --------
    >>> thinned(5, 10), thinned(9, 3)
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]


# --- what a document shows of a Hosmer-Lemeshow test --------------------------------------------------------


class HosmerLemeshowDocument(KindDocument):
    """Hosmer-Lemeshow test of a binary classifier."""

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Yield observed next to expected rates, then the groups and what the test means."""
        return goodness.goodness_blocks(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """Yield the p-value."""
        test = results["hosmer_lemeshow"]
        label = f"Hosmer-Lemeshow test {ON_ALL_ROWS}"
        if test["value"] is None or test["p_value"] is None:
            yield KeyNumber(label=label, text="", reason=str(test["reason"]))
            return
        detail = goodness.THIN if goodness.is_thin(test) else ""
        yield KeyNumber(label=label, text=figures.p_equals(test["p_value"]), detail=detail)

    def plain_numbers(self, results: Results) -> Mapping[str, Any]:
        """Return the p-value."""
        return goodness.p_value(results)

    def assumptions(self, results: Results) -> Iterator[str]:
        """Yield independent rows and a frozen model."""
        yield INDEPENDENT_ROWS
        yield FROZEN_MODEL
