"""What prediction sets promise, and what held-out rows show, in words: over all rows together, or for each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.summaries.quantities import QUANTITIES

Results = Mapping[str, Any]

_OUTCOMES = {"0": "without the outcome", "1": "with the outcome"}
"""What the classes of a binary classifier are."""


_NOT_MEASURED = (
    "; for each class it was not measured, as no rows were held out (--holdout 0.3 would measure it)"
)

_CLASSES_UNKNOWN = " and not for each class, whose coverage is not measured"


def sentence(results: Results) -> str:
    """The promise, and the coverage of each class if there are two, of the worst class if there are more.

    A promise over all rows together says next to nothing about a rare class, so that it never stands alone.
    """
    classes = QUANTITIES[results["score"]["name"]].gives_sets
    what, level = "Prediction sets" if classes else "Prediction intervals", results["level"]
    everything = _everything(results)
    if everything:
        return f"{what} of the level {level:g} are of no use: each holds everything, as {everything}."
    said = f"{_promise(results, what)}{_scope(results['conditional'], classes=classes)}"
    shown = _of_classes(results) if classes and results["conditional"] != "group" else ""
    coverage = (results.get("held_out") or {}).get("coverage") or {"value": None}
    if coverage["value"] is None:
        return f"{said}{shown}."
    if shown:
        return f"{said}{shown}. Over all held-out rows the estimate is {_shown(coverage)}."
    return f"{said}; a sample of held-out rows estimates {_shown(coverage)}."


def _everything(results: Results) -> str:
    """Why every set holds everything, as the threshold of all rows, or of each class or group, is infinite."""
    parts = list((results.get("groups") or {"": results}).values())
    return str(parts[0]["reason"]) if all(part["infinite"] for part in parts) else ""


def _promise(results: Results, what: str) -> str:
    promise, level = results["guarantee"], results["level"]
    if promise["kind"] == "none":
        return f"{what} promise nothing for the level {level:g}"
    if promise["kind"] == "marginal":
        return f"{what} hold the truth of a new row with probability at least {level:g}"
    return f"{what} cover at least {level:g} of new rows, with confidence {promise['confidence']:g}"


def _scope(by: str | None, *, classes: bool) -> str:
    if by:
        return f", for each {by}" + (_CLASSES_UNKNOWN if classes and by != "class" else "")
    return ", over all rows together and not for each class" if classes else ""


def _of_classes(results: Results) -> str:
    """What held-out rows of single classes show, or that nobody has looked."""
    held_out = results.get("held_out")
    if held_out is None:
        return "" if results["conditional"] else _NOT_MEASURED
    classes = held_out["groups"] if results["conditional"] else held_out["classes"]
    if classes is None:
        return ""
    if len(classes) == 2:
        named = [(_name(name, results), classes[name]["coverage"]) for name in reversed(list(classes))]
        return f"; {', '.join(_part(name, metric) for name, metric in named)}"
    worst = held_out["worst_class"]
    if worst is None:
        return "; for each class it cannot be told from the held-out rows"
    name = f"of class {worst['class']}, the worst of {len(classes)}"
    return f"; {_part(name, worst['coverage'])}"


def _name(name: str, results: Results) -> str:
    return _OUTCOMES[name] if results["score"]["name"] == "binary" else f"of class {name}"


def _part(name: str, metric: Results) -> str:
    known = metric["value"] is not None
    shown = _shown(metric) if known else f"not known ({metric['reason']})"
    return f"for held-out rows {name}: {shown}"


def _shown(metric: Results) -> str:
    ends = metric.get("interval")
    return f"{metric['value']:.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")
