"""Card of a kind of task: the facts about it that every face needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedassay.protocol.cards import Catalogue, Loaded, Named
from fedassay.protocol.parameters import made, values_of
from fedassay.protocol.vocabulary import Task

if TYPE_CHECKING:
    from fedassay.documents.kind import KindDocument
    from fedassay.tasks.command import CommandCard
    from fedassay.tasks.promise import Promise
    from fedassay.tasks.study_rules import StudyRules

NO_RULES: Named[Any] = Named("fedassay.tasks.study_rules:StudyRules")


@dataclass(frozen=True, kw_only=True)
class KindCard:
    """Facts about a kind of task that faces need.

    Parameters
    ----------
    name : name in commands, study files, requests and results.
    title : heading of a report about a single task.
    section : heading among the tasks of a study.
    order : place in reports; a reader asks first whether the model is good, then whether it is calibrated.
    purpose : comment in the first study file.
    task : the frozen dataclass with `steps`, whose fields are its parameters.
    parameters : the frozen dataclass that the task inherits them from, in a module that imports little; the task itself
        by default.
    document : its part of a report.
    results : declaration of its results, a ``TypedDict``, from which their JSON Schema is made.
    asked_as : name under which users ask for it, if different from `name`: the columns then decide between the kinds.
    reads : text that distinguishes it from other kinds of the same `asked_as`, in help.
    privacy : trust model where users name none; the usual trust model by default.
    command : options of its command besides its parameters; the columns by default. Of kinds with the same
        `asked_as`, the kind of that name has it.
    columns : roles of the columns that it always reads; they distinguish it from other kinds of the same `asked_as`.
    rules : rules for the implications of a study file for it.
    in_first_study : True if `fedassay init` proposes it.
    example : parameters with which it can be planned before anything is known of the data.
    variants : parameters with which other trust models may answer it, by their names in the table of cells.
    always_releases : True if a certificate without a release of it is incomplete.
    forecast_of : object of the sentence "Predict ..", the help of its plan.
    forecast : predicts its errors, for the planner (`tasks.forecast.Forecast`).
    promises : statements about its results whose truth an audit counts; a tuple of `Promise`.
    artefact : function that makes the object to store and apply later from a `Result`; None if there is none.
    artefact_file : file of the artefact in a study's folder, where the task has the name of its kind.
    """

    name: str
    title: str
    section: str
    order: int
    purpose: str
    task: Named[type[Any]]
    document: Named[type[KindDocument]]
    forecast: Named[type[Any]]
    forecast_of: str = ""
    parameters: Named[type[Any]] | None = None
    results: Named[Any] | None = None
    asked_as: str = ""
    reads: str = ""
    privacy: str = ""
    command: CommandCard | None = None
    columns: tuple[str, ...] = ()
    rules: Named[type[StudyRules]] = NO_RULES
    in_first_study: bool = False
    example: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    always_releases: bool = True
    promises: Named[tuple[Promise, ...]] | None = None
    artefact: Named[Callable[[Any], Any]] | None = None
    artefact_file: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked_as", self.asked_as or self.name)

    @property
    def sentence(self) -> str:
        """Purpose of its command, in one sentence."""
        return self.command.sentence if self.command else f"{self.title}."

    @property
    def declared(self) -> Named[type[Any]]:
        """Class that declares the parameters."""
        return self.parameters or self.task

    @property
    def forecast_help(self) -> str:
        """First line of the help of its plan."""
        return f"Predict {self.forecast_of or self.section.lower()}."

    @property
    def study_rules(self) -> StudyRules:
        """Rules of the kind, for its columns."""
        return self.rules.load()(self.columns)

    def file_of(self, name: str) -> str:
        """Return the file of the artefact of a task of this name.

        Examples
        --------
        >>> KINDS["calibrate-classes"].file_of("calibrate"), KINDS["conformal"].file_of("strict")
        ('calibrator.json', 'strict.json')
        """
        return self.artefact_file if self.artefact_file and name == self.asked_as else f"{name}.json"


KINDS: Catalogue[KindCard] = Catalogue(
    "fedassay.kinds",
    ("fedassay.tasks.*.card",),
    what="task",
)
"""Every kind of task that is installed."""


# --- every task that can be asked for by name ---------------------------------------------------------------

DEFAULT = "evaluate"
"""Task that is run where no task is named."""

TASKS: Mapping[str, type[Any]] = Loaded(lambda: {name: card.task for name, card in KINDS.items()})
"""Tasks by name. A task is a frozen dataclass whose fields are plain values; all of them have defaults."""

PARAMETERS: Mapping[str, type[Any]] = Loaded(lambda: {name: card.declared for name, card in KINDS.items()})
"""Classes that declare the parameters of tasks, by name: for faces, which do not run tasks."""


def task_of(name: str, given: Mapping[str, Any]) -> Task[dict[str, Any]]:
    """Make a task from its name and parameters as JSON has them (lists become tuples).

    Examples
    --------
    >>> task_of("evaluate", {"thresholds": [0.2]}).thresholds
    (0.2,)
    >>> task_of("calibrate", {"thresholds": [0.2]})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedassay.errors.ParameterError: thresholds: unknown parameter of calibrate; expected method, bins, ...
    """
    task: Task[dict[str, Any]] = made(KINDS.named(name).task.load(), given, of=name)
    return task


def with_defaults(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a task as JSON values: given ones, those implied by them, and defaults."""
    values = values_of(task_of(name, given))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def rows_of(kind: str, results: Mapping[str, Any]) -> float | None:
    """Return the number of rows of results; for a study, of the first task, in report order, that gives it.

    Examples
    --------
    >>> rows_of("evaluate", {"histogram": {"rows": 400.0}}), rows_of("conformal", {"rows": None})
    (400.0, None)
    """
    if "tasks" in results:
        tasks = sorted(results["tasks"].values(), key=lambda entry: KINDS[entry["task"]].order)
        known = (rows_of(entry["task"], entry["results"]) for entry in tasks)
        return next((rows for rows in known if rows is not None), None)
    return KINDS[kind].study_rules.rows(results)


def with_site_names(results: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Name the sites in results, those of held-out rows too, after the clients, in their order.

    A task does not know its clients. Where the numbers of sites and names differ, as some clients did not answer, sites
    keep their numbers.

    Examples
    --------
    >>> with_site_names({"sites": [{"site": "site 1", "rows": 9.0}]}, ["north"])
    {'sites': [{'site': 'north', 'rows': 9.0}]}
    """
    named = dict(results)
    sites = results.get("sites")
    if sites is not None and len(sites) == len(names):
        named["sites"] = [{**site, "site": name} for site, name in zip(sites, names, strict=True)]
    if isinstance(results.get("held_out"), Mapping):
        named["held_out"] = with_site_names(results["held_out"], names)
    return named
