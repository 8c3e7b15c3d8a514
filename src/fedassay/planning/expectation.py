"""What a planned study assumes: the data, the clients, and who is trusted with what."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from fedassay.errors import UsageError
from fedassay.protocol import Budget, Noise, Part, Protection, Setting, Sum, TrustModel, Unit
from fedassay.summaries.score_histogram import ScoreHistogram

PREVALENCE_ODDS = 1.5
"""The factor by which the odds of a positive row may be mistaken, for a verdict that still holds."""

MOST_ROWS = 1e12
"""No study is larger."""

AUC_SHIFT = 0.05
"""By how much the assumed AUC may be mistaken."""

_LEAST_AUC, _MOST_AUC = 0.51, 0.995


@dataclass(frozen=True, kw_only=True)
class Size:
    """So many rows at so many clients of equal size.

    Examples
    --------
    >>> Size(rows=1000, clients=10).with_rows(2500).clients
    25
    """

    rows: float
    clients: int

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_ROWS:
            raise UsageError(f"rows: got {self.rows:g}, expected a number from 1 to {MOST_ROWS:.0e}.")
        if not 1 <= self.clients <= self.rows:
            raise UsageError(
                f"clients: got {self.clients:,} for {self.rows:,.0f} rows, expected at least 1 and no more than "
                "rows; leave out clients without rows."
            )

    def with_rows(self, rows: float) -> Self:
        """More or fewer rows, at clients of the same size."""
        return replace(self, rows=rows, clients=max(1, math.floor(self.clients * rows / self.rows)))

    def with_clients(self, clients: int) -> Self:
        """More or fewer clients of the same size, and their rows."""
        return replace(self, rows=self.rows * clients / self.clients, clients=clients)


@dataclass(frozen=True, kw_only=True)
class Expectation(Size):
    """The data one expects: so many rows at so many clients of equal size, with this prevalence and AUC.

    Scores are assumed to be calibrated and binormal; see `accuracy.expected_evidence`.

    Examples
    --------
    >>> Expectation(rows=1000, clients=10, prevalence=0.2, auc=0.75).varied()[0].prevalence
    0.14285714285714285
    """

    prevalence: float
    auc: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.prevalence < 1:
            raise UsageError(
                f"prevalence: got {self.prevalence}, expected the share of positive rows, between 0 and 1."
            )
        if not 0.5 < self.auc < 1:
            raise UsageError(
                f"auc: got {self.auc}, expected a number between 0.5 and 1; a model at 0.5 says nothing, and one "
                "below would be better turned around."
            )

    def varied(self) -> tuple[Expectation, ...]:
        """The corners of what is still plausible: odds of the prevalence by a factor, AUC by a shift."""
        return tuple(
            replace(self, prevalence=self._prevalence_times(factor), auc=self._auc_plus(shift))
            for factor in (1 / PREVALENCE_ODDS, PREVALENCE_ODDS)
            for shift in (-AUC_SHIFT, AUC_SHIFT)
        )

    def _prevalence_times(self, factor: float) -> float:
        odds = self.prevalence / (1 - self.prevalence) * factor
        return odds / (1 + odds)

    def _auc_plus(self, shift: float) -> float:
        low, high = min(_LEAST_AUC, self.auc), max(_MOST_AUC, self.auc)
        return min(high, max(low, self.auc + shift))


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    """Rows at clients under a trust model, a budget and a protection.

    Parameters
    ----------
    share, fits_on : of a task among others, the part of the budget that it may spend, and the rows that it gets where
        it asks for those to fit on; as in `Setting`.
    seen : the part of all units, drawn at random, whose rows this release is about.

    Examples
    --------
    >>> from fedassay.trust import ServerDP
    >>> size = Size(rows=1000, clients=10)
    >>> half = PlannedRelease(expectation=size, trust=ServerDP(), budget=Budget(epsilon=1), share=0.5, seen=0.35)
    >>> half.rows, half.holders, half.setting.share
    (350.0, 10, 0.5)
    """

    expectation: Size
    trust: TrustModel
    budget: Budget | None = None
    protection: Protection = field(default_factory=Protection)
    share: float = 1.0
    fits_on: Part = Part.FIT
    seen: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.seen <= 1:
            raise UsageError(f"rows that are seen: got {self.seen:g} of them, expected a number in (0, 1].")

    @property
    def setting(self) -> Setting:
        """What the task would know."""
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
        """The rows that are used: excess rows of a client are left out."""
        bound = self.protection.rows_per_client
        rows, clients = self.expectation.rows, self.expectation.clients
        return self.seen * (rows if bound is None else min(rows, float(clients * bound)))

    @property
    def holders(self) -> int:
        """How many clients have some of these rows: all of them, unless whole clients are drawn."""
        if self.setting.protection.unit is not Unit.CLIENT:
            return self.expectation.clients
        return max(1, round(self.seen * self.expectation.clients))

    def with_rows(self, rows: float) -> Self:
        """The same with more or fewer clients of the same size."""
        return replace(self, expectation=self.expectation.with_rows(rows))

    def with_clients(self, clients: int) -> Self:
        """The same with so many clients of the same size."""
        return replace(self, expectation=self.expectation.with_clients(clients))

    def with_epsilon(self, epsilon: float) -> Self:
        """The same for another epsilon."""
        assert self.budget is not None
        return replace(self, budget=replace(self.budget, epsilon=epsilon))

    def to_dict(self) -> dict[str, Any]:
        """The assumptions and terms, as plain values."""
        return {
            "rows_used": self.rows,
            **asdict(self.expectation),
            "trust_model": self.trust.name,
            "attendance": self.trust.attendance(self.expectation.clients) or None,
            "unit": str(self.protection.unit),
            "neighbours": str(self.protection.neighbours),
            "rows_per_client": self.protection.rows_per_client,
            "epsilon": None if self.budget is None else self.budget.epsilon,
            "delta": None if self.budget is None else self.budget.delta,
        }


@dataclass(frozen=True, kw_only=True)
class Study(PlannedRelease):
    """What is expected of a classifier, under a trust model, a budget and a protection."""

    expectation: Expectation

    def noise(self, histogram: ScoreHistogram) -> Noise:
        """The noise of a release of this histogram."""
        return self.setting.noise(Sum(of=histogram))

    def with_expectation(self, expectation: Expectation) -> Study:
        """The same study on other data."""
        return replace(self, expectation=expectation)
