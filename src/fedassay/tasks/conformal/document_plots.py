"""The plots of a conformal result: the law of the coverage, set sizes, sites, groups. Reads only the JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.comparisons import OTHER
from fedassay.documents.palette import BLUE, INK, SEVERAL

Entry = Mapping[str, Any]

MOST_LINES = 40
"""Sites and groups that are shown, in a table or a plot."""

MOST_LAWS = 6
"""Curves that can still be told apart."""

_DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])
_WIDTH, _HEIGHT, _STEP = 300, 220, 18
_LINES = 260
"""Pixels of a plot that has names beside it."""

_FEW = alt.Axis(tickCount=5)


def shown(entries: Sequence[Entry], *, by: Callable[[Entry], float] | None = None) -> tuple[list[Entry], int]:
    """All entries, or of many the first by `by`; and how many are left out.

    Examples
    --------
    >>> entries, left_out = shown([{"x": x} for x in range(50)], by=lambda entry: -entry["x"])
    >>> entries[0], len(entries), left_out
    ({'x': 49}, 40, 10)
    """
    if len(entries) <= MOST_LINES:
        return list(entries), 0
    order = entries if by is None else sorted(entries, key=by)
    return list(order[:MOST_LINES]), len(entries) - MOST_LINES


def coverage_of(entry: Entry) -> float:
    """The coverage of a site or group, infinite where there is none."""
    value = entry["coverage"]["value"]
    return math.inf if value is None else float(value)


def group_entries(results: Entry) -> list[dict[str, Any]]:
    """The groups, each with its name, without ``other`` if it is known to be empty."""
    return [
        {"group": name, **entry}
        for name, entry in results["groups"].items()
        if name != OTHER or entry.get("rows") != 0
    ]


def baseline(method: str) -> str:
    """What a method of comparison is called: all rows in one place are not the method of this name.

    Examples
    --------
    >>> baseline("pooled"), baseline("average")
    ('pooled rows', 'average')
    """
    return "pooled rows" if method == "pooled" else method


# --- the law --------------------------------------------------------------------------------------------


def laws(results: Entry) -> dict[str, Entry]:
    """The laws that can be drawn, by name: the result's own, those of groups, those of other methods.

    A law of one value (a set that holds everything) is no curve.
    """
    named: list[tuple[str, Entry]] = [(results["method"], results)]
    if results.get("groups"):
        named = [(entry["group"], entry) for entry in group_entries(results)]
    others = [entry for entry in results.get("comparison") or () if not entry.get("found")]
    named += [(baseline(entry["method"]), entry) for entry in others]
    given = {name: entry["coverage_law"] for name, entry in named if entry.get("coverage_law")}
    found = {name: law for name, law in given.items() if len(law["curve"]["coverage"]) > 1}
    return found if len(found) <= MOST_LAWS else {}


def law_plot(results: Entry) -> alt.LayerChart:
    """For each coverage the probability to reach it, with the level that was asked for."""
    return plots.framed(law_part(results))


def law_part(results: Entry) -> alt.LayerChart:
    """The same as a part of another plot."""
    found = laws(results)
    points = [
        {"method": name, "coverage": coverage, "probability": probability}
        for name, law in found.items()
        for coverage, probability in _survival(law)
    ]
    bound = "" if all(law["exact"] for law in found.values()) else ", at least"
    how = f"dashed: the level {results['level']:g}" + ("; a lower bound under noise or bins" if bound else "")
    words = plots.titled("What the sets will cover", how)
    rule = plots.level_rule(results["level"], axis="x")
    names = list(found)
    legend = alt.Legend(title=None, orient="bottom") if names != [results["method"]] else None
    line = alt.Chart(alt.Data(values=points)).mark_line(clip=True, strokeWidth=2.5)
    lines = line.encode(
        x=alt.X("coverage:Q", title="coverage", axis=_FEW, scale=_around(points, results["level"])),
        y=alt.Y(
            "probability:Q",
            title=f"probability to reach it{bound}",
            scale=alt.Scale(domain=[0, 1]),
        ),
        order="coverage:Q",
        color=alt.Color(
            "method:N", scale=alt.Scale(domain=names, range=list(SEVERAL[: len(names)])), legend=legend
        ),
        strokeDash=alt.StrokeDash(
            "method:N", scale=alt.Scale(domain=names, range=list(_DASHES[: len(names)])), legend=legend
        ),
    )
    return alt.layer(rule, lines).properties(width=_WIDTH, height=_HEIGHT, title=words)


def _survival(law: Entry) -> list[tuple[float, float]]:
    """Coverage and the probability to reach it, from certain at the left end to impossible at the right one."""
    curve = law["curve"]
    points = [(c, 1 - p) for c, p in zip(curve["coverage"], curve["cdf"], strict=True)]
    # A law may have a probability of its own at an end: there the curve is a step.
    return [(points[0][0], 1.0), *points, (points[-1][0], 0.0)]


def _around(points: Sequence[Entry], level: float) -> alt.Scale:
    values = [level, *(point["coverage"] for point in points)]
    low, high = min(values), max(values)
    room = 0.04 * (high - low or 0.1)
    return alt.Scale(domain=[max(0.0, low - room), min(1.0, high + room)], nice=False, zero=False)


def law_alternative(results: Entry) -> str:
    """The plot in words."""
    said = (
        f"{name} has mean {law['mean']:.4f} and standard deviation {figures.error(law['standard_deviation'])}"
        for name, law in laws(results).items()
    )
    return f"Law of the coverage around the level {results['level']:g}: {'; '.join(said)}"


# --- set sizes ------------------------------------------------------------------------------------------


def sizes_plot(held_out: Entry) -> alt.LayerChart:
    """How many sets hold how many classes."""
    return plots.framed(sizes_part(held_out))


def sizes_part(held_out: Entry) -> alt.LayerChart:
    """The same as a part of another plot."""
    counts = [max(0.0, count) for count in held_out["size_counts"]]
    last = max(size for size, count in enumerate(counts) if count > 0)
    whole = sum(counts)
    bars = [
        {"from": size - 0.45, "to": size + 0.45, "share": count / whole}
        for size, count in enumerate(counts[: last + 1])
    ]
    base = alt.Chart(alt.Data(values=bars)).mark_rect(color=BLUE)
    axis = alt.Axis(format="d", tickMinStep=1)
    chart = base.encode(
        x=alt.X(
            "from:Q",
            title="classes in the set",
            axis=axis,
            scale=alt.Scale(domain=[-0.6, last + 0.6], nice=False),
        ),
        x2="to:Q",
        y=alt.Y("share:Q", title="share of rows", axis=alt.Axis(format="%")),
        y2=alt.datum(0),
    )
    words = plots.titled("Set sizes on held-out rows", sizes_words(held_out))
    return alt.layer(chart).properties(width=_WIDTH, height=_HEIGHT * 0.7, title=words)


def sizes_words(held_out: Entry) -> str:
    """Such as ``mean 1.23; 2.0% empty, 70.0% of one class, at most 7``."""
    counts = [max(0.0, count) for count in held_out["size_counts"]]
    whole = sum(counts)
    last = max(size for size, count in enumerate(counts) if count > 0)
    mean = sum(size * count for size, count in enumerate(counts)) / whole
    one = counts[1] / whole if len(counts) > 1 else 0.0
    return f"mean {mean:.3g}; {counts[0] / whole:.1%} empty, {one:.1%} of one class, at most {last}"


# --- sites and groups -----------------------------------------------------------------------------------


def sites_plot(results: Entry) -> alt.LayerChart:
    """The coverage of each site with its interval, of all rows below, and the level."""
    held_out = results["held_out"]
    entries, left_out = shown(held_out["sites"], by=coverage_of)
    marks = [_mark(entry["site"], entry["coverage"], "site") for entry in entries]
    marks.append(_mark("all rows", held_out["coverage"], "all"))
    title = "Coverage by site, on held-out rows"
    drawn = [mark for mark in marks if mark is not None]
    if not drawn:
        return plots.framed(plots.empty(title, "no site has a coverage"))
    order = list(dict.fromkeys([*(entry["site"] for entry in entries), "all rows"]))
    x = alt.X(
        "low:Q", title="coverage", axis=alt.Axis(tickCount=4), scale=_around_marks(drawn, results["level"])
    )
    colour = alt.Color("kind:N", legend=None, scale=alt.Scale(domain=["site", "all"], range=[BLUE, INK]))
    base = alt.Chart(alt.Data(values=drawn))
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(
        x=x, x2="high:Q", y=plots.named(order), color=colour
    )
    points = base.mark_point(filled=True, size=50, opacity=1).encode(
        x="value:Q",
        y=plots.named(order),
        color=colour,
        shape=alt.Shape(
            "kind:N", legend=None, scale=alt.Scale(domain=["site", "all"], range=["square", "diamond"])
        ),
    )
    rule = plots.level_rule(results["level"], axis="x")
    some = f"; the {len(entries)} lowest of {len(entries) + left_out} sites" if left_out else ""
    words = plots.titled(title, f"dashed: the level {results['level']:g}{some}")
    size = {"width": _LINES, "height": _STEP * len(order)}
    return plots.framed(alt.layer(rule, bars, points).properties(title=words, **size))


def _mark(name: str, metric: Entry, kind: str) -> dict[str, Any] | None:
    if metric["value"] is None:
        return None
    low, high = metric.get("interval") or (metric["value"], metric["value"])
    return {"name": name, "value": metric["value"], "low": low, "high": high, "kind": kind}


def _around_marks(marks: Sequence[Entry], level: float) -> alt.Scale:
    ends = [{"coverage": mark[end]} for mark in marks for end in ("low", "high")]
    return _around(ends, level)


def sites_alternative(results: Entry) -> str:
    """The plot in words."""
    values = [coverage_of(entry) for entry in results["held_out"]["sites"]]
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return "Coverage by site: no site has one"
    below = sum(value < results["level"] for value in known)
    return (
        f"Coverage of {figures.counted(len(known), 'site')} on held-out rows, from {min(known):.3f} to "
        f"{max(known):.3f}; {below} below the level {results['level']:g}"
    )


def groups_plot(results: Entry) -> alt.LayerChart:
    """The threshold of each group; those that hold everything at the right edge, as an open triangle."""
    entries, left_out = shown(group_entries(results), by=_narrow)
    finite = [entry["threshold"] for entry in entries if entry.get("threshold") is not None]
    title = f"Threshold by {results['conditional']}"
    if not finite:
        return plots.framed(plots.empty(title, "all sets hold everything: there is no finite threshold"))
    low, high = min(finite), max(finite)
    room = 0.08 * (high - low or abs(high) or 1.0)
    marks = [
        {"name": entry["group"], "value": _at(entry, high + room), "kind": _kind(entry)}
        for entry in entries
        if entry.get("infinite") or entry.get("threshold") is not None
    ]
    base = alt.Chart(alt.Data(values=marks))
    shape = alt.Shape(
        "kind:N",
        legend=None,
        scale=alt.Scale(domain=["finite", "infinite"], range=["circle", "triangle-right"]),
    )
    x = alt.X(
        "value:Q",
        title="threshold",
        axis=_FEW,
        scale=alt.Scale(domain=[low - room, high + 1.5 * room], nice=False, zero=False),
    )
    order = [entry["group"] for entry in entries]
    points = base.mark_point(filled=True, color=BLUE, size=70, opacity=1).encode(
        x=x, y=plots.named(order), shape=shape
    )
    notes = ["triangle: the set holds everything"] if len(finite) < len(marks) else []
    notes += [f"the {len(entries)} widest of {len(entries) + left_out}"] if left_out else []
    words = plots.titled(title, "; ".join(notes))
    size = {"width": _LINES, "height": _STEP * len(order)}
    return plots.framed(alt.layer(points).properties(title=words, **size))


def _narrow(entry: Entry) -> float:
    """Ascending from the widest set."""
    if entry.get("infinite"):
        return -math.inf
    return math.inf if entry.get("threshold") is None else -float(entry["threshold"])


def _at(entry: Entry, edge: float) -> float:
    return edge if entry.get("infinite") else float(entry["threshold"])


def _kind(entry: Entry) -> str:
    return "infinite" if entry.get("infinite") else "finite"


def groups_alternative(results: Entry) -> str:
    """The plot in words."""
    entries = group_entries(results)
    finite = [entry["threshold"] for entry in entries if entry.get("threshold") is not None]
    infinite = sum(bool(entry.get("infinite")) for entry in entries)
    said = f"from {figures.amount(min(finite))} to {figures.amount(max(finite))}" if finite else "none finite"
    everything = f"; {infinite} of them hold everything" if infinite else ""
    return f"Thresholds of {figures.counted(len(entries), 'group')}: {said}{everything}"
