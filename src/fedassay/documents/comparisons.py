"""Groups, sites and a second model: tables, and forest plots with an interval for each group or site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import (
    Cell,
    CurveBlock,
    Results,
    TableBlock,
    in_tables,
    metric_cell,
    reasons,
    table,
)
from fedassay.documents.figures import OTHER
from fedassay.documents.palette import BLUE, INK, MUTED
from fedassay.protocol.metrics import METRICS, compared

MOST = 5
"""Largest number of metrics in a table of groups or sites."""

_WIDTH = 230
_KINDS = (("one", BLUE, "square"), ("all", INK, "diamond"), ("new", MUTED, "circle"))


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(results: Results) -> Iterator[TableBlock]:
    """Yield the tables of these results, in reading order."""
    if "difference" in results:
        yield _difference(results)
    if "groups" in results:
        yield from _entries("By group", "group", groups_with_rows(results))
    if results.get("sites") is not None:
        yield from _entries("By site", "site", results["sites"])
    if "heterogeneity" in results:
        yield _heterogeneity(results)


def groups_with_rows(results: Results) -> list[Results]:
    """Return the groups, without ``other`` if it is known to be empty."""
    return [entry for entry in results["groups"] if entry["group"] != OTHER or entry["rows"] != 0]


def _difference(results: Results) -> TableBlock:
    named = {name: METRICS[name].title for name in results["difference"]}
    places = (results, results["versus"], results["difference"])
    level = results["roc_auc"]["level"]
    return table(
        "Against the second model",
        ("metric", "first model", "second model", f"difference, {level:.0%} interval"),
        ((title, *(metric_cell(place[name]) for place in places)) for name, title in named.items()),
        notes=reasons((title, results["difference"][name]) for name, title in named.items()),
    )


def _entries(title: str, what: str, entries: Sequence[Results]) -> Iterator[TableBlock]:
    shown = [METRICS[name] for name in compared() if entries and name in entries[0]]
    for records, part in in_tables(shown, most=MOST, title=title):
        yield table(
            part,
            (what, "rows", *(record.title for record in records)),
            (
                (entry[what], f"{entry['rows']:,.0f}", *(metric_cell(entry[one.name]) for one in records))
                for entry in entries
            ),
            notes=reasons((entry[what], entry[record.name]) for entry in entries for record in records),
        )


def _heterogeneity(results: Results) -> TableBlock:
    entries = results["heterogeneity"]
    level = next(iter(entries.values()))["level"]
    left_out = max(entry["left_out"] for entry in entries.values())
    return table(
        "Between sites",
        (
            *("metric", "sites", f"mean, {level:.0%} interval", f"a new site, {level:.0%} interval"),
            *("tau²", "I²", "Q, p"),
        ),
        (_pooled_row(name, entry) for name, entry in entries.items()),
        notes=(
            *reasons((METRICS[name].title, entry) for name, entry in entries.items()),
            f"left out: up to {left_out:,} site{'s' * (left_out != 1)} with too few rows of a class or no estimate"
            if left_out
            else "",
            results.get("sites_reason") or "",
        ),
    )


def _pooled_row(name: str, entry: Results) -> tuple[Cell | str, ...]:
    first = (METRICS[name].title, str(entry["sites"]))
    if entry["value"] is None:
        return (*first, *("-",) * 5)
    scale = "" if entry["scale"] == "identity" else f"{entry['scale']} scale"
    return (
        *first,
        metric_cell(entry),
        figures.interval({"interval": entry["prediction_interval"]}),
        Cell(f"{entry['tau2']:.3g}", scale),
        f"{entry['i2']:.0%}",
        Cell(f"{entry['q']:.1f}", f"p {figures.p_value(entry['p_value'])}"),
    )


# --- forest plots -----------------------------------------------------------------------------------------------------


def is_compared(results: Results) -> bool:
    """Return whether there are sites or groups to show."""
    return results.get("sites") is not None or "groups" in results


def compared_entries(results: Results) -> tuple[str, list[Results]]:
    """Return the unit of the lines of a forest plot, ``site`` or ``group``, and the results of each."""
    if results.get("sites") is not None:
        return "site", list(results["sites"])
    return "group", groups_with_rows(results)


def forest_metrics(results: Results) -> list[str]:
    """Return the names of the metrics that are drawn."""
    return [record.name for record in METRICS.values() if record.forest and record.name in results]


def forest(results: Results) -> CurveBlock:
    """Plot all metrics side by side."""
    metrics = forest_metrics(results)

    def draw() -> alt.HConcatChart:
        return alt.hconcat(
            *(_chart(results, metric, labels=not place) for place, metric in enumerate(metrics))
        )

    return CurveBlock(draw=draw, alternative=_alternative(results, metrics))


def forest_of(results: Results, metric: str) -> CurveBlock:
    """Plot a single metric with a title, for a narrow page."""
    level, title = results[metric].get("level"), METRICS[metric].title
    words = plots.titled(
        f"{title[0].upper()}{title[1:]} by {compared_entries(results)[0]}",
        f"{level:.0%} intervals" if level else "",
    )
    return CurveBlock(
        draw=lambda: _chart(results, metric, labels=True).properties(title=words),
        alternative=_alternative(results, [metric]),
    )


def _alternative(results: Results, metrics: Sequence[str]) -> str:
    """Describe the number of entries, the lowest and highest value of each metric, and the pooled results."""
    what, entries = compared_entries(results)
    text = "; ".join(_in_words(results, metric, what, entries) for metric in metrics)
    return f"Forest plot of {figures.counted(len(entries), what)}: {text}."


def _in_words(results: Results, metric: str, what: str, entries: Sequence[Results]) -> str:
    known = [entry for entry in entries if entry[metric]["value"] is not None]
    title = METRICS[metric].title
    if not known:
        return f"{title} is undefined in every {what}"
    low, high = (pick(known, key=lambda entry: entry[metric]["value"]) for pick in (min, max))
    between = (
        f"{title} from {figures.value(low[metric])} ({low[what]}) to {figures.value(high[metric])} ({high[what]}), "
        f"all rows {figures.told(results[metric])}"
    )
    pooled = _pooled(results).get(metric)
    if pooled is None or pooled["value"] is None:
        return between
    return f"{between}, a new site {figures.interval({'interval': pooled['prediction_interval']})}"


def _pooled(results: Results) -> Mapping[str, Any]:
    """Return the pooled results of sites."""
    return results["heterogeneity"] if results.get("sites") is not None else {}


def _chart(results: Results, metric: str, *, labels: bool) -> alt.LayerChart:
    what, entries = compared_entries(results)
    pooled = _pooled(results)
    names = [entry[what] for entry in entries]
    last = ["all rows", "mean of sites", "a new site"] if pooled else ["all rows"]
    marks = [plots.interval_mark(entry[what], entry[metric]) for entry in entries]
    marks.append(plots.interval_mark("all rows", results[metric], "all"))
    if pooled and pooled[metric]["value"] is not None:
        new = {**pooled[metric], "interval": pooled[metric]["prediction_interval"]}
        marks.append(plots.interval_mark("mean of sites", pooled[metric], "all"))
        marks.append(plots.interval_mark("a new site", new, "new"))
    known = [mark for mark in marks if mark is not None]
    scale = alt.Scale(zero=False, nice=True, domain=_domain(known))
    x = alt.X("low:Q", title=METRICS[metric].title, scale=scale, axis=alt.Axis(tickCount=5))
    order = [*names, *(name for name in last if name not in names)]
    return plots.intervals(known, x, order, kinds=_KINDS, labels=labels).properties(width=_WIDTH)


def _domain(marks: Sequence[Results]) -> list[float]:
    """Return a domain with all values and room around them; an interval far wider than the rest is cut off."""
    if not marks:
        return [0.0, 1.0]
    values = [mark["value"] for mark in marks]
    room = 1.5 * max(max(values) - min(values), median(mark["high"] - mark["low"] for mark in marks))
    low = max(min(mark["low"] for mark in marks), min(values) - room)
    high = min(max(mark["high"] for mark in marks), max(values) + room)
    return [low, high] if low < high else [low - 0.5, high + 0.5]
