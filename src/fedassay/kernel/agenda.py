"""Agenda of a study: its tasks by name, the share of the budget that each may spend, and which builds on which.

A single task is an agenda of one item. Its caller, on whatever runtime, makes jobs of it (`Agenda.jobs`) and
gets one ``results`` object back (`Agenda.results`): the task's own for a single task, one with all of them for more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from types import UnionType
from typing import Any

from fedassay.errors import UsageError
from fedassay.kernel.run import Job, rehearse
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.protocol.vocabulary import ATOMS, Budget, Message, Part, Plan, Query, Setting, Task
from fedassay.tasks.card import KINDS, TASKS, task_of, with_defaults, with_site_names
from fedassay.tasks.study_rules import verdict

# --- what a run has spent -----------------------------------------------------------------------------------

_LEFT_OUT = ("dataset", "study", "asker", "fingerprint")
"""Fields that are the same for all charges of a run, or are not for publication."""

_OF_NOISE = ("scale", "l1", "l2", "shuffled_epsilon", "shuffled_delta", "sampled")
_NAMED = tuple(field.name for field in fields(Charge) if field.name not in _LEFT_OUT)


def spending(charges: Iterable[Charge], budget: Budget | None) -> dict[str, Any]:
    """Return the budget of a study, the sum of its releases, and each of them; None where there is no noise.

    Guarantee: `spent` is `ledger.compose` of the charges at the budget's delta, so what a ledger with these charges
    gives, and what anyone can compute again from the entries. `by_task` is the same of the charges of each task alone;
    under a delta these add up to more than `spent`.
    """
    charges = list(charges)
    entries = [_entry(charge, budget) for charge in charges]
    if budget is None:
        unknown = dict.fromkeys(("epsilon", "delta", "spent", "remaining", "by_task"))
        return {**unknown, "charges": entries}
    spent = compose(charges, budget.delta)
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "spent": spent if math.isfinite(spent) else None,
        "remaining": max(0.0, budget.epsilon - spent),
        "by_task": _by_task(charges, budget),
        "charges": entries,
    }


def _by_task(charges: Iterable[Charge], budget: Budget) -> dict[str, Any]:
    found: dict[str, list[Charge]] = {}
    for charge in charges:
        found.setdefault(_name(charge), []).append(charge)
    return {name: _plain(compose(mine, budget.delta)) for name, mine in found.items()}


def _name(charge: Charge) -> str:
    """Return the name of its task in the study."""
    return charge.task.rpartition(":")[2]


def _entry(charge: Charge, budget: Budget | None) -> dict[str, Any]:
    """Describe one release; fields that only noise has are None without it."""
    alone = math.inf if budget is None else compose([charge], budget.delta)
    entry = {name: _plain(getattr(charge, name)) for name in _NAMED}
    entry |= dict.fromkeys(_OF_NOISE) if charge.exact else {}
    return {**entry, "task": _name(charge), "epsilon": _plain(alone)}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, which knows no infinite numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.hex() if isinstance(value, bytes) else str(value)


# --- what a study asks --------------------------------------------------------------------------------------

STUDY = "study"
"""Name of a result of several tasks."""

MOST_ITEMS = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_TYPES: Mapping[str, type | UnionType] = {
    "name": str,
    "task": str,
    "parameters": dict,
    "share": float,
    "after": str | None,
}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One task of a study.

    Parameters
    ----------
    name : name under which its results are found.
    task, parameters : its name in the catalogue, and its fields as plain values.
    share : the part of the study's budget that it may spend.
    after : the calibration whose map its scores go through, if that is recommended: for prediction sets.
    """

    name: str
    task: str
    parameters: Mapping[str, Any]
    share: float = 1.0
    after: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"task {self.name!r}: expected a name of at most 32 lower-case letters, digits and hyphens."
            )
        if isinstance(self.share, bool) or not 0 < self.share <= 1:
            raise UsageError(f"share of {self.name}: got {self.share!r}, expected a number in (0, 1].")
        object.__setattr__(self, "share", float(self.share))
        object.__setattr__(self, "parameters", with_defaults(self.task, self.parameters))

    @property
    def label(self) -> str:
        """Text that clients receive about the asker: the kind of task, and its name if that is another."""
        return self.name if self.name == self.task else f"{self.task}:{self.name}"

    @cached_property
    def made(self) -> Task[dict[str, Any]]:
        """The task itself, which remembers what it has planned."""
        return task_of(self.task, self.parameters)

    @property
    def fits(self) -> bool:
        """True if it fits something to a part of the rows and judges it on the others."""
        return KINDS[self.task].study_rules.holds_out(self.parameters)


