"""A distribution function as tables and plots, with its band. Reads only the result's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt

from fedassay.documents import curves, figures, plots
from fedassay.documents.kind import KindDocument, Results
from fedassay.documents.palette import BAND_OPACITY, BLUE, INK, MUTED, RED
from fedassay.documents.sheet import Cell, Document, Figure, KeyNumber, Piece, Sheet, reasons

ALL_SHOWN = 16
"""Curves of up to so many points are printed in full, of others as many points as `SOME_SHOWN`."""

SOME_SHOWN = 10

MOST_DRAWN = 1024
"""Points of a plot: more than it has pixels."""

POSITIVE, NEGATIVE = RED, BLUE
_WIDTH, _HEIGHT = 420, 300


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """The curve, its quantiles, and with labels the ROC curve."""
    results = document["results"]
    yield Figure(draw=partial(overview, document), alternative=alternative(document))
    if results["quantiles"]:
        yield quantiles(document)
    yield curve(document)
    if "roc_auc" in results:
        yield classes(results)


def curve(document: Document) -> Sheet:
    """The distribution function at some of its points."""
    results = document["results"]
    title = f"Distribution of {_value(document)}"
    head = (
        "up to",
        "share of rows",
        f"{results['level']:.0%} band, all points at once",
        "sampling",
        "privacy",
    )
    if not results["values"]:
        return Sheet(title=title, head=head, rows=(), notes=(results["reason"], *results["notes"]))
    columns = [results[name] for name in ("points", "values", "lower", "upper")]
    columns += [results["standard_error"][name] for name in ("sampling", "privacy")]
    rows = tuple(_row(*(column[place] for column in columns)) for place in places(len(results["points"])))
    return Sheet(title=title, head=head, rows=rows, notes=(_made(document), *results["notes"]))


def _row(
    point: float, value: float, lower: float, upper: float, sampling: float, privacy: float
) -> tuple[Cell, ...]:
    band = {"value": value, "interval": [lower, upper]}
    texts = (figures.amount(point), figures.value(band), figures.interval(band))
    errors = (figures.error(sampling), figures.error(privacy))
    return tuple(Cell(text=text) for text in (*texts, *errors))


def places(count: int) -> list[int]:
    """Which points are printed: all, or some at equal steps, the last among them.

    Examples
    --------
    >>> places(3), places(1024)[:2], places(1024)[-1]
    ([0, 1, 2], [101, 204], 1023)
    """
    if count <= ALL_SHOWN:
        return list(range(count))
    return [round(step * count / SOME_SHOWN) - 1 for step in range(1, 1 + SOME_SHOWN)]


def _made(document: Document) -> str:
    """How the curve was made, such as ``1,024 points (uniform); mechanism tree, smoothing isotonic.``"""
    results, grid = document["results"], document["results"]["grid"]
    some = "" if len(results["points"]) <= ALL_SHOWN else f", {SOME_SHOWN} of them shown"
    points = f"{figures.counted(grid['points'], 'point')} ({grid['spacing']}){some}"
    if results["mechanism"] == "none":
        return f"{points}; without noise."
    return f"{points}; mechanism {results['mechanism']}, smoothing {results['smoothing']}."


def _value(document: Document) -> str:
    return str(document["parameters"].get("value", "the values"))


def quantiles(document: Document) -> Sheet:
    """The quantiles that were asked for."""
    results = document["results"]
    named = [(f"quantile {entry['quantile']:g}", entry) for entry in results["quantiles"]]
    notes = tuple(dict.fromkeys(f"{name}: {entry['reason']}" for name, entry in named if "reason" in entry))
    return Sheet(
        title=f"Quantiles of {_value(document)}",
        head=("quantile", "value", f"{results['level']:.0%} interval"),
        rows=tuple(_quantile(entry) for _, entry in named),
        notes=notes,
    )


def _quantile(entry: Mapping[str, Any]) -> tuple[Cell, ...]:
    low, high = entry["interval"] or (None, None)
    width = None if low is None or high is None else high - low
    value = figures.amount(entry["value"], width=width)
    return Cell(text=f"{entry['quantile']:g}"), Cell(text=value), Cell(text=_between(low, high, width))


def _between(low: float | None, high: float | None, width: float | None) -> str:
    """An interval, which may be open: behind the last of given points nothing is known."""
    if low is None and high is None:
        return ""
    if high is None:
        return f"above {figures.amount(low)}"
    if low is None:
        return f"up to {figures.amount(high)}"
    return f"{figures.amount(low, width=width)} to {figures.amount(high, width=width)}"


def classes(results: Mapping[str, Any]) -> Sheet:
    """How many rows each class has, and how well the value tells them apart."""
    counts = {name: results[name]["rows"] for name in ("positives", "negatives")}
    auc = results["roc_auc"]
    rows = [(name, *_count(metric)) for name, metric in counts.items()]
    rows += [("ROC AUC", figures.value(auc), figures.interval(auc))]
    return Sheet(
        title="Classes",
        head=("", "value", f"{auc['level']:.0%} interval"),
        rows=tuple(tuple(Cell(text=text) for text in row) for row in rows),
        notes=reasons([*counts.items(), ("ROC AUC", auc)]),
    )


def _count(metric: Mapping[str, Any]) -> tuple[str, str]:
    """A number of rows and its interval, without decimals."""
    if metric["value"] is None:
        return "-", ""
    low, high = metric["interval"]
    return f"{metric['value']:,.0f}", "" if low == high else f"{low:,.0f} to {high:,.0f}"


# --- plots ----------------------------------------------------------------------------------------------


def overview(document: Document) -> alt.TopLevelMixin:
    """The curve with its band and quantiles; with labels, the curves of both classes and the ROC curve."""
    results = document["results"]
    if "roc_curve" not in results:
        return plots.framed(distribution_plot(document))
    return plots.framed(alt.hconcat(classes_plot(document), curves.roc(results)))


def distribution_plot(document: Document) -> alt.LayerChart:
    """The distribution function, its simultaneous band, and a rule at each quantile."""
    results = document["results"]
    title = f"Distribution of {_value(document)}"
    if not results["values"]:
        return plots.empty(title, results["reason"])
    rules = _quantile_rules(document)
    marked = "; dots: quantiles with their intervals" if rules else ""
    words = plots.titled(title, f"{results['level']:.0%} band for all points at once{marked}")
    layers = _curve(document, results, BLUE) + rules
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=words)


def classes_plot(document: Document) -> alt.LayerChart:
    """The distribution functions of positives and negatives, each with its band."""
    results = document["results"]
    layers = []
    for name, colour in (("positives", POSITIVE), ("negatives", NEGATIVE)):
        if results[name]["values"]:
            layers += _curve(document, results[name], colour)
    title = f"Distribution of {_value(document)}"
    if not layers:
        return plots.empty(title, results["positives"].get("reason", "there are no rows"))
    words = plots.titled(title, "positives red, negatives blue, with their bands")
    return alt.layer(*layers).properties(width=_HEIGHT, height=_HEIGHT, title=words)


def _curve(document: Document, results: Mapping[str, Any], colour: str) -> list[alt.Chart]:
    """A line with its band; where points are few, each with a bar, and steps: nothing is known between them."""
    points = document["results"]["points"]
    columns = (points, results["values"], results["lower"], results["upper"])
    values = [
        dict(zip(("point", "value", "lower", "upper"), (column[i] for column in columns), strict=True))
        for i in thinned(len(points), MOST_DRAWN)
    ]
    base = alt.Chart(alt.Data(values=values))
    x = alt.X("point:Q", title=_value(document), scale=_scale(document), axis=alt.Axis(tickCount=7))
    y = plots.unit("value:Q", "share of rows up to here", channel=alt.Y)
    ends = {"x": x, "y": alt.Y("lower:Q"), "y2": "upper:Q"}
    if len(points) > ALL_SHOWN:
        band = base.mark_area(color=colour, opacity=BAND_OPACITY, clip=True).encode(**ends)
        return [band, base.mark_line(color=colour, clip=True).encode(x=x, y=y, order="point:Q")]
    bars = base.mark_rule(color=colour, opacity=0.4, strokeWidth=6).encode(**ends)
    steps = base.mark_line(color=colour, interpolate="step-after", point=alt.OverlayMarkDef(color=colour))
    return [bars, steps.encode(x=x, y=y, order="point:Q")]


def _scale(document: Document) -> alt.Scale:
    """From the first to the last point, with room around if they are few; logarithmic if the points are."""
    points: Sequence[float] = document["results"]["points"]
    low, high = points[0], points[-1]
    if document["results"]["grid"]["spacing"] == "logarithmic":
        return alt.Scale(type="log", domain=[low, high], nice=False)
    room = 0.04 * (high - low or 1.0) if len(points) <= ALL_SHOWN else 0.0
    return alt.Scale(domain=[low - room, high + room], nice=False, zero=False)


def _quantile_rules(document: Document) -> list[alt.Chart]:
    """A dashed rule at the value of each quantile, and a bar over its interval at its height."""
    entries = [entry for entry in document["results"]["quantiles"] if entry["value"] is not None]
    if not entries:
        return []
    points = document["results"]["points"]
    marks = []
    for entry in entries:
        low, high = entry["interval"] or (entry["value"], entry["value"])
        ends = {"from": points[0] if low is None else low, "to": points[-1] if high is None else high}
        marks.append({"point": entry["value"], "value": entry["quantile"], **ends})
    base = alt.Chart(alt.Data(values=marks))
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]))
    rules = base.mark_rule(color=MUTED, strokeDash=[4, 4], clip=True).encode(x="point:Q")
    bars = base.mark_rule(color=INK, strokeWidth=3, clip=True).encode(x="from:Q", x2="to:Q", y=y)
    dots = base.mark_point(color=INK, filled=True, size=40, clip=True).encode(x="point:Q", y=y)
    return [rules, bars, dots]


def thinned(count: int, most: int) -> list[int]:
    """At most so many places at equal steps, the first and the last among them.

    Examples
    --------
    >>> thinned(5, 10), thinned(9, 3)
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]


