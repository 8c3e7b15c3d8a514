"""Names of prediction sets, whether they hold everything, and what held-out rows of each class show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.documents import figures

_Results = Mapping[str, Any]

_INTERVALS = ("absolute", "normalised", "cqr")

NO_ERROR = "The error of the model itself is not measured by this task, only what its intervals cover."

FEW_CLASSES = 2
"""Largest number of classes of which each has a key number of its own; of more, only the worst has."""

_OUTCOMES = {"0": "without the outcome", "1": "with the outcome"}
"""Names of the classes of a binary classifier."""


def are_intervals(results: _Results) -> bool:
    """Return whether sets are intervals around a number, and not sets of classes or of anything else with a score."""
    return results["score"]["name"] in _INTERVALS


def size_name(results: _Results) -> str:
    """Return the name of the size of the sets.

    Examples
    --------
    >>> [size_name({"score": {"name": name}}) for name in ("absolute", "cqr", "lac")]
    ['width of the intervals', 'mean width of the intervals', 'mean size of the sets']
    """
    if not are_intervals(results):
        return "mean size of the sets"
    alike = results["score"]["name"] == "absolute" and not results.get("groups")
    return "width of the intervals" if alike else "mean width of the intervals"


def group_entries(results: _Results) -> list[dict[str, Any]]:
    """Return the groups, each with its name, without ``other`` if it is known to be empty."""
    return [
        {"group": name, **entry}
        for name, entry in (results.get("groups") or {}).items()
        if name != figures.OTHER or entry.get("rows") != 0
    ]


def holds_everything(results: _Results) -> bool:
    """Return whether every set holds everything, as the threshold is infinite: that of all rows, or of each group.

    Counts on held-out rows are then noise around a known value, and are not shown.
    """
    return all(entry.get("infinite") for entry in group_entries(results) or [dict(results)])


def classes(results: _Results) -> Mapping[str, _Results]:
    """Return what held-out rows of each class show, by class; empty if not measured, or if sets are not of classes."""
    held_out = results.get("held_out") or {}
    return held_out.get("groups" if results.get("conditional") == "class" else "classes") or {}


def class_name(name: str, results: _Results) -> str:
    """Return the name of the rows of a class.

    Examples
    --------
    >>> class_name("1", {"score": {"name": "binary"}}), class_name("7", {"score": {"name": "lac"}})
    ('with the outcome', 'of class 7')
    """
    return _OUTCOMES[name] if results["score"]["name"] == "binary" else f"of class {name}"


def coverage_of_classes(results: _Results) -> list[tuple[str, _Results]]:
    """Return the coverage of each of two classes, the rarer outcome first, or of the worst of more; named by rows."""
    found = classes(results)
    if len(found) <= FEW_CLASSES:
        return [(class_name(name, results), found[name]["coverage"]) for name in reversed(list(found))]
    worst = results["held_out"].get("worst_class")
    if worst is None:
        return []
    return [(f"{class_name(worst['class'], results)}, the worst of {len(found)}", worst["coverage"])]


def by_chance(results: _Results) -> str:
    """Return a remark on an estimate below the level whose interval holds the level; else an empty text."""
    covered = (results.get("held_out") or {}).get("coverage") or {"value": None}
    value, ends, level = covered["value"], covered.get("interval"), results["level"]
    if value is None or ends is None or value >= level or not ends[0] <= level <= ends[1]:
        return ""
    return f"consistent with {level:g}"


def some_are_empty(results: _Results) -> str:
    """Return a sentence if sets of classes are so small on average that some must be empty, noise allowed for."""
    held_out = results.get("held_out") or {}
    size = held_out.get("mean_size") or {"value": None}
    if not held_out.get("size_counts") or size["value"] is None:
        return ""
    noisy = (size.get("error") or {}).get("privacy", 0.0) > 0
    largest = size["interval"][1] if noisy and size.get("interval") else size["value"]
    if largest >= 1:
        return ""
    return "Some sets are empty: the model is right more often than was asked; ask for a higher level."


def is_exact(metric: _Results) -> bool:
    """Return whether the interval of a metric has no width, as for a value that is the same for all rows."""
    ends = metric.get("interval")
    return ends is not None and ends[0] == ends[1]


def size(metric: _Results) -> str:
    """Format a size without its interval; with four digits if the interval has no width.

    Examples
    --------
    >>> size({"value": 185.6382, "interval": [185.6382, 185.6382]}), size({"value": 1.236, "interval": [1.1, 1.4]})
    ('185.6', '1.24')
    """
    return figures.amount(float(f"{metric['value']:.4g}")) if is_exact(metric) else figures.value(metric)