@dataclass(frozen=True, kw_only=True)
class Agenda:
    """Tasks of a study, in their order; `study` is False for a task that is run alone.

    Guarantee: shares of tasks that ask about the same rows add up to at most 1. What two tasks fit that build on each
    other is fitted on different rows: the calibrator on the first half of the fit rows, and the threshold for
    calibrated scores on the second, so that for the threshold the calibrator is as good as given.

    Examples
    --------
    >>> agenda = Agenda.of("evaluate", {"thresholds": [0.2]})
    >>> agenda.name, agenda.items[0].made.thresholds
    ('evaluate', (0.2,))
    """

    items: tuple[Item, ...]
    study: bool = True

    def __post_init__(self) -> None:
        names = [item.name for item in self.items]
        if not 1 <= len(names) <= MOST_ITEMS or len(set(names)) != len(names):
            raise UsageError(f"tasks: expected 1 to {MOST_ITEMS} of them, with different names.")
        for place, item in enumerate(self.items):
            self._check_after(item, self.items[:place])
        for atom, spent in self.spent().items():
            if spent > 1 + 1e-9:
                raise UsageError(
                    f"shares: those of tasks that ask about the {atom} rows add up to {spent:.3g}, expected at most 1."
                )

    @staticmethod
    def _check_after(item: Item, before: Sequence[Item]) -> None:
        if item.after is None:
            return
        base = next((one for one in before if one.name == item.after), None)
        rules = KINDS[item.task].study_rules
        if not rules.builds_on:
            rules.require_base(item.name, item.after, item.parameters)
        if base is None or base.task != rules.builds_on:
            raise UsageError(f"{item.name}: it builds on {item.after!r}, expected a calibration before it.")
        rules.require_base(item.name, item.after, item.parameters)

    @classmethod
    def of(cls, task: str, parameters: Mapping[str, Any]) -> Agenda:
        """Make the agenda of a single task."""
        return cls(items=(Item(name=task, task=task, parameters=parameters),), study=False)

    @property
    def name(self) -> str:
        """Name of the result: the task, or `STUDY` for a study of several."""
        return STUDY if self.study else self.items[0].task

    def fits_on(self, item: Item) -> Part:
        """Return the rows that this task gets where it asks for rows to fit on."""
        if item.after is not None:
            return Part.SECOND_FIT
        return Part.FIRST_FIT if any(one.after == item.name for one in self.items) else Part.FIT

    def parts(self, item: Item) -> tuple[Part, ...]:
        """Return the rows that this task asks about."""
        return (self.fits_on(item), Part.HELD_OUT) if item.fits else (Part.ALL,)

    def spent(self) -> dict[Part, float]:
        """Return the shares of all tasks that ask about each atom of the rows."""
        spent = dict.fromkeys(ATOMS, 0.0)
        for item in self.items:
            for atom in {atom for part in self.parts(item) for atom in part.atoms}:
                spent[atom] += item.share
        return spent

    # --- running --------------------------------------------------------------------------------------------

    def first_questions(self, setting: Setting) -> tuple[tuple[str, Plan], ...]:
        """Plan each question of the first step of each task; each plan follows the label that clients receive."""
        return tuple(
            (item.label, job.setting.plan(query))
            for item, job in zip(self.items, self.jobs(setting), strict=True)
            for query in rehearse(job.task, job.setting)
        )

    def jobs(self, setting: Setting) -> list[Job]:
        """Return the tasks as jobs of one run; `setting` is that of the study."""
        return [
            Job(
                name=item.name,
                label=item.label,
                task=item.made,
                setting=replace(setting, share=item.share, fits_on=self.fits_on(item)),
                after=item.after,
                informed=partial(KINDS[item.task].study_rules.informed, item.made) if item.after else None,
            )
            for item in self.items
        ]

    def rehearse(self, setting: Setting) -> tuple[Query[Any], ...]:
        """Plan the first step of every task and raise what a run would; the queries of these steps."""
        return tuple(query for job in self.jobs(setting) for query in rehearse(job.task, job.setting))

    def results(
        self,
        outcome: Mapping[str, Any],
        *,
        clients: Sequence[str],
        budget: Budget | None,
        charges: Iterable[Charge],
    ) -> dict[str, Any]:
        """Return the ``results`` of the public contract from what the jobs returned, by name.

        Parameters
        ----------
        clients : in the order in which they were asked.
        charges : charges that the run has paid, in order.
        """
        found = {item.name: with_site_names(outcome[item.name], clients) for item in self.items}
        if not self.study:
            return found[self.items[0].name]
        return {
            "verdict": verdict([(item.task, found[item.name]) for item in self.items]),
            "tasks": {
                item.name: {
                    "task": item.task,
                    "share": item.share,
                    "after": item.after,
                    "parameters": dict(item.parameters),
                    "results": found[item.name],
                }
                for item in self.items
            },
            "budget": spending(charges, budget),
        }

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the result: those of a single task, or of each by name."""
        if not self.study:
            return dict(self.items[0].parameters)
        return {"tasks": [item.name for item in self.items]}

    @property
    def labels(self) -> frozenset[str]:
        """Labels under which its tasks ask."""
        return frozenset(item.label for item in self.items)

    # --- as plain values ------------------------------------------------------------------------------------

    def to_message(self) -> Message:
        """Return the agenda as plain values, for announcements."""
        items = [{name: getattr(item, name) for name in _TYPES} for item in self.items]
        return {"study": self.study, "items": items}

    @classmethod
    def from_message(cls, content: object) -> Agenda:
        """Restore the agenda from the result of `to_message`; refuse anything else."""
        if not isinstance(content, dict) or content.keys() != {"study", "items"}:
            raise UsageError("tasks: expected what a study asks, and whether it is one.")
        study, items = content["study"], content["items"]
        if not isinstance(study, bool) or not isinstance(items, list) or (not study and len(items) != 1):
            raise UsageError("tasks: expected a list of tasks, or one that is no study.")
        return cls(items=tuple(_item(one) for one in items), study=study)


def _item(content: object) -> Item:
    if not isinstance(content, dict) or content.keys() != _TYPES.keys():
        raise UsageError("tasks: expected of each task its name, kind, parameters and share.")
    for name, kind in _TYPES.items():
        if not isinstance(content[name], kind):
            raise UsageError(f"tasks: the {name} of one of them is of the wrong type.")
    return Item(**content)


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Single task as an object, which need not be in the catalogue, for entry points of single tasks."""

    name: str
    task: Task[dict[str, Any]]

    def jobs(self, setting: Setting) -> list[Job]:
        """Return the job of the task. Clients learn which kind of task asks, by its name in the catalogue."""
        kind = next((known for known, of in TASKS.items() if type(self.task) is of), self.name)
        return [Job(name=kind, task=self.task, setting=setting)]

    def rehearse(self, setting: Setting) -> tuple[Query[Any], ...]:
        """Rehearse the task; see `Agenda`."""
        return rehearse(self.task, setting)

    def results(self, outcome: Mapping[str, Any], *, clients: Sequence[str], **_: object) -> dict[str, Any]:
        """Return the results of the task; see `Agenda`."""
        (only,) = outcome.values()
        return with_site_names(only, clients)
