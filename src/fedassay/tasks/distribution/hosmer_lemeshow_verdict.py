"""From groups to a verdict: the statistic, its p-value under the null with the noise, and what to be wary of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scipy.special import chdtrc

from fedassay.estimation.evidence import ENOUGH
from fedassay.estimation.metric import Metric, Undefined
from fedassay.tasks.distribution.calibration_groups import CalibrationGroups
from fedassay.tasks.distribution.null_with_noise import DRAWS, upper_tail
from fedassay.tasks.distribution.published_groups import TELLING, PublishedGroups

FITTED = "Q-2"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was asked: the method, Q, the degrees of freedom; and what has to be said anyway."""

    method: str
    groups: int
    degrees: str
    level: float
    said: tuple[str, ...] = ()

    def of(self, groups: CalibrationGroups) -> Metric:
        """X² = D^T V^{-1} D against a law that has its mean and its variance under the null."""
        degrees = self._degrees_of(groups.number)
        mean, variance = groups.moments(groups.fitted() if self.degrees == FITTED else groups.nothing_removed)
        return self._metric(
            groups,
            p_value=upper_tail(groups.statistic, mean=mean, variance=variance),
            degrees_of_freedom=degrees,
            null={"law": "gamma", "mean": mean, "variance": variance},
            warnings=[*self.said, *self._fewer(groups.number), *_drowned(groups)],
        )

    def as_published(self, groups: PublishedGroups) -> Metric:
        """H against a simulated null; without noise against χ². What χ² with Q-2 would have said is said, too."""
        degrees, classical = self._degrees_of(groups.number), groups.number - 2
        asymptotic = float(chdtrc(classical, max(0.0, groups.statistic))) if classical > 0 else None
        warnings = [*self.said, *self._fewer(groups.number)]
        if groups.exact:
            return self._metric(
                groups,
                p_value=float(chdtrc(degrees, groups.statistic)),
                asymptotic_p_value=asymptotic,
                degrees_of_freedom=degrees,
                null={"law": "chi-squared"},
                warnings=warnings,
            )
        p_value = groups.p_value(fitted=self.degrees == FITTED)
        reason = {} if p_value is not None else {"reason": _no_p_value(groups)}
        return self._metric(
            groups,
            p_value=p_value,
            asymptotic_p_value=asymptotic,
            degrees_of_freedom=degrees,
            null={"law": "simulated", "draws": DRAWS},
            warnings=[*warnings, *_drowned(groups.foreseen_groups), *_small(groups)],
            **reason,
        )

    def _metric(self, groups: CalibrationGroups | PublishedGroups, **details: Any) -> Metric:
        return Metric(
            value=groups.statistic,
            interval=None,
            level=self.level,
            discretisation=groups.statistic_rounding,
            details={"method": self.method, **details, "groups": groups.to_json()},
        )

    def _degrees_of(self, number: int) -> int:
        if self.degrees != FITTED:
            return number
        if number < 3:
            raise Undefined(f"there are {number} groups, and a model fitted to the rows needs at least 3")
        return number - 2

    def _fewer(self, number: int) -> list[str]:
        if number == self.groups:
            return []
        there_are = "There is 1 group" if number == 1 else f"There are {number} groups"
        return [
            f"{there_are} instead of {self.groups}: quantiles of the scores coincide, or groups "
            "had too few rows beside the noise."
        ]


def _drowned(groups: CalibrationGroups) -> list[str]:
    if groups.drowned == 0:
        return []
    return [
        f"Noise dominates in {groups.drowned} of {groups.number} groups: expected counts are so small there that "
        "noise makes up more than half of the variance of observed minus expected, so that they say little by "
        "themselves; use fewer groups, more rows or a larger epsilon."
    ]


def _small(groups: PublishedGroups) -> list[str]:
    if groups.smallest >= ENOUGH:
        return []
    return [
        f"The smallest expected count is {groups.smallest:.1f} standard deviations of its noise, under "
        f"{ENOUGH:.0f}: as a denominator it makes the published statistic large whatever the model; use another "
        "method, fewer groups, more rows or a larger epsilon."
    ]


def _no_p_value(groups: PublishedGroups) -> str:
    return (
        f"not enough evidence for a p-value: the smallest expected count is {groups.smallest:.1f} standard "
        f"deviations of its noise, expected {TELLING:.0f} or more and no released one at or below zero"
    )
