"""Plots of a conformal result: the law of the coverage, set sizes, sites, groups; each drawn and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from fedassay.documents import figures, plots
from fedassay.documents.blocks import CurveBlock, Results, missing
from fedassay.documents.display import Display, DisplayedEntry
from fedassay.documents.palette import BLUE, INK, SEVERAL
from fedassay.tasks.conformal.document_sets import group_entries, holds_everything

MOST_LINES = 40
"""Largest number of sites or groups shown in a table or a plot."""

MOST_LAWS = 6
"""Largest number of curves that can be distinguished in one plot."""

_DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])
_KINDS = (("one", BLUE, "square"), ("all", INK, "diamond"))
_WIDTH, _HEIGHT, _STEP = 300, 220, 18
_LINES = 260
"""Pixels of a plot that has names next to it."""

_FEW = alt.Axis(tickCount=5)


def first_lines(
    entries: Sequence[Results], *, by: Callable[[Results], float] | None = None
) -> tuple[list[Results], int]:
    """Return all entries, or of many the first by `by`; and the number left out.

    Examples
    --------
    >>> entries, left_out = first_lines([{"x": x} for x in range(50)], by=lambda entry: -entry["x"])
    >>> entries[0], len(entries), left_out
    ({'x': 49}, 40, 10)
    """
    if len(entries) <= MOST_LINES:
        return list(entries), 0
    order = entries if by is None else sorted(entries, key=by)
    return list(order[:MOST_LINES]), len(entries) - MOST_LINES


def coverage_of(entry: Results) -> float:
    """Return the coverage of a site or group; infinite if it has none."""
    value = entry["coverage"]["value"]
    return math.inf if value is None else float(value)


def baseline(method: str) -> str:
    """Return the name of a method of comparison: all rows in one place are not the method ``pooled``.

    Examples
    --------
    >>> baseline("pooled"), baseline("average")
    ('pooled rows', 'average')
    """
    return "pooled rows" if method == "pooled" else method


# --- the law ----------------------------------------------------------------------------------------------------------


def laws(results: Results) -> dict[str, Results]:
    """Return the laws that can be drawn, by name: the result's own, those of groups, those of other methods.

    A law of one value (a set that holds everything) is no curve.
    """
    own = [{**results, "group": results["method"]}]
    named = [(entry["group"], entry) for entry in group_entries(results) or own]
    others = [entry for entry in results.get("comparison") or () if not entry.get("found")]
    named += [(baseline(entry["method"]), entry) for entry in others]
    known = {name: entry["coverage_law"] for name, entry in named if entry.get("coverage_law")}
    curves = {name: law for name, law in known.items() if len(law["curve"]["coverage"]) > 1}
    return curves if len(curves) <= MOST_LAWS else {}


def coverage_laws(results: Results) -> CurveBlock:
    """Plot the probability of reaching each coverage, with the requested level."""
    text = "; ".join(
        f"{name} has mean {law['mean']:.4f} and standard deviation {figures.error(law['standard_deviation'])}"
        for name, law in laws(results).items()
    )
    return CurveBlock(
        draw=lambda: _coverage_laws(results, laws(results)),
        alternative=f"Law of the coverage around the level {results['level']:g}: {text}",
    )


def _coverage_laws(results: Results, drawn: Mapping[str, Results]) -> alt.LayerChart:
    level, names = results["level"], list(drawn)
    points = []
    for name, law in drawn.items():
        x, cdf = law["curve"]["coverage"], law["curve"]["cdf"]
        # A law may have a probability of its own at an end: there the curve is a step.
        places = [(x[0], 1.0), *((at, 1 - p) for at, p in zip(x, cdf, strict=True)), (x[-1], 0.0)]
        points += [{"method": name, "coverage": at, "probability": p} for at, p in places]
    exact = all(law["exact"] for law in drawn.values())
    lines = plots.strokes(
        points,
        "method",
        names,
        colours=SEVERAL[: len(names)],
        dashes=_DASHES[: len(names)],
        legend=alt.Legend(title=None, orient="bottom") if names != [results["method"]] else None,
        strokeWidth=2.5,
    ).encode(
        x=alt.X(
            "coverage:Q",
            title="coverage",
            axis=_FEW,
            scale=_around(level, (one["coverage"] for one in points)),
        ),
        y=alt.Y(
            "probability:Q",
            title=f"probability to reach it{'' if exact else ', at least'}",
            scale=alt.Scale(domain=[0, 1]),
        ),
        order="coverage:Q",
    )
    below = f"dashed: the level {level:g}{'' if exact else '; a lower bound under noise or bins'}"
    chart = alt.layer(plots.level_rule(level, axis="x"), lines)
    return chart.properties(
        width=_WIDTH, height=_HEIGHT, title=plots.titled("What the sets will cover", below)
    )


def _around(level: float, values: Any) -> alt.Scale:
    every = [level, *values]
    low, high = min(every), max(every)
    room = 0.04 * (high - low or 0.1)
    return alt.Scale(domain=[max(0.0, low - room), min(1.0, high + room)], nice=False, zero=False)


# --- set sizes --------------------------------------------------------------------------------------------------------


def size_shares(held_out: Results) -> list[float]:
    """Return the share of held-out rows by the number of classes in their set; empty if none was counted.

    Examples
    --------
    >>> size_shares({"size_counts": [-2.5, 3.0, 1.0, 0.0]})
    [0.0, 0.75, 0.25, 0.0]
    """
    counts = [max(0.0, count) for count in held_out.get("size_counts") or ()]
    return [count / sum(counts) for count in counts] if any(counts) else []


def set_sizes(held_out: Results) -> CurveBlock:
    """Plot the distribution of the number of classes in a set."""
    shares = size_shares(held_out)
    largest = max(size for size, share in enumerate(shares) if share > 0)
    mean = sum(size * share for size, share in enumerate(shares))
    one = shares[1] if len(shares) > 1 else 0.0
    text = f"mean {mean:.3g}; {shares[0]:.1%} empty, {one:.1%} of one class, at most {largest}"
    return CurveBlock(draw=lambda: _set_sizes(shares[: largest + 1], text), alternative=f"Set sizes: {text}")


def _set_sizes(shares: Sequence[float], text: str) -> alt.LayerChart:
    bars = [{"from": size - 0.45, "to": size + 0.45, "share": share} for size, share in enumerate(shares)]
    scale = alt.Scale(domain=[-0.6, len(shares) - 0.4], nice=False)
    axis = alt.Axis(format="d", tickMinStep=1)
    chart = (
        alt.Chart(alt.Data(values=bars))
        .mark_rect(color=BLUE)
        .encode(
            x=alt.X("from:Q", title="classes in the set", axis=axis, scale=scale),
            x2="to:Q",
            y=alt.Y("share:Q", title="share of rows", axis=alt.Axis(format="%")),
            y2=alt.datum(0),
        )
    )
    title = plots.titled("Set sizes on held-out rows", text)
    return alt.layer(chart).properties(width=_WIDTH, height=_HEIGHT * 0.7, title=title)


# --- sites and groups -------------------------------------------------------------------------------------------------


def coverage_by_site(results: Results) -> CurveBlock:
    """Plot the coverage of each site with its interval, that of all rows below, and the level."""
    known = [value for entry in results["held_out"]["sites"] if math.isfinite(value := coverage_of(entry))]
    text = "Coverage by site: no site has one"
    if known:
        below = sum(value < results["level"] for value in known)
        text = (
            f"Coverage of {figures.counted(len(known), 'site')} on held-out rows, from {min(known):.3f} to "
            f"{max(known):.3f}; {below} below the level {results['level']:g}"
        )
    return CurveBlock(draw=lambda: _coverage_by_site(results), alternative=text)


def _coverage_by_site(results: Results) -> alt.LayerChart:
    held_out, level = results["held_out"], results["level"]
    entries, left_out = first_lines(held_out["sites"], by=coverage_of)
    marks = [plots.interval_mark(entry["site"], entry["coverage"]) for entry in entries]
    marks.append(plots.interval_mark("all rows", held_out["coverage"], "all"))
    title, drawn = "Coverage by site, on held-out rows", [mark for mark in marks if mark is not None]
    if not drawn:
        return plots.empty(title, "no site has a coverage")
    scale = _around(level, (mark[end] for mark in drawn for end in ("low", "high")))
    x = alt.X("low:Q", title="coverage", axis=alt.Axis(tickCount=4), scale=scale)
    order = list(dict.fromkeys([*(entry["site"] for entry in entries), "all rows"]))
    some = f"; the {len(entries)} lowest of {len(entries) + left_out} sites" if left_out else ""
    words = plots.titled(title, f"dashed: the level {level:g}{some}")
    return plots.intervals(drawn, x, order, kinds=_KINDS, at=level).properties(title=words, width=_LINES)


def thresholds(results: Results) -> CurveBlock:
    """Plot the threshold of each group; those that hold everything at the right edge, as an open triangle."""
    entries = group_entries(results)
    finite = [entry["threshold"] for entry in entries if entry.get("threshold") is not None]
    infinite = sum(bool(entry.get("infinite")) for entry in entries)
    ends = f"from {figures.amount(min(finite))} to {figures.amount(max(finite))}" if finite else "none finite"
    everything = f"; {infinite} of them hold everything" if infinite else ""
    return CurveBlock(
        draw=lambda: _thresholds(entries, f"Threshold by {results['conditional']}"),
        alternative=f"Thresholds of {figures.counted(len(entries), 'group')}: {ends}{everything}",
    )


def _thresholds(groups: Sequence[Results], title: str) -> alt.LayerChart:
    entries, left_out = first_lines(groups, by=_narrow)
    finite = [entry["threshold"] for entry in entries if entry.get("threshold") is not None]
    if not finite:
        return plots.empty(title, "all sets hold everything: there is no finite threshold")
    low, high = min(finite), max(finite)
    room = 0.08 * (high - low or abs(high) or 1.0)
    marks = []
    for entry in entries:
        if entry.get("infinite"):
            marks.append({"name": entry["group"], "value": high + room, "kind": "infinite"})
        elif entry.get("threshold") is not None:
            marks.append({"name": entry["group"], "value": float(entry["threshold"]), "kind": "finite"})
    shapes = alt.Scale(domain=["finite", "infinite"], range=["circle", "triangle-right"])
    scale = alt.Scale(domain=[low - room, high + 1.5 * room], nice=False, zero=False)
    order = [entry["group"] for entry in entries]
    base = alt.Chart(alt.Data(values=marks)).mark_point(filled=True, color=BLUE, size=70, opacity=1)
    points = base.encode(
        x=alt.X("value:Q", title="threshold", axis=_FEW, scale=scale),
        y=plots.named(order),
        shape=alt.Shape("kind:N", legend=None, scale=shapes),
    )
    notes = ["triangle: the set holds everything"] if len(finite) < len(marks) else []
    notes += [f"the {len(entries)} widest of {len(entries) + left_out}"] if left_out else []
    words = plots.titled(title, "; ".join(notes))
    return alt.layer(points).properties(title=words, width=_LINES, height=_STEP * len(order))


def _narrow(entry: Results) -> float:
    """Return a sort key that orders entries from the widest set on."""
    if entry.get("infinite"):
        return -math.inf
    return math.inf if entry.get("threshold") is None else -float(entry["threshold"])


# --- the display of what prediction sets cover --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class CoverageDisplay(Display):
    """The law of the coverage of a conformal task, with the level; for classes also how large the sets are.

    Attributes: `level`, `laws` by method or group (each with `mean`, `standard_deviation`, and a `curve` of `coverage`
    and `cdf`), and `set_sizes`, the share of held-out rows with 0, 1, 2, ... classes in their set.
    """

    wanted = DisplayedEntry("coverage", "level", ("conformal",))

    def _main(self) -> Mapping[str, Any]:
        if holds_everything(self.results):
            return {"level": self.level, "infinite": True}
        coverage = (self._held_out.get("coverage") or {}).get("value")
        return {
            "level": self.level,
            "threshold": self.results.get("threshold"),
            "held_out_coverage": coverage,
        }

    @property
    def level(self) -> float:
        """Requested coverage of the sets."""
        return float(self.results["level"])

    @property
    def laws(self) -> Mapping[str, Mapping[str, Any]]:
        """Laws that are drawn; none if sets hold everything, or if there are too many to distinguish."""
        return {} if holds_everything(self.results) else laws(self.results)

    @property
    def set_sizes(self) -> tuple[float, ...]:
        """Share of rows by number of classes; empty if sets are not of classes, hold everything, or are not counted."""
        return () if holds_everything(self.results) else tuple(size_shares(self._held_out))

    @property
    def _held_out(self) -> Mapping[str, Any]:
        held_out: Mapping[str, Any] = self.results.get("held_out") or {}
        return held_out

    @property
    def block(self) -> CurveBlock:
        """Chart of the law, with the sizes below it."""
        law = [coverage_laws(self.results)] if self.laws else []
        sizes = [set_sizes(self._held_out)] if self.set_sizes else []
        if not law and not sizes:
            unknown = "the method does not know it, or there are too many to be told apart"
            reason = str(self.results.get("reason", unknown))
            reason = "the sets hold everything" if holds_everything(self.results) else reason
            return missing("What the sets will cover", reason, f"No law of the coverage: {reason}.")
        texts = [f"{block.alternative}." for block in (*law, *sizes)]
        return CurveBlock(draw=lambda: _below([*law, *sizes]), alternative=" ".join(texts))


def _below(blocks: list[CurveBlock]) -> alt.TopLevelMixin:
    if len(blocks) == 1:
        return blocks[0].draw()
    # Else the legend of the law would stand below the sizes.
    charts = alt.vconcat(*(block.draw() for block in blocks))
    return charts.resolve_scale(color="independent", strokeDash="independent")
