"""What is predicted of one task of a study: its errors, by name, for any share of the budget."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from fedassay.errors import UsageError
from fedassay.estimation.metric import Metric
from fedassay.planning.expectation import MOST_ROWS
from fedassay.planning.study_expectation import PlannedStudy
from fedassay.planning.verdict import Verdict, half_width, judged

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """One number that a task will report, and how wrong it will be.

    Parameters
    ----------
    width : what has to become small: half an interval, mostly; infinite where there will be no value.
    value : what to expect, where that is known.
    sampling, privacy : the standard errors of which the width is made, where they are known.
    target : what is small enough; None where nobody has said.
    varied : the widths if prevalence and AUC are others than expected (`StudyExpectation.varied`).
    reason : why there will be no value.

    Examples
    --------
    >>> str(Foreseen(width=0.01, target=0.02, varied=(0.015, 0.03)).verdict)
    'not decidable'
    """

    width: float
    value: float | None = None
    sampling: float | None = None
    privacy: float | None = None
    target: float | None = None
    varied: tuple[float, ...] = ()
    reason: str | None = None

    @classmethod
    def of(cls, metric: Metric) -> Foreseen:
        """A metric with its interval."""
        return cls(
            width=half_width(metric),
            value=metric.value,
            sampling=metric.sampling,
            privacy=metric.privacy,
            reason=metric.reason,
        )

    @property
    def verdict(self) -> Verdict | None:
        """Whether it will be near enough."""
        return None if self.target is None else judged(self.target, (self.width, *self.varied))

    @property
    def ratio(self) -> float:
        """The width as a part of its target."""
        assert self.target is not None
        return max(0.0, self.width) / self.target

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        widths = (self.width, *self.varied)
        known = self.varied and all(math.isfinite(width) for width in widths)
        return {
            "value": self.value,
            "width": self.width if math.isfinite(self.width) else None,
            "width_range": [min(widths), max(widths)] if known else None,
            "error": {"sampling": self.sampling, "privacy": self.privacy},
            "target": self.target,
            "verdict": None if self.verdict is None else str(self.verdict),
            **({} if self.reason is None else {"reason": self.reason}),
        }


@dataclass(frozen=True, kw_only=True)
class Forecast(ABC, Generic[T]):
    """Predicts one kind of task.

    Parameters
    ----------
    name : of the task in its study.
    task : with its parameters.
    """

    name: str
    task: T

    targets: ClassVar[Mapping[str, float | None]]
    """What is predicted, and what most studies could live with; None where that is not judged unless somebody asks."""

    main: ClassVar[tuple[str, ...]]
    """What decides over the share, where no targets are given."""

    varies: ClassVar[bool] = False
    """Whether it depends on the prevalence and the AUC that are expected."""

    @abstractmethod
    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Foreseen]:
        """These numbers, without those of which nothing is known beforehand; `study` has the share of this task.

        Raises what a run would raise before it reads a row.
        """

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """What is not as the prediction has it."""
        return ()

    def most_tried(self, study: PlannedStudy) -> tuple[float, float]:
        """Clients, and rows at each of them, that are looked at when asking what is enough."""
        return MOST_ROWS, MOST_ROWS

    # --- with targets -----------------------------------------------------------------------------------------

    def decisive(self, given: Mapping[str, float]) -> dict[str, float]:
        """What decides over the share, with targets: what was asked for, else what most would ask for."""
        if given:
            return self._checked(given)
        return {name: target for name in self.main if (target := self.targets[name]) is not None}

    def _checked(self, given: Mapping[str, float]) -> dict[str, float]:
        for name, width in given.items():
            if name not in self.targets:
                known = ", ".join(f"{self.name}.{one}" for one in self.targets)
                raise UsageError(f"target: got {self.name}.{name}, expected one of {known}.")
            if not 0 < width < math.inf:
                raise UsageError(f"target {self.name}.{name}: got {width:g}, expected a number above 0.")
        return dict(given)

    def ratio(self, study: PlannedStudy, given: Mapping[str, float]) -> float:
        """The worst of what decides, as a part of its target; 0 if nothing is known about any of it."""
        wanted = self.decisive(given)
        found = self.at(study, tuple(wanted))
        return max((replace(one, target=wanted[name]).ratio for name, one in found.items()), default=0.0)

    def foreseen(self, study: PlannedStudy, given: Mapping[str, float]) -> dict[str, Foreseen]:
        """Everything that is predicted, with targets and what they would be for other data."""
        names, wanted = tuple(self.targets), {**self.targets, **self._checked(given)}
        found = self.at(study, names)
        others = [self.at(other, names) for other in study.varied()] if self.varies else []
        return {
            name: replace(
                one,
                target=wanted[name],
                varied=tuple(other[name].width for other in others if name in other),
            )
            for name, one in found.items()
        }
