"""A study as it is written down: several tasks over one federation under one budget, in one TOML file.

`docs/how-to/study.md` explains every section, `study/schema.json` is the JSON Schema. What is unknown, of the wrong
type or out of range is refused with file and line: a misspelt entry must not be one that silently is not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedassay.data.schema import FEATURES, ROLES
from fedassay.data.sources import source_named
from fedassay.data.sql import Database
from fedassay.errors import UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.planning.shares import cheapest_change, load
from fedassay.protocol.parameters import Parameter, parameters
from fedassay.protocol.vocabulary import Budget, Part, Protection, Setting, TrustModel
from fedassay.runtimes.card import DEFAULT, RUNTIME_CARDS, ReleaseParameters, RuntimeCard, RuntimeParameters
from fedassay.study.entries import Section, TomlDocument
from fedassay.study.sections import (
    DataSection,
    ExpectedSection,
    Heading,
    LedgerSection,
    PrivacySection,
    SplitSection,
)
from fedassay.study.tasks import NONE, StudyTask, Surroundings, read_task
from fedassay.tasks.card import KINDS
from fedassay.trust import TRUST_MODELS

# --- shares that a file gives and that do not fit into the budget -------------------------------------------

_ROWS = {
    Part.FIRST_FIT: "the rows that calibrators are fitted on",
    Part.SECOND_FIT: "the rows that thresholds are fitted on",
    Part.HELD_OUT: "the held-out rows",
}


@dataclass(frozen=True, kw_only=True)
class Excess:
    """Shares that add up to more than 1: whose share stands out, and the sentence about it."""

    task: str
    sentence: str


def excess(agenda: Agenda, shares: Mapping[str, float]) -> Excess | None:
    """What is wrong with these shares of an agenda's tasks; None if they fit.

    Examples
    --------
    >>> from fedassay.kernel.agenda import Item
    >>> names = {"evaluate": 0.7, "calibrate": 0.4}
    >>> agenda = Agenda(items=tuple(Item(name=name, task=name, parameters={}, share=0.5) for name in names))
    >>> found = excess(agenda, names)
    >>> found.task, found.sentence.partition(",")[0]
    ('evaluate', 'share: evaluate 0.7 + calibrate 0.4 = 1.1')
    """
    uses = {item.name: {atom for part in agenda.parts(item) for atom in part.atoms} for item in agenda.items}
    change = cheapest_change(shares, uses)
    if not change:
        return None
    loads = load(shares, uses)
    fullest = max(loads, key=lambda atom: (loads[atom], atom is Part.HELD_OUT))
    involved = [name for name in shares if fullest in uses[name]]
    listed = " + ".join(f"{name} {shares[name]:g}" for name in involved)
    where = "" if len(set(loads.values())) == 1 else f" on {_ROWS[fullest]}"
    return Excess(
        task=max(involved, key=lambda name: shares[name]),
        sentence=f"share: {listed} = {loads[fullest]:.4g}{where}, expected at most 1; {change}.",
    )


# --- sections of a study file that are more than the fields of one ------------------------------------------


def read_runtime(section: Section) -> RuntimeParameters:
    """What carries the messages."""
    name = section.entries.get("name", DEFAULT)
    if not isinstance(name, str) or name not in RUNTIME_CARDS:
        raise section.problem("name", f"name: got {name!r}, expected one of {', '.join(RUNTIME_CARDS)}.")
    card = RUNTIME_CARDS[name]
    if not card.simulated and "seed" in section:
        raise section.problem(
            "seed", f"seed: {name} is a release, whose noise must stay secret; leave the seed out."
        )
    return section.made(card.parameters, besides=("name",))


def read_privacy(section: Section) -> PrivacySection:
    """Who is trusted with what; parameters of the trust model have a section of their own."""
    name = section.entries.get("privacy", PrivacySection.privacy)
    chosen = section.section("parameters")
    given: dict[str, Any] = {}
    if isinstance(name, str) and name in TRUST_MODELS:  # else the section says what is wrong
        kind = TRUST_MODELS[name]
        for entry in chosen.entries if not parameters(kind) else ():
            raise chosen.problem(entry, f"has no {entry!r}: {name} has no parameters; leave it out.")
        given = chosen.given(parameters(kind))
        try:
            kind(**given)
        except UsageError as error:
            raise chosen.located(error) from error
    return section.made(PrivacySection, besides=("parameters",), parameters=given)


def read_data(root: Section, runtime: RuntimeParameters) -> DataSection | None:
    """The rows of a simulation, None in a release, which has none of its own."""
    if not runtime.simulated:
        if "data" in root:
            raise root.problem(
                "data",
                f"[data] is for simulations; with {runtime.name} sites hold their own rows, leave it out.",
            )
        return None
    if "data" not in root:
        raise root.problem(
            "runtime", f"a study needs [data] with a path: {runtime.name} simulates clients on rows of yours."
        )
    section = root.section("data")
    columns = section.section("columns")
    columns.only(ROLES)
    if not columns.entries:
        raise section.problem(
            None, 'needs [data.columns] with the roles, such as score = "p" and label = "y".'
        )
    if "logits" in columns and "class" not in columns:
        raise columns.problem(
            "logits", 'logits: they go with class, a column of 0, 1, ..; give class = "COLUMN".'
        )
    names = {role: _column(columns, role) for role in columns.entries}
    data = section.made(DataSection, besides=("columns",), columns=names)
    try:
        source_of(data, root.document.path)
    except UsageError as error:
        raise section.problem("path", str(error)) from error
    return data


def read_ledger(root: Section, runtime: RuntimeParameters) -> LedgerSection:
    """Where what is spent is recorded."""
    section = root.section("ledger")
    if section.entries and isinstance(runtime, ReleaseParameters) and runtime.home is None:
        raise root.problem(
            "ledger", f"[ledger]: with {runtime.name} the coordinator's file says which; leave it out."
        )
    ledger = section.made(LedgerSection)
    if section.entries and ledger.place is None and runtime.simulated:
        raise section.problem(None, 'needs place, a file such as "ledger.sqlite".')
    return ledger


def _column(columns: Section, role: str) -> str:
    """The column of a role; features may be a list."""
    if role != FEATURES or isinstance(columns.entries[role], str):
        return str(columns.value(_entry(role, str)))
    names = columns.value(_entry(role, tuple[str, ...]))
    if not names or not all(name and "," not in name for name in names):
        raise columns.problem(role, f"{role}: expected names of columns, without commas in them.")
    return ",".join(names)


def _entry(name: str, annotation: Any) -> Parameter:
    return Parameter(name=name, annotation=annotation, default=MISSING, sentence="")


def source_of(data: DataSection, path: Path) -> Path | Database:
    """Where the rows are, relative to the study file."""
    return source_named(data.path, data.query, folder=path.absolute().parent)


# --- a study as it is written down --------------------------------------------------------------------------

SECTIONS = ("data", "privacy", "runtime", "ledger", "split", "expected", "tasks")


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """What a study file says, checked.

    Parameters
    ----------
    path : the file.
    name, title, model : what the study is about.
    data : the rows of a simulation; None in a release.
    trust, budget, protection : of the whole study; no budget where no noise is added.
    training : what the training of the model has cost, if somebody says so.
    runtime : what carries the messages.
    ledger : where what is spent is recorded, and what all studies of these rows may spend.
    holdout : the share of the units that is kept to judge what is fitted; in a release sites decide themselves.
    expected : what is expected of the data, None if nothing is said.
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
        """Read a study file; whatever is wrong with it is one sentence that names the line."""
        return cls.of(TomlDocument.read(Path(path)))

    @classmethod
    def parse(cls, text: str, path: Path | str = "study.toml") -> StudyFile:
        """The same for a text; paths in it are relative to that of the file."""
        return cls.of(TomlDocument.parse(text, Path(path)))

    @classmethod
    def of(cls, document: TomlDocument) -> StudyFile:
        """What a document says."""
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
        found = excess(fitting, given)
        if found is not None:
            raise self.problem(("tasks", found.task, "share"), found.sentence)

    def _check_used(self, data: DataSection) -> None:
        used = {role for task in self.tasks for role in task.roles}
        for role in data.columns:
            if role not in used:
                hint = _UNUSED.get(role, "leave it out, or add a task that does")
                raise self.problem(("data", "columns", role), f"no task reads the role {role}; {hint}.")

    # --- for whoever runs it ------------------------------------------------------------------------------------

    @property
    def source(self) -> Path | Database | None:
        """Where the rows of a simulation are; nothing is opened yet."""
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
        """Whether it is a simulation, of which nothing is really released."""
        return self.runtime.simulated

    def setting(self, clients: int) -> Setting:
        """The setting of the whole study."""
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=clients)

    def agenda(
        self,
        *,
        shares: Mapping[str, float] | None = None,
        known: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Agenda:
        """What the study asks.

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
        """By task, what would be looked up and is expected: how many classes there are."""
        known = {} if classes is None else {"classes": classes}
        return {
            task.name: {name: known[name] for name in task.looked_up if name in known} for task in self.tasks
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def gives_shares(self) -> bool:
        """Whether the file says how the budget is shared."""
        return all(task.share is not None for task in self.tasks)

    @property
    def digest(self) -> str:
        """SHA-256 of what the file says: the same for other comments and spaces, and for another order of entries.

        The order of tasks counts.
        """
        content = {**self.document.content, "tasks": list(self.document.content["tasks"].items())}
        text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def problem(self, key: tuple[str | int, ...], wrong: str) -> UsageError:
        """An error about an entry, with file and line: ``study.problem(("privacy", "epsilon"), "..")``."""
        return self.document.problem(key, wrong)


_UNUSED = {
    "group": 'leave it out, or name the groups: groups = ["A", "B"] in [tasks.evaluate]',
    "versus": "leave it out, or compare with it: versus = true in [tasks.evaluate]",
}


# --- tasks ------------------------------------------------------------------------------------------------------


def _tasks(section: Section, data: DataSection | None, holdout: float) -> tuple[StudyTask, ...]:
    if not section.entries:
        raise section.document.problem((), "a study needs tasks; give a section such as [tasks.evaluate].")
    around = Surroundings(columns=None if data is None else data.columns, holdout=holdout)
    tasks = [read_task(section.section(name), name, around) for name in section.entries]
    without = [task.name for task in tasks if task.share is None]
    if without and len(without) < len(tasks):
        raise section.section(without[0]).problem(
            None, "has no share, but other tasks have; give all of them one, or none."
        )
    return tuple(_after(section.section(task.name), task, tasks) for task in tasks)


def _after(section: Section, task: StudyTask, tasks: list[StudyTask]) -> StudyTask:
    """The task with the one that it builds on, if there is one that it can build on."""
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
