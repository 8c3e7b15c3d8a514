"""The tasks of a study file: what is asked under which name, with parameters as its task has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from fedassay.agenda import Item
from fedassay.data.features import split_names
from fedassay.errors import UsageError
from fedassay.protocol import Task
from fedassay.study.entries import Section, field_types
from fedassay.summaries.quantities import QUANTITIES
from fedassay.tasks.catalogue import TASKS, task_of

SHARED = ("task", "share")
"""Entries that every task has, besides its parameters."""

AFTER = "after"
"""Prediction sets also say which calibration they build on."""

NONE = "none"
"""What `after` says where prediction sets shall not build on the calibration."""

DERIVED = ("conformity", "cqr", "normalised", "absolute", "lac", "binary")
"""The conformity scores that columns can stand for; of several for the same columns, the first."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "conformal": {"held_out": True},
        # Servers check every row at every point: the default of the task is for small clients.
        "quantiles": {"points": 4096},
    }
)
"""What parameters are in studies, if nothing is said, where that differs from the task's own default."""

CLASSES_OF = {"evaluate": "evaluate-classes", "calibrate": "calibrate-classes"}
"""What these tasks are where the columns are logits."""

TASK_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

RESERVED = frozenset({"result", "report", "certificate", "calibrator", "journal", "study"})
"""Names whose files a study writes for itself."""


@dataclass(frozen=True, kw_only=True)
class StudyTask:
    """One task of a study.

    Parameters
    ----------
    name : what its results are found under.
    kind, parameters : its name in the catalogue, and its parameters as plain values: those that were given, and those
        that the columns imply. Others have the defaults of the task.
    share : the part of the budget, None if the file leaves it to the planner.
    after : the calibration that it builds on.
    looked_up : parameters that are public knowledge and not said, which a simulation takes from the data:
        ``classes``, ``features``.
    """

    name: str
    kind: str
    parameters: Mapping[str, Any]
    share: float | None = None
    after: str | None = None
    looked_up: tuple[str, ...] = ()

    @property
    def made(self) -> Task[dict[str, Any]]:
        """The task, as far as it is known before data are looked at."""
        return task_of(self.kind, self._complete({}))

    def item(self, share: float, known: Mapping[str, Any] | None = None) -> Item:
        """The item of an agenda, with what was looked up."""
        return Item(
            name=self.name,
            task=self.kind,
            parameters=self._complete(known or {}),
            share=share,
            after=self.after,
        )

    def _complete(self, known: Mapping[str, Any]) -> dict[str, Any]:
        given = {**self.parameters, **known}
        if self.kind == "conformal" and given.get("by") == "class" and "groups" not in given:
            # Any number of classes stands for one that is looked up later.
            given["groups"] = [str(place) for place in range(given.get("classes", 2))]
        return given

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the columns that it reads."""
        return roles_of(self.kind, self.parameters)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a task has to know of the rest of the file: the columns, None in a release, and the held-out share."""

    columns: Mapping[str, str] | None
    holdout: float


