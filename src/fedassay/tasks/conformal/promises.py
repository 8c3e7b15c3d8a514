"""What prediction sets promise and hold, in sentences, and as a claim that ``fedassay audit`` counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.documents import figures
from fedassay.estimation.coverage import scores_needed
from fedassay.summaries.grouped_histogram import OTHER
from fedassay.summaries.quantities import QUANTITIES
from fedassay.tasks.promise import Promise, uniform

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

_Results = Mapping[str, Any]

# --- the sets of a result ---------------------------------------------------------------------------------------------

_INTERVALS = ("absolute", "normalised", "cqr")

NO_ERROR = "The error of the model itself is not measured by this task, only what its intervals cover."

FEW_CLASSES = 2
"""Of so many classes each has a key number of its own; of more only the worst one."""

_OUTCOMES = {"0": "without the outcome", "1": "with the outcome"}
"""What the classes of a binary classifier are."""


def are_intervals(results: _Results) -> bool:
    """Whether sets are intervals around a number, and not sets of classes or of whatever has a score."""
    return results["score"]["name"] in _INTERVALS


def size_name(results: _Results) -> str:
    """What the size of the sets is called.

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
    """The groups, each with its name, without ``other`` if it is known to be empty."""
    return [
        {"group": name, **entry}
        for name, entry in (results.get("groups") or {}).items()
        if name != OTHER or entry.get("rows") != 0
    ]


def holds_everything(results: _Results) -> bool:
    """Whether every set holds everything, as the threshold is infinite: that of all rows, or that of each group.

    What was counted on held-out rows is then noise around what is known anyway, and is not shown.
    """
    return all(entry.get("infinite") for entry in group_entries(results) or [dict(results)])


def classes(results: _Results) -> Mapping[str, _Results]:
    """What held-out rows of each class show, by class; empty where nobody looked, or sets are not of classes."""
    held_out = results.get("held_out") or {}
    return held_out.get("groups" if results.get("conditional") == "class" else "classes") or {}


def class_name(name: str, results: _Results) -> str:
    """What the rows of a class are called.

    Examples
    --------
    >>> class_name("1", {"score": {"name": "binary"}}), class_name("7", {"score": {"name": "lac"}})
    ('with the outcome', 'of class 7')
    """
    return _OUTCOMES[name] if results["score"]["name"] == "binary" else f"of class {name}"


def coverage_of_classes(results: _Results) -> list[tuple[str, _Results]]:
    """The coverage of each of two classes, the rarer outcome first, or of the worst of more; named by their rows."""
    found = classes(results)
    if len(found) <= FEW_CLASSES:
        return [(class_name(name, results), found[name]["coverage"]) for name in reversed(list(found))]
    worst = results["held_out"].get("worst_class")
    if worst is None:
        return []
    return [(f"{class_name(worst['class'], results)}, the worst of {len(found)}", worst["coverage"])]


def by_chance(results: _Results) -> str:
    """What to think of an estimate below the level, if its interval holds the level; else nothing."""
    covered = (results.get("held_out") or {}).get("coverage") or {"value": None}
    value, ends, level = covered["value"], covered.get("interval"), results["level"]
    if value is None or ends is None or value >= level or not ends[0] <= level <= ends[1]:
        return ""
    return f"within what chance allows of {level:g}"


def some_are_empty(results: _Results) -> str:
    """A sentence if sets of classes are so small on average that some must be empty, beyond what noise may do."""
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
    """Whether the interval of a metric has no width: what is the same for all rows has none to show."""
    ends = metric.get("interval")
    return ends is not None and ends[0] == ends[1]


def size(metric: _Results) -> str:
    """A size without its interval: four digits where that has no width.

    Examples
    --------
    >>> size({"value": 185.6382, "interval": [185.6382, 185.6382]}), size({"value": 1.236, "interval": [1.1, 1.4]})
    ('185.6', '1.24')
    """
    return figures.amount(float(f"{metric['value']:.4g}")) if is_exact(metric) else figures.value(metric)


# --- the promise ------------------------------------------------------------------------------------------------------

_NOT_MEASURED = (
    "; for each class it was not measured, as no rows were held out (--holdout 0.3 would measure it)"
)

_CLASSES_UNKNOWN = " and not for each class, whose coverage is not measured"


