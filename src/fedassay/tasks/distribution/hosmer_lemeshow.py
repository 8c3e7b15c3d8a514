"""Task: are a model's probabilities right? The Hosmer-Lemeshow test, with the noise in its p-value.

Three ways to the same question, for the budget epsilon and N = 2^L points:

* ``free``: one score histogram, which pays for everything else that `Evaluate` says too.
* ``corrected``: a distribution of the scores for the groups, then (O_1, O_0, E_1) of each group, with the
  sensitivities that they have: ⌈(L+1)/2⌉ and 2 for add-remove, L and 4 for replace-one.
* ``published``: Algorithm 2 of Barczewski, Mawass and Ramon, noise of scale (L+9)/epsilon on everything.

docs/explanation/hosmer-lemeshow.md has the formulas and what was measured.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, get_args

from scipy.special import chdtrc

from fedassay.errors import ParameterError, UsageError
from fedassay.estimation.evidence import ENOUGH
from fedassay.estimation.metric import Metric, Undefined, undefined
from fedassay.protocol.vocabulary import Released, Setting, Sum
from fedassay.summaries.bounded_sums import (
    ONE,
    AllGroupStatistics,
    GroupStatistics,
    GroupTotals,
    capacity_for,
)
from fedassay.summaries.distribution.grid import power_of_two
from fedassay.summaries.distribution.path import ScorePath
from fedassay.summaries.distribution.tree import Distribution
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.tasks.distribution.calibration_groups import (
    DRAWS,
    CalibrationGroups,
    from_evidence,
    from_totals,
    upper_tail,
)
from fedassay.tasks.distribution.parameters import GroupTestMethod, HosmerLemeshowParameters
from fedassay.tasks.distribution.published_groups import TELLING, PublishedGroups, ScoreCurve
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.stored import histogram_to_json

FITTED = "Q-2"


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


# --- the task -----------------------------------------------------------------------------------------------

METHODS = get_args(GroupTestMethod)

_Flow = Generator[Sum[Any], Any, dict[str, Any]]

_MULTIPLIERS = (1, 1 << 10)
"""Multipliers of the distribution, compared by the noise they get: for noise calibrated in L1, and in L2."""


@dataclass(frozen=True, kw_only=True)
class HosmerLemeshow(HosmerLemeshowParameters):
    """A test that observed outcomes differ from a model's probabilities by chance only, group by group.

    Fewer groups are used, and reported, where quantiles coincide or (not as published) a group would have fewer rows
    than four standard deviations of the noise in them. ``Q-2`` is for the very rows that a logistic model was fitted
    to, where the fit has taken two directions out of the gaps; elsewhere it rejects too often. A test has no interval:
    the level is of the contract only.

    Guarantee: everything returned is computed from what is released for the one budget. If the model is right and
    rows are independent, ``p_value`` is below 5 % in about 5 % of runs, with the noise.

    Edge cases: no rows, groups whose scores are all 0 or all 1 (without noise) and too few rows for the noise give
    a null value with a reason. As published, a p-value may be null while the statistic is not.

    Reference: Hosmer, Lemeshow and Sturdivant (2013), Section 5.2.2; Barczewski, Mawass and Ramon, Section 5.2.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degrees == FITTED and self.groups < 3:
            raise ParameterError(
                "groups", f"got {self.groups} for Q-2 degrees of freedom, expected at least 3."
            )
        self._evaluate()  # refuses buckets that do not fit into the bins

    def _evaluate(self) -> Evaluate:
        return Evaluate(height=self.height, transform=self.transform, level=self.level)

    def steps(self, setting: Setting) -> _Flow:
        """Ask for what the method needs; return ``{"hosmer_lemeshow": ..}``."""
        if self.method == "free":
            return (yield from self._free(setting))
        return (yield from self._in_two_steps(setting))

    def _free(self, setting: Setting) -> _Flow:
        released: Released[LabelledHistogram] = yield Sum(of=self._evaluate().histogram(setting))
        evidence = released.value.evidence(released.noise)
        try:
            metric = self.moment_test(from_evidence(evidence, self.groups))
        except Undefined as error:
            metric = undefined(str(error), level=self.level)
        return {
            "hosmer_lemeshow": metric.to_json(),
            "histogram": {"rows": evidence.rows, **histogram_to_json(released.value, released.noise)},
        }

    def _in_two_steps(self, setting: Setting) -> _Flow:
        asked = self._published(setting) if self.method == "published" else self._corrected(setting)
        # Whatever cannot be answered is refused before anything is spent.
        setting.noise(Sum(of=asked.path, share=asked.for_path))
        setting.noise(Sum(of=asked.sums, share=asked.for_sums))
        found: Released[Distribution] = yield Sum(of=asked.path, share=asked.for_path)
        curve = ScoreCurve(counts=found.value.classes[0] / asked.path.multiplier)
        as_it_is = self.method == "published" or found.noise.variance == 0
        edges = (curve if as_it_is else curve.monotone).edges(self.groups)
        released = yield Sum(of=replace(asked.sums, edges=edges), share=asked.for_sums)
        try:
            metric = self._metric(released, curve)
        except Undefined as error:
            metric = undefined(str(error), level=self.level)
        return {"hosmer_lemeshow": metric.to_json()}

    def _metric(self, released: Released[GroupTotals], curve: ScoreCurve) -> Metric:
        if self.method == "published":
            groups = PublishedGroups(totals=released.value, noise=released.noise, curve=curve)
            return self.published_test(groups)
        return self.moment_test(from_totals(released.value, released.noise))

    @property
    def _said(self) -> list[str]:
        """Warnings that are given whatever the groups are."""
        points = power_of_two(self.points)
        if self.method == "free" or points == self.points:
            return []
        return [f"The distribution of the scores has {points:,} points, the next power of two."]

    def moment_test(self, groups: CalibrationGroups) -> Metric:
        """Test X² = D^T V^{-1} D against a law that has its mean and its variance under the null."""
        degrees = self._degrees_of(groups.number)
        mean, variance = groups.moments(groups.fitted() if self.degrees == FITTED else groups.nothing_removed)
        return self._test(
            groups,
            p_value=upper_tail(groups.statistic, mean=mean, variance=variance),
            degrees_of_freedom=degrees,
            null={"law": "gamma", "mean": mean, "variance": variance},
            warnings=[*self._said, *self._fewer(groups.number), *_drowned(groups)],
        )

    def published_test(self, groups: PublishedGroups) -> Metric:
        """Test H against a simulated null; without noise against χ². The p-value of χ² with Q-2 is reported, too."""
        degrees, classical = self._degrees_of(groups.number), groups.number - 2
        asymptotic = float(chdtrc(classical, max(0.0, groups.statistic))) if classical > 0 else None
        warnings = [*self._said, *self._fewer(groups.number)]
        if groups.exact:
            return self._test(
                groups,
                p_value=float(chdtrc(degrees, groups.statistic)),
                asymptotic_p_value=asymptotic,
                degrees_of_freedom=degrees,
                null={"law": "chi-squared"},
                warnings=warnings,
            )
        p_value = groups.p_value(fitted=self.degrees == FITTED)
        reason = {} if p_value is not None else {"reason": _no_p_value(groups)}
        return self._test(
            groups,
            p_value=p_value,
            asymptotic_p_value=asymptotic,
            degrees_of_freedom=degrees,
            null={"law": "simulated", "draws": DRAWS},
            warnings=[*warnings, *_drowned(groups.foreseen_groups), *_small(groups)],
            **reason,
        )

    def _test(self, groups: CalibrationGroups | PublishedGroups, **details: Any) -> Metric:
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
            "had too few rows for the noise."
        ]

    def _corrected(self, setting: Setting) -> _Asked:
        """Return the path with the best multiplier, for its share of the budget; the rest is for the sums."""

        def noise(path: ScorePath) -> float:
            return setting.noise(Sum(of=path, share=self.curve_share)).variance / path.multiplier**2

        paths = [ScorePath(points=power_of_two(self.points), multiplier=m) for m in _MULTIPLIERS]
        return _Asked(
            path=min(paths, key=noise),
            for_path=self.curve_share,
            sums=GroupStatistics(edges=(0.0, 1.0), capacity=capacity_for(setting.clients)),
            for_sums=1 - self.curve_share,
        )

    def _published(self, setting: Setting) -> _Asked:
        """Return queries with noise as published: scale 1/ε' with ε' = ε/(L+9), on the curve and on all 4Q sums.

        A trust model draws noise of scale Δ/(share·ε) for the true sensitivity Δ: L and 4 if a row is replaced, less
        if one is added or removed. So a share of Δ/(L+9) gives exactly the published scale, and the shares add up
        to (L+4)/(L+9) at most: Theorem 2 charges L+1 for the curve and 8 for the sums, more than they cost.
        """
        if setting.budget is not None and setting.budget.delta > 0:
            raise UsageError(
                f"published: got delta {setting.budget.delta:.3g}, expected 0, because Algorithm 2 is for pure "
                "epsilon; use the method corrected."
            )
        protection = setting.protection
        path = ScorePath(points=power_of_two(self.points))
        sums = AllGroupStatistics(edges=(0.0, 1.0), capacity=capacity_for(setting.clients))
        parts = protection.rows_per_unit * (path.height + 9)
        return _Asked(
            path=path,
            for_path=path.sensitivity(protection).l1 / parts,
            sums=sums,
            for_sums=sums.sensitivity(protection).l1 / (ONE * parts),
        )


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Queries of the two steps, and their shares of the budget; the edges of the groups are still to be found."""

    path: ScorePath
    for_path: float
    sums: GroupStatistics
    for_sums: float