def roles_of(kind: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The roles of the columns that a task with these parameters reads.

    Examples
    --------
    >>> roles_of("evaluate", {"versus": True}), roles_of("conformal", {"quantity": "cqr"})
    (('score', 'label', 'versus'), ('target', 'lower', 'upper'))
    """
    if kind == "conformal":
        grouped = ("group",) if parameters.get("by") == "group" else ()
        return (*QUANTITIES[parameters.get("quantity", "conformity")].columns, *grouped)
    if kind in ("ecdf", "quantiles"):
        return ("value", "label") if parameters.get("labelled") else ("value",)
    if kind == "infer":
        return ("features", "target", "offset") if parameters.get("offset") else ("features", "target")
    if kind in CLASSES_OF.values():
        return ("class", "logits")
    more = [role for role, entry in (("versus", "versus"), ("group", "groups")) if parameters.get(entry)]
    return ("score", "label", *(more if kind == "evaluate" else ()))


def parameter_types(kind: str) -> dict[str, Any]:
    """The types of the parameters that a study file can give to a task; a state to go on from is no plain value."""
    return {name: type_ for name, type_ in field_types(TASKS[kind]).items() if name != "state"}


def shared_entries(kind: str) -> tuple[str, ...]:
    """The entries of a task that are no parameters of it."""
    return (*SHARED, AFTER) if kind == "conformal" else SHARED


def read_task(section: Section, name: str, around: Surroundings) -> StudyTask:
    """A task from its section."""
    _check_name(section, name)
    kind = _kind(section, name, around)
    types = parameter_types(kind)
    given = section.given(types, besides=shared_entries(kind))
    parameters = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    implied = _implied(section, kind, parameters, around)
    task = StudyTask(
        name=name,
        kind=kind,
        parameters={**parameters, **implied},
        share=_share(section),
        after=section.value(AFTER, str) if AFTER in section else None,
        looked_up=_looked_up(section, kind, {**parameters, **implied}, around),
    )
    try:
        task.item(1.0 if task.share is None else task.share)
        _ = task.made
    except UsageError as error:
        raise section.located(error) from error
    _check_roles(section, task, around)
    return task


def _check_name(section: Section, name: str) -> None:
    if not TASK_NAME.fullmatch(name):
        raise section.problem(
            None, f"cannot be called {name!r}; expected at most 32 lower-case letters, digits and hyphens."
        )
    if name in RESERVED:
        raise section.problem(
            None, f"cannot be called {name!r}, which names a file of the results; choose another name."
        )


def _kind(section: Section, name: str, around: Surroundings) -> str:
    kind = section.value("task", str) if "task" in section else name
    if kind not in TASKS:
        close = get_close_matches(kind, TASKS, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        expected = f"one of {', '.join(TASKS)}."
        if "task" in section:
            raise section.problem("task", f"task: got {kind!r}{meant}, expected {expected}")
        raise section.problem(None, f"is no task{meant}, so that it needs the entry task: {expected}")
    columns = around.columns or {}
    if kind in CLASSES_OF and "logits" in columns and "score" not in columns:
        return CLASSES_OF[kind]
    return kind


def _share(section: Section) -> float | None:
    if "share" not in section:
        return None
    share = float(section.value("share", float))
    if not 0 < share <= 1:
        raise section.problem("share", f"share: got {share:g}, expected a number in (0, 1].")
    return share


# --- what the columns imply -----------------------------------------------------------------------------------


def _implied(section: Section, kind: str, given: Mapping[str, Any], around: Surroundings) -> dict[str, Any]:
    """Parameters that are not given but follow from the columns, and defaults that studies have of their own."""
    columns = around.columns
    implied: dict[str, Any] = dict(DEFAULTS.get(kind, {}))
    if kind in ("ecdf", "quantiles") and "given" not in given and not {"lower", "upper"} <= given.keys():
        raise section.problem(
            None,
            "needs lower and upper, the range of the values, which is public and not read from the data.",
        )
    if kind == "conformal":
        implied["quantity"] = _quantity(section, columns)
    elif columns is not None:
        if kind == "evaluate":
            implied["versus"] = "versus" in columns
        elif kind == "calibrate-classes":
            implied["held_out"] = around.holdout
        elif kind == "infer":
            implied = _regression(section, given, columns)
    return {name: value for name, value in implied.items() if name not in given}


def _quantity(section: Section, columns: Mapping[str, str] | None) -> str:
    """The conformity score that the columns stand for."""
    if "quantity" in section:
        return str(section.entries["quantity"])
    if columns is None:
        raise section.problem(
            None,
            f"needs quantity, because sites name their own columns; expected one of {', '.join(DERIVED)}.",
        )
    fitting = [
        name for name in DERIVED if name in QUANTITIES and columns.keys() >= set(QUANTITIES[name].columns)
    ]
    if "normalised" in fitting:
        fitting.remove("absolute")
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise section.problem(
            None, f"needs quantity: the columns would do for {' and for '.join(fitting)}; name one."
        )
    wanted = "; ".join(" and ".join(QUANTITIES[name].columns) for name in DERIVED if name in QUANTITIES)
    raise section.problem(None, f"needs columns for a conformity score; give in [data.columns] {wanted}.")


def _regression(section: Section, given: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    names = list(split_names(columns["features"])) if "features" in columns else []
    known = {"features": names, "target": columns.get("target", "")}
    for entry, column in known.items():
        if entry in given and given[entry] != column:
            raise section.problem(entry, f"{entry}: [data.columns] says which they are; leave it out here.")
    implied: dict[str, Any] = {"target": known["target"], "offset": "offset" in columns}
    # A single name may stand for a column of lists, or for numbered columns.
    return implied if len(names) < 2 else {**implied, "features": names}


def _looked_up(
    section: Section, kind: str, parameters: Mapping[str, Any], around: Surroundings
) -> tuple[str, ...]:
    """What a simulation looks up; in a release it has to be said."""
    missing = []
    softmax = kind == "conformal" and getattr(QUANTITIES.get(parameters["quantity"]), "is_softmax", False)
    if (kind in CLASSES_OF.values() or softmax) and "classes" not in parameters:
        missing.append("classes")
    if kind == "infer" and "features" not in parameters:
        missing.append("features")
    if missing and around.columns is None:
        raise section.problem(
            None,
            f"needs {missing[0]}: in a release it must be said, because it is information about the rows.",
        )
    return tuple(missing)


def _check_roles(section: Section, task: StudyTask, around: Surroundings) -> None:
    if around.columns is None:
        return
    for role in task.roles:
        if role not in around.columns:
            why = f" for {task.kind}" if task.kind != task.name else ""
            raise section.problem(
                None, f'needs a column with the role {role}{why}; give {role} = "COLUMN" in [data.columns].'
            )
