"""Assumptions of a plan: the data, the clients, the terms, and the part of them for one task of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Budget, Part, Plan, Protection, Query, Setting, TrustModel, Unit
from fedassay.summaries.multiclass.maps import checked_classes
from fedassay.tasks.shared_parameters import HOLDOUT

PREVALENCE_ODDS = 1.5
"""Factor by which the assumed odds of a positive row may be wrong, for a verdict that still holds."""

AUC_SHIFT = 0.05
"""Distance by which the assumed AUC may be wrong."""

MOST_ROWS = 1e12
ACCURACY, TEMPERATURE = 0.8, 1.5
HIGHEST_ACCURACY = 0.999
COLDEST, HOTTEST = 0.1, 10.0
_LEAST_AUC, _MOST_AUC = 0.51, 0.995


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Expected data: rows at clients of equal size, and the other assumptions that tasks need.

    Scores of two classes are assumed to be calibrated and binormal (`evaluation.accuracy.expected_evidence`), logits of
    several to be those of `evaluation.typical_model`.

    Examples
    --------
    >>> expected = Expectation(rows=1000, clients=10, prevalence=0.2, auc=0.75)
    >>> expected.known("evaluate", "auc"), expected.varied()[0].prevalence
    ({'auc': 0.75}, 0.14285714285714285)
    >>> Expectation(rows=1000, auc=0.8).known("evaluate", "prevalence")
    Traceback (most recent call last):
    fedassay.errors.UsageError: evaluate: prevalence is missing: what do you expect? Give --prevalence, or put it into \
[expected].
    """

    rows: float
    """How many rows there will be, in all."""
    clients: int = None  # type: ignore[assignment] # as many as rows
    """How many clients, of equal size. Default: each row is one."""
    prevalence: float | None = None
    """The share of positive rows that you expect."""
    auc: float | None = None
    """The AUC that you expect."""
    classes: int | None = None
    """How many classes a model has whose logits are read."""
    accuracy: float = ACCURACY
    """With --classes: how often the model is right."""
    temperature: float = TEMPERATURE
    """With --classes: the best temperature that you expect, above 1 if the model is too sure of itself."""
    features: int | None = None
    """How many features there will be."""

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_ROWS:
            raise UsageError(f"rows: got {self.rows:g}, expected a number from 1 to {MOST_ROWS:.0e}.")
        if self.clients is None:
            object.__setattr__(self, "clients", round(self.rows))
        if not 1 <= self.clients <= self.rows:
            raise UsageError(
                f"clients: got {self.clients:,} for {self.rows:,.0f} rows, expected at least 1 and no more than "
                "rows; leave out clients without rows."
            )
        if self.prevalence is not None and not 0 < self.prevalence < 1:
            raise UsageError(
                f"prevalence: got {self.prevalence:g}, expected the share of positive rows, between 0 and 1."
            )
        if self.auc is not None and not 0.5 < self.auc < 1:
            raise UsageError(
                f"auc: got {self.auc}, expected a number between 0.5 and 1; a model at 0.5 says nothing, and one "
                "below would be better turned around."
            )
        if self.classes is not None:
            self._check_logits(self.classes)

    def _check_logits(self, classes: int) -> None:
        checked_classes(classes)
        if not 1 / classes < self.accuracy <= HIGHEST_ACCURACY:
            raise UsageError(
                f"accuracy: got {self.accuracy:g}, expected a number above {1 / classes:.3g}, which is guessing "
                f"among {classes} classes, up to {HIGHEST_ACCURACY:g}."
            )
        if not COLDEST <= self.temperature <= HOTTEST:
            raise UsageError(
                f"temperature: got {self.temperature:g}, expected a number from {COLDEST:g} to {HOTTEST:g}; above 1 "
                "for a model that is too sure of itself."
            )

    @classmethod
    def of(cls, expected: Mapping[str, Any]) -> Expectation:
        """Read the section [expected] of a study file.

        Examples
        --------
        >>> Expectation.of({"rows": 1000, "clients": 10}).clients
        10
        """
        for name in ("rows", "clients"):
            _require(expected.get(name), "study", name)
        return cls(**expected)

    def known(self, task: str, *names: str) -> dict[str, Any]:
        """Return these assumptions by name; refuse a task that needs an assumption that is not given."""
        return {name: _require(getattr(self, name), task, name) for name in names}

    def varied(self) -> tuple[Self, ...]:
        """Return plausible extremes: odds of the prevalence by a factor, AUC by a shift; none if unknown."""
        if self.prevalence is None or self.auc is None:
            return ()
        odds = self.prevalence / (1 - self.prevalence)
        low, high = min(_LEAST_AUC, self.auc), max(_MOST_AUC, self.auc)
        return tuple(
            replace(
                self,
                prevalence=factor * odds / (1 + factor * odds),
                auc=min(high, max(low, self.auc + shift)),
            )
            for factor in (1 / PREVALENCE_ODDS, PREVALENCE_ODDS)
            for shift in (-AUC_SHIFT, AUC_SHIFT)
        )

    def with_clients(self, clients: int) -> Self:
        """Return the expectation of this many clients of the same size, and their rows."""
        return replace(self, rows=self.rows * clients / self.clients, clients=clients)

    def to_dict(self) -> dict[str, Any]:
        """Return the known assumptions, as plain values."""
        hidden = {"accuracy", "temperature"} if self.classes is None else set()
        return {
            name: value for name, value in asdict(self).items() if value is not None and name not in hidden
        }