def sentence(results: _Results) -> str:
    """The promise, and the coverage of each class if there are two, of the worst class if there are more.

    A promise over all rows together says next to nothing about a rare class, so that it never stands alone.
    """
    gives_sets = QUANTITIES[results["score"]["name"]].gives_sets
    what, level = "Prediction sets" if gives_sets else "Prediction intervals", results["level"]
    if holds_everything(results):
        entry = next(iter((results.get("groups") or {"": results}).values()))
        return f"{what} of the level {level:g} are of no use: each holds everything, as {entry['reason']}."
    said = f"{_promise(results, what)}{_scope(results['conditional'], gives_sets=gives_sets)}"
    shown = _of_classes(results) if gives_sets and results["conditional"] != "group" else ""
    coverage = (results.get("held_out") or {}).get("coverage") or {"value": None}
    if coverage["value"] is None:
        return f"{said}{shown}."
    if shown:
        return f"{said}{shown}. Over all held-out rows the estimate is {_shown(coverage)}."
    return f"{said}; a sample of held-out rows estimates {_shown(coverage)}."


def _promise(results: _Results, what: str) -> str:
    promise, level = results["guarantee"], results["level"]
    if promise["kind"] == "none":
        return f"{what} promise nothing for the level {level:g}"
    if promise["kind"] == "marginal":
        return f"{what} hold the truth of a new row with probability at least {level:g}"
    return f"{what} cover at least {level:g} of new rows, with confidence {promise['confidence']:g}"


def _scope(by: str | None, *, gives_sets: bool) -> str:
    if by:
        return f", for each {by}" + (_CLASSES_UNKNOWN if gives_sets and by != "class" else "")
    return ", over all rows together and not for each class" if gives_sets else ""


def _of_classes(results: _Results) -> str:
    """What held-out rows of single classes show, or that nobody has looked."""
    if results.get("held_out") is None:
        return "" if results["conditional"] else _NOT_MEASURED
    if not classes(results):
        return ""
    known = [f"for held-out rows {name}: {_shown(metric)}" for name, metric in coverage_of_classes(results)]
    return f"; {', '.join(known) or 'for each class it cannot be told from the held-out rows'}"


def _shown(metric: _Results) -> str:
    if metric["value"] is None:
        return f"not known ({metric['reason']})"
    ends = metric.get("interval")
    return f"{metric['value']:.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")


# --- warnings ---------------------------------------------------------------------------------------------------------

_MOST_NAMED = 5


def warnings_about(results: _Results, task: Conformal) -> tuple[str, ...]:
    """Sentences for users of these sets: who has too few rows, which sets hold everything, how sites differ."""
    found = []
    needed = scores_needed(task.level, confidence=task.request.confidence)
    alone = results["method"] == "local"
    small = [
        f"{one['site']} ({one['rows']:,})"
        for one in results.get("sites") or ()
        if 0 < one["rows"] < (needed if alone else one["rank"])
    ]
    if small:
        counted = "are left out of the mean" if results["method"] == "average" else "count as infinite"
        found.append(
            f"Too few rows for a quantile of their own at this level: {', '.join(small[:10])}"
            f"{' and others' if len(small) > 10 else ''}; {needed} would be enough. They {counted}."
        )
    differences = results.get("heterogeneity")
    if differences is not None and differences["alarming"]:
        found.append(differences["text"])
    if results["infinite"]:
        found.append(f"The set holds everything: {results['reason']}.")
    parts = results.get("groups") or {}
    empty = [name for name, one in parts.items() if one["rows"] == 0 and name != OTHER]
    if empty:
        rest = "; rows with other names count as other" if task.condition == "group" else ""
        found.append(
            f"No row is in the {task.condition} {_listed(empty)}, of which nothing can be said{rest}."
        )
    full = [name for name, one in parts.items() if one["infinite"] and one["rows"]]
    if full:
        found.append(
            f"The sets of the {task.condition} {_listed(full)} hold everything: {parts[full[0]]['reason']}."
        )
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


# --- the claim --------------------------------------------------------------------------------------------------------


def _new_row_is_covered(results: _Results, rng: np.random.Generator) -> bool:
    return bool(results["infinite"] or rng.random() <= results["threshold"])


PROMISES = (
    Promise(
        name="conformal",
        statement="90 % prediction set of a new row, epsilon 1",
        level=0.9,
        parameters={"method": "pooled", "level": 0.9, "score_range": [0.0, 1.0]},
        columns={"conformity": "x"},
        draw=uniform,
        holds=_new_row_is_covered,
    ),
)
