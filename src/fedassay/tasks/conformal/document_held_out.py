"""Prediction sets on held-out rows: coverage, sizes, other methods, sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fedassay.documents import figures
from fedassay.documents.blocks import (
    Cell,
    Document,
    DocumentBlock,
    Results,
    TableBlock,
    metric_cell,
    reasons,
    table,
)
from fedassay.tasks.conformal import document_plots as plots
from fedassay.tasks.conformal import document_sets as sets

_THRESHOLD = ("method", "threshold", "infinite")
_MOST_CLASSES = 10

ALL_SIZES = 12
"""Largest set size up to which each size has a line of its own; if sets are larger, lines are ranges that double."""


def held_out_blocks(document: Document) -> Iterator[DocumentBlock]:
    """Yield held-out rows, other methods, what sites sent, and how much they differ."""
    results = document["results"]
    held_out = results.get("held_out")
    if held_out:
        yield covered(results)
        if plots.size_shares(held_out):
            yield plots.set_sizes(held_out)
            yield sizes(held_out)
        if held_out.get("sites"):
            yield plots.coverage_by_site(results)
            yield covered_by_site(results)
    yield from method_tables(results)
    if results.get("heterogeneity"):
        yield heterogeneity(results["heterogeneity"], warnings=document["warnings"])


def method_tables(results: Results) -> Iterator[TableBlock]:
    """Yield other methods, and what sites sent."""
    if results.get("comparison"):
        yield comparison(results)
    if results.get("sites"):
        yield sites(results)


def threshold(entry: Results) -> str:
    """Format a threshold: infinite ones as ∞, those that do not exist as a dash.

    Examples
    --------
    >>> threshold({"threshold": 1.25, "infinite": False}), threshold({"threshold": None, "infinite": True})
    ('1.25', '∞')
    """
    if entry.get("infinite"):
        return "∞"
    if entry.get("method") == "local" and entry.get("threshold") is None:
        return "one per site"
    return figures.amount(entry.get("threshold"))


# --- coverage ---------------------------------------------------------------------------------------------------------


def covered(results: Results) -> TableBlock:
    """Tabulate coverage and set size of all held-out rows, and of each group; not where sets hold everything."""
    held_out = results["held_out"]
    groups = [(entry["group"], entry) for entry in sets.group_entries(held_out)]
    thresholds = results.get("groups") or {}
    everything = [name for name, _ in groups if (thresholds.get(name) or {}).get("infinite")]
    classes = {} if groups else sets.classes(results)
    named = [("all", held_out), *groups, *((f"class {name}", classes[name]) for name in _lowest(classes))]
    known = [(name, entry) for name, entry in named if name not in everything]
    chance = sets.by_chance(results)
    return table(
        "On held-out rows",
        (
            "rows of",
            "rows",
            f"coverage, {held_out['coverage']['level']:.0%} interval",
            sets.size_name(results),
        ),
        ((name, *_covered(entry)) for name, entry in known),
        notes=(
            f"The coverage of all is {chance}: its interval holds the level." if chance else "",
            sets.some_are_empty(results),
            f"Sets hold everything for: {', '.join(everything)}." if everything else "",
            f"Of {len(classes):,} classes the {_MOST_CLASSES} with the lowest coverage are shown."
            if len(classes) > _MOST_CLASSES
            else "",
            *_missing(known),
        ),
    )


def _lowest(classes: Mapping[str, Results]) -> list[str]:
    """Return all classes in their order, or of many those with the lowest coverage."""
    if len(classes) <= _MOST_CLASSES:
        return list(classes)
    return sorted(classes, key=lambda name: plots.coverage_of(classes[name]))[:_MOST_CLASSES]


def covered_by_site(results: Results) -> TableBlock:
    """Tabulate the coverage of each site; if there are many, of those with the lowest."""
    held_out = results["held_out"]
    entries, left_out = plots.first_lines(held_out["sites"], by=plots.coverage_of)
    more = f"{figures.counted(left_out, 'site')} with a higher coverage not shown."
    sized = any(entry.get("mean_size") is not None for entry in entries)
    rows = []
    for entry in entries:
        number, coverage, size = _covered(entry)
        rows.append((entry["site"], number, coverage.text, coverage.detail, *((size,) if sized else ())))
    head = ("site", "rows", "coverage", f"{held_out['coverage']['level']:.0%} interval")
    return table(
        "Coverage by site, on held-out rows",
        (*head, *((sets.size_name(results),) if sized else ())),
        rows,
        notes=(more if left_out else "", *_missing([(entry["site"], entry) for entry in entries])),
    )


def _covered(entry: Results) -> tuple[Cell, Cell, Cell]:
    rows = entry.get("rows")
    number = Cell("-" if rows is None else f"{rows:,.0f}")
    return number, _cell(entry.get("coverage")), _cell(entry.get("mean_size"))


def _cell(metric: Results | float | None) -> Cell:
    """Return the cell of a metric, a plain number, or nothing; exact values have no interval."""
    if isinstance(metric, Mapping):
        return Cell(figures.value(metric)) if sets.is_exact(metric) else metric_cell(metric)
    return Cell(figures.number(metric))


def _missing(named: Sequence[tuple[str, Results]]) -> tuple[str, ...]:
    return reasons(
        (f"{title} of {name}", entry[metric])
        for name, entry in named
        for metric, title in (("coverage", "coverage"), ("mean_size", "set size"))
        if isinstance(entry.get(metric), Mapping)
    )


# --- sizes ------------------------------------------------------------------------------------------------------------


def sizes(held_out: Results) -> TableBlock:
    """Tabulate the number of sets by the number of classes that they hold."""
    counts = [max(0.0, count) for count in held_out["size_counts"]]
    rows, whole = [], sum(counts)
    for first, last in size_ranges(max(size for size, count in enumerate(counts) if count > 0)):
        inside, so_far = sum(counts[first : last + 1]), min(1.0, sum(counts[: last + 1]) / whole)
        name = f"{first}" if first == last else f"{first} to {last}"
        rows.append((name, f"{inside:,.0f}", f"{inside / whole:.1%}", f"{so_far:.1%}"))
    return table("Set sizes", ("classes", "rows", "share", "up to here"), rows)


def size_ranges(largest: int) -> list[tuple[int, int]]:
    """Return each size by itself, or if there are many, ranges that double.

    Examples
    --------
    >>> size_ranges(2), size_ranges(20)
    ([(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 20)])
    """
    if largest <= ALL_SIZES:
        return [(size, size) for size in range(largest + 1)]
    ends = [0, 1]
    while ends[-1] < largest:
        ends.append(min(largest, 2 * ends[-1]))
    return [(0, 0), *((before + 1, end) for before, end in pairwise(ends))]


# --- other methods and sites ------------------------------------------------------------------------------------------


def comparison(results: Results) -> TableBlock:
    """Tabulate methods on the same rows, with the size of their sets relative to those of pooled scores."""
    ours, others = _told_apart(results)
    pooled = next((_size(entry) for entry in others if entry["method"] == "pooled"), None)
    rows = []
    for entry in (ours, *others):
        name = f"{entry['method']} (this result)" if entry is ours else plots.baseline(entry["method"])
        cells: list[str | Cell] = [name, threshold(entry), *_covered(entry)[1:]]
        if pooled:
            size = _size(entry)
            cells.append("-" if size is None else f"{size / pooled:.3f}")
        rows.append(cells)
    next_to = ("size next to pooled",) if pooled else ()
    return table(
        "Compared with other methods, on held-out rows",
        ("method", "threshold", "coverage", sets.size_name(results), *next_to),
        rows,
        notes=(f"{plots.baseline(one['method'])}: {one['text']}" for one in others if one.get("text")),
    )


def _told_apart(results: Results) -> tuple[dict[str, Any], list[Results]]:
    """Return the result's own entry, with intervals where it has them, and the entries of other methods."""
    found: list[Results] = [entry for entry in results["comparison"] if entry.get("found")]
    if not found and results["method"] == "local":  # what was found is that baseline
        found = [entry for entry in results["comparison"] if entry["method"] == "local"]
    ours = {**(found[0] if found else {}), **{name: results.get(name) for name in _THRESHOLD}}
    for name in () if sets.holds_everything(results) else ("coverage", "mean_size"):
        metric = (results.get("held_out") or {}).get(name)
        if metric is not None and (metric["value"] is not None or ours.get(name) is None):
            ours[name] = metric
    return ours, [entry for entry in results["comparison"] if entry not in found]


