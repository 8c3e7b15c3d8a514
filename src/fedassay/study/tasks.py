"""The tasks of a study file: their names, their kinds, and the parameters that each kind has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fedassay.errors import UsageError
from fedassay.kernel.agenda import Item
from fedassay.protocol.parameters import Checked, Interval, Parameter, meant, parameter, parameters
from fedassay.protocol.vocabulary import Task
from fedassay.study.entries import Section
from fedassay.tasks.card import KINDS, PARAMETERS, task_of

AFTER = "after"
"""Entry in which prediction sets name the calibration that they build on."""

NONE = "none"
"""Value of `after` where prediction sets shall not build on the calibration."""

TASK_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

RESERVED = frozenset({"result", "report", "certificate", "calibrator", "journal", "study"})
"""Names whose files a study writes for itself."""


@dataclass(frozen=True, kw_only=True)
class TaskEntries(Checked):
    """What a section says of its task, besides the task's parameters."""

    task: str | None = None
    """Kind of the task, if the section is not named like it."""
    share: Annotated[float, Interval(gt=0, le=1)] | None = None
    """Part of the study's budget that it may spend: for all tasks, or for none."""
    after: str | None = None
    """Calibration that they build on, or none. Default: the calibration, if there is one."""


@dataclass(frozen=True, kw_only=True)
class StudyTask:
    """One task of a study.

    Parameters
    ----------
    name : the name of its results.
    kind, parameters : its name in the catalogue, and its parameters as plain values: those that were given, and those
        that the columns imply. Others have the defaults of the task.
    share : the part of the budget, None if the file leaves it to the planner.
    after : the calibration that it builds on.
    looked_up : parameters that are public knowledge and not stated, which a simulation takes from the data:
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
        """Task, as far as it is known before data are looked at."""
        return task_of(self.kind, self._complete({}))

    def item(self, share: float, known: Mapping[str, Any] | None = None) -> Item:
        """Return the item of an agenda, with the parameters that were looked up."""
        return Item(
            name=self.name,
            task=self.kind,
            parameters=self._complete(known or {}),
            share=share,
            after=self.after,
        )

    def _complete(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return KINDS[self.kind].study_rules.stand_in({**self.parameters, **known})

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of the columns that it reads."""
        return KINDS[self.kind].study_rules.roles(self.parameters)


StudyColumns = Mapping[str, str] | None
"""Role to column, None in a release, in which sites hold their own."""


def shared_entries(kind: str) -> tuple[Parameter, ...]:
    """Return the entries of a task that are no parameters of it; only some kinds build on another task."""
    builds = KINDS[kind].study_rules.builds_on
    return tuple(one for one in parameters(TaskEntries) if builds or one.name != AFTER)


def read_task(section: Section, name: str, columns: StudyColumns, holdout: float) -> StudyTask:
    """Read a task from its section; `holdout` is the share of the units that is held out."""
    _check_name(section, name)
    kind = _kind(section, name, columns)
    shared = {one.name: section.value(one) for one in shared_entries(kind) if one.name in section}
    given = section.given(parameters(PARAMETERS[kind]), besides=[one.name for one in shared_entries(kind)])
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    implied = _implied(section, kind, plain, columns, holdout)
    task = StudyTask(
        name=name,
        kind=kind,
        parameters={**plain, **implied},
        share=shared.get("share"),
        after=shared.get(AFTER),
        looked_up=_looked_up(section, kind, {**plain, **implied}, columns),
    )
    try:
        task.item(1.0 if task.share is None else task.share)
        _ = task.made
    except UsageError as error:
        raise section.located(error) from error
    _check_roles(section, task, columns)
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


def _kind(section: Section, name: str, columns: StudyColumns) -> str:
    kind = str(section.value(parameter(TaskEntries, "task"))) if "task" in section else name
    if kind not in KINDS:
        guess, _, expected = meant(kind, KINDS).partition("; expected ")
        if "task" in section:
            raise section.problem("task", f"task: got {kind!r}{guess}, expected one of {expected}.")
        raise section.problem(None, f"is no task{guess}, so that it needs the entry task: one of {expected}.")
    known = set(columns or {})
    alike = [card for card in KINDS.values() if card.asked_as == kind]
    if known >= set(KINDS[kind].columns):
        return kind
    return next((card.name for card in alike if known >= set(card.columns)), kind)


# --- what the columns imply -----------------------------------------------------------------------------------


def _implied(
    section: Section, kind: str, given: Mapping[str, Any], columns: StudyColumns, holdout: float
) -> dict[str, Any]:
    """Return parameters that are not given but follow from the columns, and defaults of studies."""
    try:
        implied = KINDS[kind].study_rules.implied(given, columns, holdout)
    except UsageError as error:
        raise section.located(error) from error
    return {name: value for name, value in implied.items() if name not in given}


def _looked_up(
    section: Section, kind: str, parameters: Mapping[str, Any], columns: StudyColumns
) -> tuple[str, ...]:
    """Return the parameters that a simulation looks up; in a release they have to be stated."""
    missing = KINDS[kind].study_rules.looked_up(parameters)
    if missing and columns is None:
        raise section.problem(
            None,
            f"needs {missing[0]}: in a release it must be said, because it is information about the rows.",
        )
    return missing


def _check_roles(section: Section, task: StudyTask, columns: StudyColumns) -> None:
    if columns is None:
        return
    for role in task.roles:
        if role not in columns:
            why = f" for {task.kind}" if task.kind != task.name else ""
            raise section.problem(
                None, f'needs a column with the role {role}{why}; give {role} = "COLUMN" in [data.columns].'
            )