def _require(value: Any, task: str, name: str) -> Any:
    if value is None:
        raise UsageError(
            f"{task}: {name} is missing: what do you expect? Give --{name}, or put it into [expected]."
        )
    return value


_Traffic = Callable[[Sequence[Plan], "PlannedStudy"], int]
"""Function that returns the bytes of a request with these plans and of its reply."""


def uncounted(_: Sequence[Plan], __: PlannedStudy) -> int:
    """Count no bytes: messages do not concern a task."""
    return 0


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """Expected data and terms of a study; with `share` and `fits_on`, those of one of its tasks.

    Parameters
    ----------
    holdout : the part of the units on which a fit is judged.
    share, fits_on : the part of the budget that a task may spend, and the rows that it gets as its rows to fit on; as
        in `Setting`.
    seen : the part of all units, drawn at random, whose rows are used.
    traffic : function that counts the bytes of messages.

    Examples
    --------
    >>> from fedassay.trust import Plain
    >>> study = PlannedStudy(expectation=Expectation(rows=1000, clients=10), trust=Plain())
    >>> study.part_of(Part.FIT), study.part_of(Part.SECOND_FIT), study.part_of(Part.ALL)
    (0.7, 0.35, 1.0)
    >>> study.seeing(0.35).rows
    350.0
    """

    expectation: Expectation
    trust: TrustModel
    budget: Budget | None = None
    protection: Protection = field(default_factory=Protection)
    holdout: float = HOLDOUT
    share: float = 1.0
    fits_on: Part = Part.FIT
    seen: float = 1.0
    traffic: _Traffic = uncounted

    def __post_init__(self) -> None:
        if not 0 < self.holdout < 1:
            raise UsageError(f"holdout: got {self.holdout:g}, expected a share between 0 and 1.")
        if not 0 < self.seen <= 1:
            raise UsageError(f"rows that are seen: got {self.seen:g} of them, expected a number in (0, 1].")

    @property
    def setting(self) -> Setting:
        """Terms as the task would know them."""
        one_row_each = self.expectation.clients >= self.expectation.rows
        return Setting(
            trust=self.trust,
            protection=self.trust.with_one_row_each(self.protection) if one_row_each else self.protection,
            budget=self.budget,
            clients=self.expectation.clients,
            share=self.share,
            fits_on=self.fits_on,
        )

    @property
    def rows(self) -> float:
        """Rows that are used: excess rows of a client are left out."""
        bound = self.protection.rows_per_client
        rows, clients = self.expectation.rows, self.expectation.clients
        return self.seen * (rows if bound is None else min(rows, float(clients * bound)))

    @property
    def rows_each(self) -> int:
        """Rows of each client."""
        return math.floor(self.rows / self.expectation.clients)

    @property
    def holders(self) -> int:
        """Number of clients with some of these rows: all of them, unless whole clients are drawn."""
        if self.setting.protection.unit is not Unit.CLIENT:
            return self.expectation.clients
        return max(1, round(self.seen * self.expectation.clients))

    def part_of(self, part: Part) -> float:
        """Return the part of the units that has these rows, on average."""
        half = (1 - self.holdout) / 2
        sizes = {Part.FIRST_FIT: half, Part.SECOND_FIT: half, Part.HELD_OUT: self.holdout}
        return sum(sizes[atom] for atom in part.atoms)

    @property
    def fit_part(self) -> float:
        """Part of the units that this task fits on."""
        return self.part_of(self.fits_on)

    def bytes_of(self, *queries: Query[Any]) -> int:
        """Return the bytes of a client for these queries together, without keys and shares of secure sums."""
        return self.traffic([self.setting.plan(query) for query in queries], self)

    def seeing(self, part: float) -> Self:
        """Return the same study about this part of the units."""
        return replace(self, seen=part)

    def varied(self) -> tuple[Self, ...]:
        """Return the same study of other plausible data."""
        return tuple(replace(self, expectation=other) for other in self.expectation.varied())

    def with_clients(self, clients: int) -> Self:
        """Return the same study with this many clients of the same size."""
        return replace(self, expectation=self.expectation.with_clients(clients))

    def with_rows(self, rows: float) -> Self:
        """Return the same study with this many rows at its clients; a bound on a client's rows scales too."""
        protection = self.protection
        if protection.rows_per_client is not None:
            bound = math.ceil(protection.rows_per_client * rows / self.expectation.rows)
            protection = replace(protection, rows_per_client=max(1, bound))
        return replace(self, expectation=replace(self.expectation, rows=rows), protection=protection)

    def with_epsilon(self, epsilon: float) -> Self:
        """Return the same study with another epsilon."""
        assert self.budget is not None
        return replace(self, budget=replace(self.budget, epsilon=epsilon))

    def to_dict(self) -> dict[str, Any]:
        """Return the assumptions and terms, as plain values."""
        return {
            "rows_used": self.rows,
            **self.expectation.to_dict(),
            "trust_model": self.trust.name,
            "attendance": self.trust.attendance(self.expectation.clients) or None,
            "unit": str(self.protection.unit),
            "neighbours": str(self.protection.neighbours),
            "rows_per_client": self.protection.rows_per_client,
            "epsilon": None if self.budget is None else self.budget.epsilon,
            "delta": None if self.budget is None else self.budget.delta,
            "holdout": self.holdout,
        }
