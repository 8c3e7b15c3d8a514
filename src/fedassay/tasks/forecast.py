"""Forecasts: the errors of a task before there are data, judged by targets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from fedassay.estimation.metric import Metric
from fedassay.tasks.expectation import MOST_ROWS, PlannedStudy

T = TypeVar("T")


class Sufficiency(StrEnum):
    """Verdict on whether the data are enough for a number."""

    ENOUGH = "enough data"
    NOT_ENOUGH = "not enough"
    UNDECIDABLE = "not decidable"


def sufficiency(target: float, widths: Sequence[float]) -> Sufficiency:
    """Compare widths with a target: enough (not enough) if it is reached (missed) under every assumption.

    If the assumptions disagree, they decide, not the data.
    """
    short = [width <= target for width in widths]
    if all(short):
        return Sufficiency.ENOUGH
    return Sufficiency.UNDECIDABLE if any(short) else Sufficiency.NOT_ENOUGH


def half_width(interval: Sequence[float] | None) -> float:
    """Half the length of an interval; infinite without one.

    Examples
    --------
    >>> half_width((0, 1)), half_width(None)
    (0.5, inf)
    """
    return math.inf if interval is None else (interval[1] - interval[0]) / 2


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Number that a task will report, and its error.

    Parameters
    ----------
    width : what has to become small: half an interval, mostly; infinite where there will be no value.
    value : what to expect, where that is known.
    sampling, privacy : the standard errors of which the width is made, where they are known.
    discretisation : the bound on the error of bins, which the width includes.
    target : what is small enough; None where none is given.
    varied : the widths under other plausible assumptions (`Expectation.varied`).
    reason : why there will be no value.
    meaning : what the number is, where its name does not say it.

    Examples
    --------
    >>> str(Prediction(width=0.01, target=0.02, varied=(0.015, 0.03)).verdict)
    'not decidable'
    """

    width: float
    value: float | None = None
    sampling: float | None = None
    privacy: float | None = None
    discretisation: float | None = None
    target: float | None = None
    varied: tuple[float, ...] = ()
    reason: str | None = None
    meaning: str = ""

    @classmethod
    def of(cls, metric: Metric) -> Prediction:
        """A metric with its interval."""
        return replace(cls.of_result(metric.to_json()), discretisation=metric.discretisation)

    @classmethod
    def of_result(cls, metric: Mapping[str, Any]) -> Prediction:
        """A metric as a result has it."""
        errors = metric.get("error") or {}
        return cls(
            width=half_width(metric["interval"]),
            value=metric["value"],
            sampling=errors.get("sampling"),
            privacy=errors.get("privacy"),
            reason=metric.get("reason"),
        )

    @property
    def verdict(self) -> Sufficiency | None:
        """Whether it will be near enough."""
        return None if self.target is None else sufficiency(self.target, (self.width, *self.varied))

    @property
    def ratio(self) -> float:
        """Width as a part of its target."""
        assert self.target is not None
        return max(0.0, self.width) / self.target

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        widths = (self.width, *self.varied)
        known = self.varied and all(math.isfinite(width) for width in widths)
        binning = {} if self.discretisation is None else {"discretisation": self.discretisation}
        return {
            "value": self.value,
            "width": self.width if math.isfinite(self.width) else None,
            "width_range": [min(widths), max(widths)] if known else None,
            "error": {"sampling": self.sampling, "privacy": self.privacy, **binning},
            "target": self.target,
            "verdict": None if self.verdict is None else str(self.verdict),
            **({} if self.reason is None else {"reason": self.reason}),
            **({"meaning": self.meaning} if self.meaning else {}),
        }


@dataclass(frozen=True, kw_only=True)
class DetailTable:
    """Table beside the predictions.

    Parameters
    ----------
    columns : heading of each column, by its name.
    rows : values by the name of their column; a number without a value is None.
    digits : format of the numbers of a column, where two digits of an error are not what is meant.
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    digits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Details:
    """What the plan of a single task adds to its predictions.

    Parameters
    ----------
    facts : plain values, by name.
    tables : by name.
    remarks : sentences below the tables.
    warnings : sentences about what should be changed.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, DetailTable] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain values, without the warnings."""
        tables = {name: _plain(asdict(table)) for name, table in self.tables.items()}
        return {**_plain(self.facts), "tables": tables, "remarks": list(self.remarks)}


def _plain(value: Any) -> Any:
    """Values that JSON has: infinite numbers are None."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, kw_only=True)
class Forecast(ABC, Generic[T]):
    """Prediction of one kind of task.

    Parameters
    ----------
    name : of the task in its study.
    task : with its parameters.
    """

    name: str
    task: T

    targets: ClassVar[Mapping[str, float | None]]
    """Widths that most studies could live with, of all that is predicted; None where nothing is judged by default."""

    main: ClassVar[tuple[str, ...]]
    """Numbers that decide over the share, where no targets are given."""

    expects: ClassVar[tuple[str, ...]] = ()
    """Fields of `Expectation` that it reads, beside rows and clients."""

    varies: ClassVar[bool] = False
    """Whether it depends on the prevalence and the AUC that are expected."""

    quick: ClassVar[bool] = True
    """Whether what would be enough is searched where no target is given."""

    assumption: ClassVar[str] = ""
    """Sentence on what is taken for granted."""

    wishes: ClassVar[Mapping[str, str]] = {}
    """What a target asks for, in words with a place for the number; without them, its name."""

    meanings: ClassVar[Mapping[str, str]] = {}
    """What a number is, where its name does not say it."""

    options: ClassVar[Mapping[str, str]] = {}
    """Help of targets that have an option of their own on the command line."""

    @abstractmethod
    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """Predict these numbers, without those of which nothing is known; `study` has the share of this task.

        Raises what a run would raise before it reads a row.
        """

    def informed(self, study: PlannedStudy) -> T:
        """The task with what is expected in the place of what a run has to be told."""
        return self.task

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """Sentences on what is not as the prediction has it."""
        return ()

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """Tables and sentences of the plan of this task alone; `given` are the targets that were asked for."""
        return Details()

    def most_tried(self, study: PlannedStudy) -> tuple[float, float]:
        """Largest numbers of clients, and of rows at each, that are tried when asking what is enough."""
        return MOST_ROWS, MOST_ROWS

    # --- with targets -----------------------------------------------------------------------------------------

    @property
    def own(self) -> dict[str, float]:
        """Targets that the parameters of the task set."""
        return {}

    def decisive(self, given: Mapping[str, float]) -> dict[str, float]:
        """Numbers that decide over the share, with targets: those asked for, else what most would ask for."""
        if given or self.own:
            return {**self.own, **given}
        return {name: target for name in self.main if (target := self.targets[name]) is not None}

    def ratio(self, study: PlannedStudy, given: Mapping[str, float]) -> float:
        """Worst of what decides, as a part of its target; 0 if nothing is known about any of it."""
        wanted = self.decisive(given)
        found = self.at(study, tuple(wanted))
        return max((replace(one, target=wanted[name]).ratio for name, one in found.items()), default=0.0)

    def predictions(self, study: PlannedStudy, given: Mapping[str, float]) -> dict[str, Prediction]:
        """Everything that is predicted, with targets and what they would be for other data."""
        names, wanted = tuple(self.targets), {**self.targets, **self.own, **given}
        found = self.at(study, names)
        others = [self.at(other, names) for other in study.varied()] if self.varies else []
        return {
            name: replace(
                one,
                target=wanted[name],
                varied=tuple(other[name].width for other in others if name in other),
                meaning=self.meanings.get(name, ""),
            )
            for name, one in found.items()
        }