def alternative(document: Document) -> str:
    """The plot in words."""
    results = document["results"]
    found = [entry for entry in results["quantiles"] if entry["value"] is not None]
    words = ", ".join(
        f"quantile {entry['quantile']:g} at {figures.amount(entry['value'])}" for entry in found
    )
    roc = f"; ROC curve, AUC {figures.value(results['roc_auc'])}" if "roc_auc" in results else ""
    return f"Distribution function with its band{': ' + words if words else ''}{roc}"


class DistributionDocument(KindDocument):
    """Distribution function of a scalar."""

    def contents(self, document: Document) -> Iterator[Piece]:
        """See `contents`."""
        return contents(document)

    def key_numbers(self, results: Results) -> Iterator[KeyNumber]:
        """The first quantiles."""
        for entry in results["quantiles"][:_MOST_QUANTILES]:
            label = f"quantile {entry['quantile']:g}"
            if entry["value"] is None:
                yield KeyNumber(label=label, text="", reason=str(entry.get("reason", "there is none")))
                continue
            low, high = entry["interval"] or (None, None)
            width = None if low is None or high is None else high - low
            ends = [] if width is None else [figures.amount(end, width=width) for end in (low, high)]
            text = figures.amount(entry["value"], width=width)
            yield KeyNumber(label=label, text=text, detail=" to ".join(ends))

    def assumptions(self, results: Results) -> Iterator[str]:
        """Independent rows, and nothing else."""
        yield "Rows are independent draws from one population; nothing else is assumed of the values."


class QuantilesDocument(DistributionDocument):
    """Quantiles that were found by search."""

    def contents(self, document: Document) -> Iterator[Piece]:
        """The quantiles, of a curve that was never released."""
        yield quantiles(document)


_MOST_QUANTILES = 3