def _size(entry: Results) -> float | None:
    size = entry.get("mean_size")
    return size["value"] if isinstance(size, Mapping) else size


def sites(results: Results) -> TableBlock:
    """Tabulate what each site sent, or its own threshold."""
    entries, left_out = plots.first_lines(results["sites"])
    own = any("threshold" in entry for entry in entries)
    without = [entry for entry in entries if "reason" in entry]
    return table(
        "Thresholds of the sites" if own else "What sites sent",
        ("site", "rows", "rank", "threshold" if own else "score"),
        (_site(entry, own=own) for entry in entries),
        notes=(
            f"{figures.counted(left_out, 'site')} more in the result." if left_out else "",
            *reasons((entry["site"], {"value": None, "reason": entry["reason"]}) for entry in without),
        ),
    )


def _site(entry: Results, *, own: bool) -> tuple[str, ...]:
    # A site with too few rows sends no number: its value counts as infinite.
    value = threshold(entry) if own else "∞" if entry.get("score") is None else figures.amount(entry["score"])
    numbers = ("-" if entry.get(name) is None else f"{entry[name]:,.0f}" for name in ("rows", "rank"))
    return (entry["site"], *numbers, value)


def heterogeneity(found: Results, *, warnings: Sequence[str] = ()) -> TableBlock:
    """Tabulate how much clients differ beyond chance, and its possible cost; in words unless a warning says it."""
    rows = [
        ("Pearson's statistic", f"{found['statistic']:.1f}"),
        ("degrees of freedom", f"{found['degrees']:,}"),
        ("p-value", figures.p_value(found["p_value"])),
        ("standard deviation between clients, estimated", figures.error(found["between_sd"])),
    ]
    if found.get("loss_bound") is not None:
        rows.append(("it may take off the coverage up to", figures.error(found["loss_bound"])))
    text = f"{'Warning: ' if found.get('alarming') else ''}{found['text']}"
    notes = () if found["text"] in warnings else (text,)
    return table("Differences between clients", ("", "value"), rows, notes=notes)
