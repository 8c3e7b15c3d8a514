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
    """Verdict on the sufficiency of the data for a number."""

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
    """Return half the length of an interval; infinite without an interval.

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
    width : width that has to become small: half an interval, mostly; infinite where there will be no value.
    value : expected value, where that is known.
    sampling, privacy : the standard errors of which the width is made, where they are known.
    discretisation : the bound on the error of bins, which the width includes.
    target : width that is small enough; None where no target is given.
    varied : the widths under other plausible assumptions (`Expectation.varied`).
    reason : reason why there will be no value.
    meaning : meaning of the number, where its name does not state it.

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
        """Make a prediction from a metric with its interval."""
        return replace(cls.of_result(metric.to_json()), discretisation=metric.discretisation)

    @classmethod
    def of_result(cls, metric: Mapping[str, Any]) -> Prediction:
        """Make a prediction from a metric in the form of a result."""
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
        """Verdict on the width against the target; None without a target."""
        return None if self.target is None else sufficiency(self.target, (self.width, *self.varied))

    @property
    def ratio(self) -> float:
        """Width divided by its target."""
        assert self.target is not None
        return max(0.0, self.width) / self.target

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain values."""
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
    """Table shown with the predictions.

    Parameters
    ----------
    columns : heading of each column, by its name.
    rows : values by the name of their column; a number without a value is None.
    digits : format of the numbers of a column, where two digits of an error are not intended.
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    digits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Details:
    """Details that the plan of a single task adds to its predictions.

    Parameters
    ----------
    facts : plain values, by name.
    tables : tables, by name.
    remarks : sentences below the tables.
    warnings : sentences about necessary changes.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, DetailTable] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the details as plain values, without the warnings."""
        tables = {name: _plain(asdict(table)) for name, table in self.tables.items()}
        return {**_plain(self.facts), "tables": tables, "remarks": list(self.remarks)}


def _plain(value: Any) -> Any:
    """Convert to values that JSON has: infinite numbers become None."""
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
    name : name of the task in its study.
    task : the task with its parameters.
    """

    name: str
    task: T

    targets: ClassVar[Mapping[str, float | None]]
    """Widths that most studies tolerate, of all predictions; None where nothing is judged by default."""

    main: ClassVar[tuple[str, ...]]
    """Numbers that decide the share, where no targets are given."""

    expects: ClassVar[tuple[str, ...]] = ()
    """Fields of `Expectation` that it reads, in addition to rows and clients."""

    varies: ClassVar[bool] = False
    """True if it depends on the expected prevalence and AUC."""

    quick: ClassVar[bool] = True
    """True if sufficient data are searched for even where no target is given."""

    assumption: ClassVar[str] = ""
    """Sentence that states the assumption."""

    wishes: ClassVar[Mapping[str, str]] = {}
    """Text of the demand of a target, with a place for the number; by default, its name."""

    meanings: ClassVar[Mapping[str, str]] = {}
    """Meanings of numbers, where the name does not state it."""

    options: ClassVar[Mapping[str, str]] = {}
    """Help of targets that have an option of their own on the command line."""

    @abstractmethod
    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """Predict these numbers, without those that are unknown; `study` has the share of this task.

        Raises what a run would raise before it reads a row.
        """

    def informed(self, study: PlannedStudy) -> T:
        """Return the task with expected values for the parameters that a run has to be given."""
        return self.task

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """Return sentences on deviations from the assumptions of the prediction."""
        return ()

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """Return tables and sentences of the plan of this task alone; `given` are the requested targets."""
        return Details()

    def most_tried(self, study: PlannedStudy) -> tuple[float, float]:
        """Return the largest numbers of clients, and of rows at each, in a search for sufficient data."""
        return MOST_ROWS, MOST_ROWS

    # --- with targets -----------------------------------------------------------------------------------------

    @property
    def own(self) -> dict[str, float]:
        """Targets that the parameters of the task set."""
        return {}

    def decisive(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return the numbers that decide the share, with their targets: requested, else usual ones."""
        if given or self.own:
            return {**self.own, **given}
        return {name: target for name in self.main if (target := self.targets[name]) is not None}

    def ratio(self, study: PlannedStudy, given: Mapping[str, float]) -> float:
        """Return the largest ratio of a deciding width to its target; 0 if none is known."""
        wanted = self.decisive(given)
        found = self.at(study, tuple(wanted))
        return max((replace(one, target=wanted[name]).ratio for name, one in found.items()), default=0.0)

    def predictions(self, study: PlannedStudy, given: Mapping[str, float]) -> dict[str, Prediction]:
        """Return all predictions, with targets and with the widths for other data."""
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
