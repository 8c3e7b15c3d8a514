"""Guarantees of prediction sets, warnings for their users, and the claim that ``fedassay audit`` counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.estimation.coverage import scores_needed
from fedassay.summaries.grouped_histogram import OTHER
from fedassay.summaries.quantities import QUANTITIES
from fedassay.tasks.conformal.document_sets import classes, coverage_of_classes, holds_everything
from fedassay.tasks.promise import Promise, uniform

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

_Results = Mapping[str, Any]

# --- the promise ------------------------------------------------------------------------------------------------------

_NOT_MEASURED = (
    "; for each class it was not measured, as no rows were held out (--holdout 0.3 would measure it)"
)

_CLASSES_UNKNOWN = " and not for each class, whose coverage is not measured"


def sentence(results: _Results) -> str:
    """Return the promise, with the coverage of each class if there are two, of the worst class if there are more.

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
    """Return what held-out rows of single classes show, or that they were not measured."""
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
    """Return warnings for users of these sets: sites with too few rows, sets that hold everything, how sites differ."""
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
