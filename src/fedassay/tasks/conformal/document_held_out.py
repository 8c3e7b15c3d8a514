"""What prediction sets did on held-out rows: coverage, sizes, other methods, sites. Reads only the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from fedassay.documents import figures
from fedassay.documents.sheet import Cell, Document, Figure, Sheet, metric_cell, reasons
from fedassay.tasks.conformal import document_plots as drawn
from fedassay.tasks.conformal import document_words as words
from fedassay.tasks.conformal.document_plots import Entry, baseline, shown

_THRESHOLD = ("method", "threshold", "infinite")

ALL_SIZES = 12
"""Set sizes up to this one have a line of their own, if none is larger; otherwise ranges that double."""


def contents(document: Document) -> Iterator[Sheet | Figure]:
    """Held-out rows, other methods, what sites sent, and how much they differ."""
    results = document["results"]
    if results.get("held_out"):
        yield from _held_out(results)
    yield from beside(results)
    if results.get("heterogeneity"):
        yield heterogeneity(results["heterogeneity"], warnings=document["warnings"])


def beside(results: Entry) -> Iterator[Sheet]:
    """Other methods, and what sites sent."""
    if results.get("comparison"):
        yield comparison(results)
    if results.get("sites"):
        yield sites(results)


def _held_out(results: Entry) -> Iterator[Sheet | Figure]:
    held_out = results["held_out"]
    yield covered(results)
    if any(count > 0 for count in held_out.get("size_counts") or ()):
        yield Figure(
            draw=partial(drawn.sizes_plot, held_out), alternative=f"Set sizes: {drawn.sizes_words(held_out)}"
        )
        yield sizes(held_out)
    if held_out.get("sites"):
        yield Figure(draw=partial(drawn.sites_plot, results), alternative=drawn.sites_alternative(results))
        yield covered_by_site(results)


def threshold(entry: Entry) -> str:
    """A threshold; infinite ones are said to be, and those that do not exist are a dash.

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


def covered(results: Entry) -> Sheet:
    """Coverage and set size of all held-out rows, and of each group; not where sets hold everything."""
    held_out = results["held_out"]
    parts = {entry["group"]: entry for entry in drawn.group_entries({"groups": held_out.get("groups") or {}})}
    found = results.get("groups") or {}
    everything = [name for name in parts if (found.get(name) or {}).get("infinite")]
    marginal = {} if parts else words.classes(results)
    named: list[tuple[str, Entry]] = [("all", held_out), *parts.items()]
    named += [(f"class {name}", marginal[name]) for name in _lowest(marginal)]
    known = [(name, entry) for name, entry in named if name not in everything]
    level = held_out["coverage"]["level"]
    chance, empty = words.by_chance(results), words.some_are_empty(results)
    return Sheet(
        title="On held-out rows",
        head=("rows of", "rows", f"coverage, {level:.0%} interval", words.size_name(results)),
        rows=tuple((Cell(text=name), *_covered(entry)) for name, entry in known),
        notes=(
            *([f"The coverage of all is {chance}: its interval holds the level."] if chance else []),
            *([empty] if empty else []),
            *([f"Sets hold everything for: {', '.join(everything)}."] if everything else []),
            *([_more_classes(len(marginal))] if len(marginal) > _MOST_CLASSES else []),
            *_missing(known),
        ),
    )


_MOST_CLASSES = 10


def _lowest(classes: Mapping[str, Entry]) -> list[str]:
    """All classes in their order, or of many those with the lowest coverage."""

    def coverage(name: str) -> float:
        value = classes[name]["coverage"]["value"]
        return 2.0 if value is None else float(value)

    return list(classes) if len(classes) <= _MOST_CLASSES else sorted(classes, key=coverage)[:_MOST_CLASSES]


def _more_classes(number: int) -> str:
    return f"Of {number:,} classes the {_MOST_CLASSES} with the lowest coverage are shown."


def covered_by_site(results: Entry) -> Sheet:
    """The coverage of each site; of many, where it is lowest."""
    held_out = results["held_out"]
    entries, left_out = shown(held_out["sites"], by=drawn.coverage_of)
    more = f"{figures.counted(left_out, 'site')} with a higher coverage not shown."
    sized = any(entry.get("mean_size") is not None for entry in entries)
    rows = []
    for entry in entries:
        name, number, coverage, size = (Cell(text=entry["site"]), *_covered(entry))
        interval = Cell(text=coverage.detail)
        rows.append((name, number, Cell(text=coverage.text), interval, *((size,) if sized else ())))
    head = ("site", "rows", "coverage", f"{held_out['coverage']['level']:.0%} interval")
    return Sheet(
        title="Coverage by site, on held-out rows",
        head=(*head, *((words.size_name(results),) if sized else ())),
        rows=tuple(rows),
        notes=(*((more,) if left_out else ()), *_missing([(entry["site"], entry) for entry in entries])),
    )


def _covered(entry: Entry) -> tuple[Cell, ...]:
    rows = entry.get("rows")
    metrics = (_cell(entry.get(name)) for name in ("coverage", "mean_size"))
    return Cell(text="-" if rows is None else f"{rows:,.0f}"), *metrics


def _cell(metric: Entry | float | None) -> Cell:
    """A metric, a plain number, or nothing; what is known exactly has no interval."""
    if isinstance(metric, Mapping):
        return Cell(text=figures.value(metric)) if words.is_exact(metric) else metric_cell(metric)
    return Cell(text=figures.number(metric))


