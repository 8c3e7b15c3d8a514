"""Forest plots: an interval per site or group, and below them what they say together. Reads only the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.comparisons import groups_with_rows
from fedassay.documents.palette import BLUE, INK, MUTED
from fedassay.metrics import METRICS

Results = Mapping[str, Any]

_WIDTH, _STEP = 230, 18


def forest(results: Results) -> alt.HConcatChart | None:
    """The metrics of `drawn` side by side over sites or, without them, groups; None if there are neither."""
    if not planted(results):
        return None
    charts = [_chart(results, metric, labelled=place == 0) for place, metric in enumerate(drawn(results))]
    return plots.framed(alt.hconcat(*charts))


def drawn(results: Results) -> list[str]:
    """Names of the metrics that are drawn."""
    return [record.name for record in METRICS.values() if record.forest and record.name in results]


def forest_of(results: Results, metric: str) -> alt.LayerChart:
    """One metric alone, with a title: fits a narrow page."""
    level, title = results[metric].get("level"), METRICS[metric].title
    words = plots.titled(
        f"{title[0].upper()}{title[1:]} by {listed(results)[0]}", f"{level:.0%} intervals" if level else ""
    )
    return plots.framed(_chart(results, metric, labelled=True).properties(title=words))


def planted(results: Results) -> bool:
    """Whether there are sites or groups to show."""
    return results.get("sites") is not None or "groups" in results


def alternative(results: Results, metrics: Sequence[str] | None = None) -> str:
    """The plot in words: how many, the lowest and the highest of each metric, and what they say together."""
    what, entries = listed(results)
    names = drawn(results) if metrics is None else metrics
    said = [_said(results, metric, what, entries) for metric in names]
    return f"Forest plot of {figures.counted(len(entries), what)}: {'; '.join(said)}."


def listed(results: Results) -> tuple[str, list[Mapping[str, Any]]]:
    """What the lines are, ``site`` or ``group``, and what the results say of each."""
    if results.get("sites") is not None:
        return "site", list(results["sites"])
    return "group", groups_with_rows(results)


def _said(results: Results, metric: str, what: str, entries: Sequence[Mapping[str, Any]]) -> str:
    known = [entry for entry in entries if entry[metric]["value"] is not None]
    title = METRICS[metric].title
    if not known:
        return f"{title} is undefined in every {what}"
    low, high = (pick(known, key=lambda entry: entry[metric]["value"]) for pick in (min, max))
    between = (
        f"{title} from {figures.value(low[metric])} ({low[what]}) to {figures.value(high[metric])} ({high[what]}), "
        f"all rows {figures.told(results[metric])}"
    )
    pooled = _below(results).get(metric)
    if pooled is None or pooled["value"] is None:
        return between
    return f"{between}, a new site {figures.interval({'interval': pooled['prediction_interval']})}"


def _below(results: Results) -> Mapping[str, Any]:
    """What sites say together."""
    return results["heterogeneity"] if results.get("sites") is not None else {}


def _chart(results: Results, metric: str, *, labelled: bool) -> alt.LayerChart:
    what, entries = listed(results)
    below = _below(results)
    names = [entry[what] for entry in entries]
    last = ["all rows", "mean of sites", "a new site"] if below else ["all rows"]
    order = [*names, *(name for name in last if name not in names)]
    marks = [_mark(entry[what], entry[metric], "one") for entry in entries]
    marks += [_mark("all rows", results[metric], "all")]
    if below and below[metric]["value"] is not None:
        new = {**below[metric], "interval": below[metric]["prediction_interval"]}
        marks += [_mark("mean of sites", below[metric], "all"), _mark("a new site", new, "new")]
    known = [mark for mark in marks if mark is not None]
    return _panel(known, METRICS[metric].title, order, labelled=labelled)


def _mark(name: str, metric: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    if metric["value"] is None or metric["interval"] is None:
        return None
    low, high = metric["interval"]
    return {"name": name, "value": metric["value"], "low": low, "high": high, "kind": kind}


def _panel(marks: list[dict[str, Any]], title: str, order: list[str], *, labelled: bool) -> alt.LayerChart:
    y = plots.named(order, labels=labelled)
    x = alt.X(
        "low:Q",
        title=title,
        scale=alt.Scale(zero=False, nice=True, domain=_domain(marks)),
        axis=alt.Axis(tickCount=5),
    )
    base = alt.Chart(alt.Data(values=marks))
    colour = alt.Color(
        "kind:N", legend=None, scale=alt.Scale(domain=["one", "all", "new"], range=[BLUE, INK, MUTED])
    )
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q", y=y, color=colour)
    shape = alt.Shape(
        "kind:N",
        legend=None,
        scale=alt.Scale(domain=["one", "all", "new"], range=["square", "diamond", "circle"]),
    )
    points = base.mark_point(filled=True, size=50, opacity=1).encode(
        x="value:Q", y=y, color=colour, shape=shape
    )
    return alt.layer(bars, points).properties(width=_WIDTH, height=_STEP * len(order))


def _domain(marks: list[dict[str, Any]]) -> list[float]:
    """All values with room around them; an interval that is far wider than the rest is cut off."""
    if not marks:
        return [0.0, 1.0]
    values = [mark["value"] for mark in marks]
    room = 1.5 * max(max(values) - min(values), median(mark["high"] - mark["low"] for mark in marks))
    low = max(min(mark["low"] for mark in marks), min(values) - room)
    high = min(max(mark["high"] for mark in marks), max(values) + room)
    return [low, high] if low < high else [low - 0.5, high + 0.5]
