"""Forecast of a regression: how sure each method will be of a coefficient, and which method to take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction
from fedassay.tasks.inference.coefficient_error import CoefficientError, Regression, coefficient_error
from fedassay.tasks.inference.infer import NEWTON, Infer
from fedassay.tasks.inference.online import ROUND
from fedassay.tasks.inference.private_rounds import HIDDEN

METHODS = (NEWTON, ROUND)

_FIELDS = ("method", "half_width", "effect", "sampling", "privacy", "rows", "rounds", "answers")
_HEADS = {"half_width": "±", "kilobytes": "kB"}


@dataclass(frozen=True, kw_only=True)
class InferenceForecast(Forecast[Infer]):
    """A standardised coefficient: half its interval, and the smallest one that is seen with 80 % power.

    Assumed: the feature is standardised and uncorrelated with the others (with a correlation ρ, errors are
    1/√(1 - ρ²) times as large); a linear model's target is standardised too and mostly unexplained; clients are alike
    and have equally many rows; effects are small. Rows, rounds and noise are the task's own.
    """

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({"effect": 0.1, "precision": None})
    main: ClassVar[tuple[str, ...]] = ("effect",)
    expects: ClassVar[tuple[str, ...]] = ("features", "prevalence")
    assumption: ClassVar[str] = (
        "For a standardised feature that is uncorrelated with the others; clients are taken to be alike."
    )
    wishes: ClassVar[Mapping[str, str]] = {
        "effect": "seeing an effect of {:g} with 80 % power",
        "precision": "intervals of ±{:g}",
    }
    options: ClassVar[Mapping[str, str]] = {
        "effect": "The standardised coefficient to be seen with 80 % power. Default: 0.1.",
        "precision": "Half an interval that is short enough, for a standardised feature.",
    }

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        error = self._error(study, self._method(study))
        if error.reason is not None:
            return {name: Prediction(width=math.inf, reason=error.reason) for name in names}
        return {
            name: Prediction(width=error.width(name), sampling=error.sampling, privacy=error.privacy)
            for name in names
        }

    def _method(self, study: PlannedStudy) -> str:
        return NEWTON if self.task.method == NEWTON and not study.trust.private else ROUND

    def _error(self, study: PlannedStudy, method: str) -> CoefficientError:
        return coefficient_error(study, Regression.of(self.task, study.expectation), method)

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        if self.task.features or study.expectation.features is not None:
            return ()
        return (f"{self.name}: which features there are is not said; predicted for one.",)

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """See `Forecast`: both methods next to each other, and the recommended method."""
        errors = {method: self._error(study, method) for method in METHODS}
        table = DetailTable(
            title=f"A coefficient by each method ({self.task.level:.0%} interval), and the cost to a client",
            columns={name: _HEADS.get(name, name) for name in (*_FIELDS, "kilobytes")},
            rows=[_line(error) for error in errors.values()],
            digits={"rows": ",.0f", "answers": ",.0f"},
        )
        private = study.trust.private
        recommended = ROUND if private else NEWTON
        why = ", which counts its noise" if private else f", unless rows stream in: then {ROUND}"
        return Details(
            facts={"recommended": recommended},
            tables={"methods": table},
            remarks=(f"Recommended: {recommended}{why}.",),
            warnings=tuple(self._warnings(study, errors[ROUND])),
        )

    def _warnings(self, study: PlannedStudy, rounds: CoefficientError) -> list[str]:
        """Warn of what makes predictions, or intervals, too good to be true."""
        notes, of = [], Regression.of(self.task, study.expectation)
        if rounds.again:
            notes.append(
                f"Clients with {study.rows_each:,} rows use them again before {rounds.rounds} rounds are over, and "
                "intervals are then too narrow: ask for fewer rounds, or for a smaller participation."
            )
        if rounds.unsure > HIDDEN:
            notes.append(
                f"Noise makes the curvature of the loss wrong by {rounds.unsure:.0%}: errors will be larger than "
                "predicted."
            )
        rarer = math.inf if of.prevalence is None else min(of.prevalence, 1 - of.prevalence)
        if study.rows * rarer < 10 * of.parameters:
            notes.append(
                f"About {study.rows * rarer:.0f} rows of the rarer class for {of.parameters} coefficients are few: "
                "estimates will be biased, and errors larger than predicted."
            )
        return notes


def _line(error: CoefficientError) -> dict[str, Any]:
    if error.reason is not None:
        return {"method": error.method, "reason": error.reason}
    return {
        **{name: getattr(error, name) for name in _FIELDS},
        "kilobytes": round(error.bytes / 1e3),
        "standard_error": error.standard_error,
        "law": error.law.name,
        "noise": {"law": error.noise.law, "scale": error.noise.scale, "in_curvature": error.unsure},
    }
