"""The plan of a regression: how sure each way will be of a coefficient, which one to take, and what would be enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fedassay.planning.evaluation import unused_rows
from fedassay.planning.expectation import PlannedRelease
from fedassay.planning.inverse import Answer, Inverse, fewest_rows, smallest_epsilon
from fedassay.planning.predicted_fit import PredictedFit, predict_fit
from fedassay.planning.typical_regression import Regression
from fedassay.planning.verdict import Verdict, checked_targets, in_words, judged
from fedassay.tasks.inference.infer import NEWTON
from fedassay.tasks.inference.online import ROUND
from fedassay.tasks.inference.private_rounds import HIDDEN

TARGETS: Mapping[str, float] = MappingProxyType({"effect": 0.1, "precision": 0.1})
"""A standardised coefficient that most studies would want to see (by one standard deviation of the feature, the target
moves by a tenth of one, or log odds by 0.1), and half the width of an interval."""

BEGUN = "begun"
"""The target that noise does not hide everything, so that rounds are begun at all."""

METHODS = (NEWTON, ROUND)


@dataclass(frozen=True, kw_only=True)
class InferencePlan:
    """What to expect of a regression.

    Parameters
    ----------
    predicted : by method.
    recommended : the method that verdict and inverse are about.
    inverse : what would be enough, for each target that was given (without any, for the effect).
    """

    study: PlannedRelease
    of: Regression
    predicted: Mapping[str, PredictedFit]
    recommended: str
    targets: Mapping[str, float]
    inverse: tuple[Inverse, ...]
    warnings: tuple[str, ...]

    @property
    def best(self) -> PredictedFit:
        """Of the recommended method."""
        return self.predicted[self.recommended]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """For each target, whether there are enough rows, clients and budget."""
        return {name: judged(target, [self.best.width(name)]) for name, target in self.targets.items()}

    @property
    def verdict(self) -> str:
        """One line."""
        if self.best.reason is not None:
            return f"Not enough data: {self.best.reason}"
        return in_words(self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        of = self.of
        return {
            "plan": "infer",
            "assumptions": self.study.to_dict() | {"features": of.features, "prevalence": of.prevalence},
            "parameters": {
                "model": of.model,
                "rounds": of.rounds,
                "participation": of.participation,
                "level": of.level,
            },
            "verdict": self.verdict,
            "verdicts": {name: str(verdict) for name, verdict in self.verdicts.items()},
            "targets": dict(self.targets),
            "methods": {name: one.to_dict() for name, one in self.predicted.items()},
            "recommended": self.recommended,
            "inverse": [one.to_dict() for one in self.inverse],
            "warnings": list(self.warnings),
        }


def plan_inference(
    study: PlannedRelease, of: Regression, *, targets: Mapping[str, float] | None = None
) -> InferencePlan:
    """Predict the error of a coefficient from what is public and assumed; no data.

    Assumed: the feature is standardised and uncorrelated with the others (with a correlation ρ, errors are
    1/√(1 - ρ²) times as large); a linear model's target is standardised too and mostly unexplained; clients are alike
    and have equally many rows; effects are small. Rows, rounds and noise are the task's own.

    Parameters
    ----------
    study : how many rows at how many clients, and the terms.
    of : model, features, rounds, level.
    targets : what is small enough: ``effect`` (the smallest coefficient that is seen with a power of 80 %) and
        ``precision`` (half an interval).

    Examples
    --------
    >>> from fedassay.planning.expectation import Size
    >>> from fedassay.trust import Plain
    >>> study = PlannedRelease(expectation=Size(rows=2_000, clients=5), trust=Plain())
    >>> plan = plan_inference(study, Regression(features=4, model="logistic", prevalence=0.2))
    >>> plan.recommended, round(plan.best.standard_error, 4), round(plan.best.effect, 3)
    ('newton', 0.056, 0.157)
    >>> plan.inverse[0].rows.value
    4920.0
    """
    given = checked_targets(targets or {}, TARGETS)
    predicted = {method: predict_fit(study, of, method) for method in METHODS}
    recommended = ROUND if study.trust.private else NEWTON
    best = predicted[recommended]
    wanted = given or {"effect": TARGETS["effect"]}
    if best.reason is not None and study.trust.private:
        wanted = {BEGUN: 1.0, **wanted}
    return InferencePlan(
        study=study,
        of=of,
        predicted=predicted,
        recommended=recommended,
        targets={"effect": TARGETS["effect"], **given},
        inverse=tuple(_inverse(study, of, recommended, name, target) for name, target in wanted.items()),
        warnings=(*unused_rows(study), *_warnings(study, of, predicted)),
    )


def _warnings(study: PlannedRelease, of: Regression, predicted: Mapping[str, PredictedFit]) -> list[str]:
    """What makes predictions, or intervals, too good to be true."""
    rounds, notes = predicted[ROUND], []
    each = math.floor(study.rows / study.expectation.clients)
    if rounds.again:
        notes.append(
            f"Clients with {each:,} rows use them again before {rounds.rounds} rounds are over, and intervals are then "
            "too narrow: ask for fewer rounds, or for a smaller participation."
        )
    if rounds.unsure > HIDDEN:
        notes.append(
            f"Noise makes the curvature of the loss wrong by {rounds.unsure:.0%}: errors will be larger than predicted."
        )
    events = study.rows * min(of.prevalence, 1 - of.prevalence) if of.prevalence is not None else math.inf
    if events < 10 * of.parameters:
        notes.append(
            f"About {events:.0f} rows of the rarer class for {of.parameters} coefficients are few: estimates will be "
            "biased, and errors larger than predicted."
        )
    return notes


def _inverse(study: PlannedRelease, of: Regression, method: str, name: str, target: float) -> Inverse:
    def width(other: PlannedRelease) -> float:
        found = predict_fit(other, of, method)
        if name == BEGUN:
            return 0.0 if found.reason is None else math.inf
        return found.width(name)

    def beside_noise(other: PlannedRelease) -> str:
        found = predict_fit(other, of, method)
        if found.reason is not None:
            return "noise hides the coefficients at the largest that was tried"
        return f"at the largest that was tried, {name} is {found.width(name):.2g}"

    rows = fewest_rows(study, width, target)
    if rows.value is None:
        rows = Answer(value=None, reason="no number of such clients is enough")
    return Inverse(
        metric=name, target=target, epsilon=smallest_epsilon(study, width, target, beside_noise), rows=rows
    )
