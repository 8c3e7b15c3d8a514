"""Study files: several tasks over one federation under one budget, in one TOML file.

`docs/how-to/study.md` explains every section, `study/schema.json` is the JSON Schema. What is unknown, of the wrong
type or out of range is refused with file and line: a misspelt entry must not be one that silently is not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedassay.data.sql import Database
from fedassay.errors import UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.planning import Expectation, PlannedStudy
from fedassay.planning.shares import cheapest_change, load
from fedassay.protocol.vocabulary import Budget, Part, Protection, Setting, TrustModel
from fedassay.runtimes.card import RUNTIME_CARDS, RuntimeCard, RuntimeParameters
from fedassay.study.entries import Section, TomlDocument
from fedassay.study.sections import (
    DataSection,
    ExpectedSection,
    Heading,
    LedgerSection,
    SplitSection,
    read_data,
    read_ledger,
    read_privacy,
    read_runtime,
    source_of,
)
from fedassay.study.tasks import NONE, StudyTask, read_task
from fedassay.tasks.card import KINDS

# --- a study as it is written down --------------------------------------------------------------------------

_ROWS = {
    Part.FIRST_FIT: "the rows that calibrators are fitted on",
    Part.SECOND_FIT: "the rows that thresholds are fitted on",
    Part.HELD_OUT: "the held-out rows",
}

SECTIONS = ("data", "privacy", "runtime", "ledger", "split", "expected", "tasks")


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """Content of a study file, checked.

    Parameters
    ----------
    path : the file.
    name, title, model : the subject of the study.
    data : the rows of a simulation; None in a release.
    trust, budget, protection : of the whole study; no budget where no noise is added.
    training : the cost of the training of the model, if it is stated.
    runtime : the carrier of the messages.
    ledger : the place where expenses are recorded, and the budget of all studies of these rows.
    holdout : the share of the units that is kept to judge what is fitted; in a release sites decide themselves.
    expected : the expectations of the data, None if none are stated.
    tasks : in the order of the file.
    """

    path: Path
    name: str
    title: str | None
    model: str | None
    data: DataSection | None
    trust: TrustModel
    budget: Budget | None
    protection: Protection
    training: Budget | None
    runtime: RuntimeParameters
    ledger: LedgerSection
    holdout: float
    expected: Mapping[str, Any] | None
    tasks: tuple[StudyTask, ...]
    document: TomlDocument = field(repr=False, compare=False)

    @classmethod
    def read(cls, path: Path | str) -> StudyFile:
        """Read a study file; an error is one sentence that names the line."""
        return cls.of(TomlDocument.read(Path(path)))

    @classmethod
    def parse(cls, text: str, path: Path | str = "study.toml") -> StudyFile:
        """Read a study file from a text; paths in it are relative to that of the file."""
        return cls.of(TomlDocument.parse(text, Path(path)))

    @classmethod
    def of(cls, document: TomlDocument) -> StudyFile:
        """Make the study of a document."""
        root = document.root
        heading = root.made(Heading, besides=SECTIONS)
        runtime = read_runtime(root.section("runtime"))
        data = read_data(root, runtime)
        privacy = read_privacy(root.section("privacy"))
        split = root.section("split").made(SplitSection)
        if "split" in root and not runtime.simulated:
            raise root.problem(
                "split", f"[split] is for simulations; with {runtime.name} sites decide themselves."
            )
        expected = root.section("expected").made(ExpectedSection).given
        study = cls(
            path=document.path,
            name=heading.name,
            title=heading.title,
            model=heading.model,
            data=data,
            trust=privacy.model,
            budget=privacy.budget,
            protection=privacy.protection,
            training=privacy.training,
            runtime=runtime,
            ledger=read_ledger(root, runtime),
            holdout=split.holdout,
            expected=expected or None,
            tasks=_tasks(root.section("tasks"), data, split.holdout),
            document=document,
        )
        study._check_together()
        return study

    def _check_together(self) -> None:
        if self.data is not None:
            self._check_used(self.data)
        self._check_shares()
        try:
            self.agenda()
        except UsageError as error:
            raise self.problem(("tasks",), str(error)) from error

    def _check_shares(self) -> None:
        given = {task.name: task.share for task in self.tasks if task.share is not None}
        if not given:
            return
        try:
            fitting = Agenda(items=tuple(task.item(1 / len(self.tasks)) for task in self.tasks))
        except UsageError:  # something else is wrong with the tasks
            return
        uses = {
            item.name: {atom for part in fitting.parts(item) for atom in part.atoms} for item in fitting.items
        }
        change = cheapest_change(given, uses)
        if not change:
            return
        loads = load(given, uses)
        fullest = max(loads, key=lambda atom: (loads[atom], atom is Part.HELD_OUT))
        involved = [name for name in given if fullest in uses[name]]
        listed = " + ".join(f"{name} {given[name]:g}" for name in involved)
        where = "" if len(set(loads.values())) == 1 else f" on {_ROWS[fullest]}"
        largest = max(involved, key=lambda name: given[name])
        text = f"share: {listed} = {loads[fullest]:.4g}{where}, expected at most 1; {change}."
        raise self.problem(("tasks", largest, "share"), text)

    def _check_used(self, data: DataSection) -> None:
        used = {role for task in self.tasks for role in task.roles}
        for role in data.columns:
            if role not in used:
                hint = _UNUSED.get(role, "leave it out, or add a task that does")
                raise self.problem(("data", "columns", role), f"no task reads the role {role}; {hint}.")

    # --- for the runner of the study ---------------------------------------------------------------------------

    @property
    def source(self) -> Path | Database | None:
        """Place of the rows of a simulation; nothing is opened yet."""
        return None if self.data is None else source_of(self.data, self.path)

    @property
    def text(self) -> str:
        """The file as it was read."""
        return self.document.text

    @property
    def card(self) -> RuntimeCard:
        """The card of the runtime."""
        return RUNTIME_CARDS[self.runtime.name]

    @property
    def simulated(self) -> bool:
        """True if it is a simulation, in which nothing is really released."""
        return self.runtime.simulated

    def setting(self, clients: int) -> Setting:
        """Return the setting of the whole study."""
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=clients)

    def agenda(
        self,
        *,
        shares: Mapping[str, float] | None = None,
        known: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Agenda:
        """Return the agenda of the study.

        Parameters
        ----------
        shares : by task, used where the file gives none. Without them, equal ones, as large as they can be.
        known : by task, the parameters that were looked up (`StudyTask.looked_up`).
        """
        known = known or {}
        given = {task.name: task.share for task in self.tasks if task.share is not None} or dict(shares or {})

        def agenda(share: Mapping[str, float]) -> Agenda:
            return Agenda(
                items=tuple(task.item(share[task.name], known.get(task.name)) for task in self.tasks)
            )

        if given:
            return agenda(given)
        equal = 1 / len(self.tasks)
        most = max(agenda(dict.fromkeys(self.names, equal)).spent().values())
        # Not all tasks ask about the same rows.
        return agenda(dict.fromkeys(self.names, min(1.0, equal / most)))

    def expected_parameters(self, classes: int | None) -> dict[str, dict[str, Any]]:
        """Return, by task, the expected value of what would be looked up: the number of classes."""
        known = {} if classes is None else {"classes": classes}
        return {
            task.name: {name: known[name] for name in task.looked_up if name in known} for task in self.tasks
        }

    def planned(self, expected: Mapping[str, Any] | None = None) -> PlannedStudy:
        """Return the study as the planner sees it; `expected` takes precedence over the expectations of the file."""
        return PlannedStudy(
            expectation=Expectation.of({**(self.expected or {}), **(expected or {})}),
            trust=self.trust,
            budget=self.budget,
            protection=self.protection,
            holdout=self.holdout,
        )

    @property
    def described(self) -> dict[str, Any]:
        """Parameters of the study's result: the entries of the file, except those found elsewhere in the result."""
        return {
            "study": self.name,
            "title": self.title,
            "model": self.model,
            "data": None if self.data is None else self.data.described,
            "columns": {} if self.data is None else dict(self.data.columns),
            "split": {"holdout": self.holdout} if self.simulated else None,
            "seed": getattr(self.runtime, "seed", None),
            "rows_per_client": self.protection.rows_per_client,
            "training": None if self.training is None else asdict(self.training),
            "expected": None if self.expected is None else dict(self.expected),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def gives_shares(self) -> bool:
        """True if the file says how the budget is shared."""
        return all(task.share is not None for task in self.tasks)

    @property
    def digest(self) -> str:
        """SHA-256 of the content of the file: it does not depend on comments, spaces or the order of entries.

        The order of tasks counts.
        """
        content = {**self.document.content, "tasks": list(self.document.content["tasks"].items())}
        text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def problem(self, key: tuple[str | int, ...], wrong: str) -> UsageError:
        """Return an error about an entry, with file and line: ``study.problem(("privacy", "epsilon"), "..")``."""
        return self.document.problem(key, wrong)


_UNUSED = {
    "group": 'leave it out, or name the groups: groups = ["A", "B"] in [tasks.evaluate]',
    "versus": "leave it out, or compare with it: versus = true in [tasks.evaluate]",
}


# --- tasks ------------------------------------------------------------------------------------------------------


def _tasks(section: Section, data: DataSection | None, holdout: float) -> tuple[StudyTask, ...]:
    if not section.entries:
        raise section.document.problem((), "a study needs tasks; give a section such as [tasks.evaluate].")
    columns = None if data is None else data.columns
    tasks = [read_task(section.section(name), name, columns, holdout) for name in section.entries]
    without = [task.name for task in tasks if task.share is None]
    if without and len(without) < len(tasks):
        raise section.section(without[0]).problem(
            None, "has no share, but other tasks have; give all of them one, or none."
        )
    return tuple(_after(section.section(task.name), task, tasks) for task in tasks)


def _after(section: Section, task: StudyTask, tasks: list[StudyTask]) -> StudyTask:
    """Return the task with the one that it builds on, if there is one that it can build on."""
    if task.after is not None:
        return replace(task, after=None) if task.after == NONE else task
    rules = KINDS[task.kind].study_rules
    found = [one for one in tasks if one.kind == rules.builds_on]
    if not found or not rules.can_build(task.parameters):
        return task
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise section.problem(
            None, f'could build on {names}; name one (after = "{found[0].name}"), or "{NONE}".'
        )
    if tasks.index(found[0]) > tasks.index(task):
        raise section.problem(
            None,
            f'builds on [tasks.{found[0].name}], which stands below it; move it above, or give after = "{NONE}".',
        )
    return replace(task, after=found[0].name)