def _missing(named: Sequence[tuple[str, Entry]]) -> tuple[str, ...]:
    called = {"coverage": "coverage", "mean_size": "set size"}
    return reasons(
        (f"{called[what]} of {name}", entry[what])
        for name, entry in named
        for what in called
        if isinstance(entry.get(what), Mapping)
    )


def sizes(held_out: Entry) -> Sheet:
    """How many sets hold how many classes."""
    counts = [max(0.0, count) for count in held_out["size_counts"]]
    whole = sum(counts)
    rows = []
    for first, last in size_ranges(max(place for place, count in enumerate(counts) if count > 0)):
        inside = sum(counts[first : last + 1])
        name = f"{first}" if first == last else f"{first} to {last}"
        share, so_far = inside / whole, sum(counts[: last + 1]) / whole
        texts = (name, f"{inside:,.0f}", f"{share:.1%}", f"{min(1.0, so_far):.1%}")
        rows.append(tuple(Cell(text=text) for text in texts))
    return Sheet(title="Set sizes", head=("classes", "rows", "share", "up to here"), rows=tuple(rows))


def size_ranges(largest: int) -> list[tuple[int, int]]:
    """Each size by itself, or if there are many, ranges that double.

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


def comparison(results: Entry) -> Sheet:
    """Other methods on the same rows, and how wide their sets are next to those of pooled scores."""
    ours, others = _told_apart(results)
    pooled = next((_size(entry) for entry in others if entry["method"] == "pooled"), None)
    rows = []
    for entry in (ours, *others):
        name = f"{entry['method']} (this result)" if entry is ours else baseline(entry["method"])
        cells = [Cell(text=name), Cell(text=threshold(entry))]
        cells += [_cell(entry.get(what)) for what in ("coverage", "mean_size")]
        if pooled:
            size = _size(entry)
            cells.append(Cell(text="-" if size is None else f"{size / pooled:.3f}"))
        rows.append(tuple(cells))
    return Sheet(
        title="Beside other methods, on held-out rows",
        head=(
            *("method", "threshold", "coverage", words.size_name(results)),
            *(("size next to pooled",) if pooled else ()),
        ),
        rows=tuple(rows),
        notes=tuple(f"{baseline(entry['method'])}: {entry['text']}" for entry in others if entry.get("text")),
    )


def _told_apart(results: Entry) -> tuple[dict[str, Any], list[Entry]]:
    """What was found, with intervals where the result has them, and everything else."""
    found: list[Entry] = [entry for entry in results["comparison"] if entry.get("found")]
    if not found and results["method"] == "local":  # what was found is that baseline
        found = [entry for entry in results["comparison"] if entry["method"] == "local"]
    ours = {**(found[0] if found else {}), **{name: results.get(name) for name in _THRESHOLD}}
    for name in () if words.holds_everything(results) else ("coverage", "mean_size"):
        metric = (results.get("held_out") or {}).get(name)
        if metric is not None and (metric["value"] is not None or ours.get(name) is None):
            ours[name] = metric
    return ours, [entry for entry in results["comparison"] if entry not in found]


def _size(entry: Entry) -> float | None:
    size = entry.get("mean_size")
    return size["value"] if isinstance(size, Mapping) else size


def sites(results: Entry) -> Sheet:
    """What each site sent, or its own threshold."""
    entries, left_out = shown(results["sites"])
    own = any("threshold" in entry for entry in entries)
    more = (f"{figures.counted(left_out, 'site')} more in the result.",) if left_out else ()
    return Sheet(
        title="Thresholds of the sites" if own else "What sites sent",
        head=("site", "rows", "rank", "threshold" if own else "score"),
        rows=tuple(_site(entry, own=own) for entry in entries),
        notes=(
            *more,
            *reasons(
                (entry["site"], {"value": None, "reason": entry["reason"]})
                for entry in entries
                if "reason" in entry
            ),
        ),
    )


def _site(entry: Entry, *, own: bool) -> tuple[Cell, ...]:
    # A site with too few rows sends no number: its value counts as infinite.
    value = threshold(entry) if own else "∞" if entry.get("score") is None else figures.amount(entry["score"])
    numbers = ("-" if entry.get(name) is None else f"{entry[name]:,.0f}" for name in ("rows", "rank"))
    return tuple(Cell(text=text) for text in (entry["site"], *numbers, value))


def heterogeneity(found: Entry, *, warnings: Sequence[str] = ()) -> Sheet:
    """How much clients differ beyond chance, and what it may cost; not again in words if that is a warning already."""
    rows = [
        ("Pearson's statistic", f"{found['statistic']:.1f}"),
        ("degrees of freedom", f"{found['degrees']:,}"),
        ("p-value", figures.p_value(found["p_value"])),
        ("standard deviation between clients, estimated", figures.error(found["between_sd"])),
    ]
    if found.get("loss_bound") is not None:
        rows.append(("it may take off the coverage up to", figures.error(found["loss_bound"])))
    warning = "Warning: " if found.get("alarming") else ""
    return Sheet(
        title="Differences between clients",
        head=("", "value"),
        rows=tuple((Cell(text=name), Cell(text=text)) for name, text in rows),
        notes=() if found["text"] in warnings else (f"{warning}{found['text']}",),
    )
