"""The plan of a distribution function: the error of each mechanism, which one to use, and what would be enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from fedassay.errors import FedassayError, UsageError
from fedassay.estimation.metric import LEVEL, Undefined
from fedassay.planning.evaluation import unused_rows
from fedassay.planning.expectation import PlannedRelease
from fedassay.planning.inverse import Inverse, fewest_rows, smallest_epsilon
from fedassay.planning.verdict import Verdict, checked_targets, in_words, judged
from fedassay.protocol import NO_NOISE, Noise, Setting, Sum
from fedassay.summaries.value_grid import MOST_POINTS, power_of_two
from fedassay.summaries.value_tree import ValueTree
from fedassay.summaries.values import ValueSummary
from fedassay.tasks.distribution.accuracy import (
    expected_curve,
    mean_variance,
    noise_half_width,
    quantile_errors,
)
from fedassay.tasks.distribution.mechanisms import MECHANISMS, chosen, name_of

TARGETS: Mapping[str, float] = MappingProxyType({"noise": 0.01, "band": 0.05})
"""Half-widths that most uses of a distribution function could live with, where none are given."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is to be released: so many points, for one class or two, with this confidence.

    Parameters
    ----------
    points : N, from 2 to 2^20; rounded up to a power of two.
    labelled : whether positives and negatives are counted apart.
    mechanism : ``tree``, ``path``, ``factorised``, or ``auto``.
    quantiles : to be predicted.
    """

    points: int = 1024
    labelled: bool = False
    public_labels: bool = False
    mechanism: str = "auto"
    quantiles: tuple[float, ...] = (0.5,)
    level: float = LEVEL

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", tuple(self.quantiles))
        if not 2 <= self.points <= MOST_POINTS:
            raise UsageError(f"points: got {self.points:,}, expected a whole number from 2 to 2^20.")
        if self.mechanism not in ("auto", *MECHANISMS):
            raise UsageError(
                f"mechanism: got {self.mechanism!r}, expected one of auto, {', '.join(MECHANISMS)}."
            )
        if not 0 < self.level < 1:
            raise UsageError(f"level: got {self.level}, expected a number between 0 and 1, such as 0.95.")
        for quantile in self.quantiles:
            if not 0 < quantile < 1:
                raise UsageError(f"quantile: got {quantile:g}, expected a number between 0 and 1.")

    @property
    def classes(self) -> int:
        """How many distributions there are."""
        return 2 if self.labelled else 1

    def summary(self, setting: Setting) -> ValueSummary:
        """What would be asked for, over a range of length 1."""
        leaves = ValueTree(
            lower=0.0,
            upper=1.0,
            points=power_of_two(self.points),
            labelled=self.labelled,
            public_labels=self.public_labels,
        )
        return chosen(leaves, setting, mechanism=self.mechanism)


@dataclass(frozen=True, kw_only=True)
class PredictedCurve:
    """One mechanism: its errors, or the reason why there will be no curve.

    Parameters
    ----------
    noise : the most that noise adds to the half-width of the band (``--precision`` is compared with this).
    band : half the width of the simultaneous band at its widest, sampling included.
    deviation : the standard deviation of the noise in the share of rows up to a typical point.
    quantiles : for each, the standard errors by sampling and by noise, as shares of the range, for values that
        are spread evenly over it. Noise counts at least as at a typical point.
    """

    mechanism: str
    noise: float = math.inf
    band: float = math.inf
    deviation: float = math.inf
    quantiles: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    reason: str | None = None

    def width(self, name: str) -> float:
        """By the name of a target."""
        return self.noise if name == "noise" else self.band

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        if self.reason is not None:
            return {"noise": None, "band": None, "reason": self.reason}
        return {
            "noise": self.noise,
            "band": self.band,
            "standard_deviation": self.deviation,
            "quantiles": [
                {"quantile": quantile, "sampling": sampling, "privacy": privacy}
                for quantile, (sampling, privacy) in self.quantiles.items()
            ],
        }


@dataclass(frozen=True, kw_only=True)
class DistributionPlan:
    """What to expect of a distribution function.

    Parameters
    ----------
    used : the mechanism that the options ask for.
    recommended : the one with the least variance at a typical point.
    predicted : by mechanism.
    inverse : what would be enough, for each target that was given.
    """

    study: PlannedRelease
    shape: Shape
    used: str
    recommended: str
    predicted: Mapping[str, PredictedCurve]
    targets: Mapping[str, float]
    inverse: tuple[Inverse, ...]
    warnings: tuple[str, ...]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """For each target, whether the curve of the mechanism in use will be near enough."""
        curve = self.predicted[self.used]
        return {name: judged(target, [curve.width(name)]) for name, target in self.targets.items()}

    @property
    def verdict(self) -> str:
        """One line."""
        return in_words(self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON."""
        shape = self.shape
        return {
            "plan": "ecdf",
            "assumptions": self.study.to_dict(),
            "parameters": {
                "points": power_of_two(shape.points),
                "labelled": shape.labelled,
                "level": shape.level,
            },
            "verdict": self.verdict,
            "verdicts": {name: str(verdict) for name, verdict in self.verdicts.items()},
            "targets": dict(self.targets),
            "mechanisms": {name: one.to_dict() for name, one in self.predicted.items()},
            "used": self.used,
            "recommended": self.recommended,
            "inverse": [one.to_dict() for one in self.inverse],
            "warnings": list(self.warnings),
        }


def plan_distribution(
    study: PlannedRelease, *, shape: Shape | None = None, targets: Mapping[str, float] | None = None
) -> DistributionPlan:
    """Predict the release of a distribution function from what is public and assumed; no data.

    Parameters
    ----------
    study : how many rows at how many clients, and the terms.
    shape : points, classes, mechanism, quantiles.
    targets : half-widths that are short enough: ``noise`` (what noise adds to the band) and ``band`` (all of it).

    Examples
    --------
    >>> from fedassay.planning.expectation import Size
    >>> from fedassay.trust import ServerDP
    >>> from fedassay.protocol import Budget
    >>> size = Size(rows=20_000, clients=10)
    >>> plan = plan_distribution(PlannedRelease(expectation=size, trust=ServerDP(), budget=Budget(epsilon=1)))
    >>> plan.recommended, f"{plan.predicted['tree'].noise:.4f}", f"{plan.predicted['path'].noise:.4f}"
    ('tree', '0.0047', '0.0117')
    """
    shape = Shape() if shape is None else shape
    given = checked_targets(targets or {}, TARGETS)
    setting = study.setting
    summary = shape.summary(setting)
    noise = setting.noise(Sum(of=summary))
    used = name_of(summary, noise)
    predicted = {name: _tried(study, replace(shape, mechanism=name)) for name in MECHANISMS}
    if not noise.variance:  # then all of them are the same
        predicted = {used: _tried(study, shape)}
    return DistributionPlan(
        study=study,
        shape=shape,
        used=used,
        recommended=min(predicted, key=lambda name: predicted[name].deviation),
        predicted=predicted,
        targets={**TARGETS, **given},
        inverse=tuple(_inverse(study, shape, name, target) for name, target in given.items()),
        warnings=(*unused_rows(study), *_rounded(shape)),
    )


def _rounded(shape: Shape) -> tuple[str, ...]:
    used = power_of_two(shape.points)
    return (
        ()
        if used == shape.points
        else (f"{shape.points:,} points are rounded up to {used:,}, a power of two.",)
    )


def _tried(study: PlannedRelease, shape: Shape) -> PredictedCurve:
    """The errors of one mechanism, or why there will be no curve."""
    try:
        return predict_curve(study, shape)
    except (FedassayError, Undefined) as problem:
        return PredictedCurve(mechanism=shape.mechanism, reason=str(problem))


def predict_curve(study: PlannedRelease, shape: Shape, noise: Noise | None = None) -> PredictedCurve:
    """The errors of one mechanism, by default with the noise of the study; raises where there will be no curve."""
    setting, rows = study.setting, study.rows
    summary = shape.summary(setting)
    noise = setting.noise(Sum(of=summary)) if noise is None else noise
    lower, upper = expected_curve(summary, noise, rows=rows).band(level=shape.level)
    deviation = math.sqrt(shape.classes * mean_variance(summary, noise)) / rows if noise.variance else 0.0
    return PredictedCurve(
        mechanism=shape.mechanism,
        noise=noise_half_width(summary, noise, rows=rows, level=shape.level),
        band=float((upper - lower).max()) / 2,
        deviation=deviation,
        quantiles={q: _quantile(summary, noise, q, rows, deviation) for q in shape.quantiles},
    )


def _quantile(
    summary: ValueSummary, noise: Noise, quantile: float, rows: float, deviation: float
) -> tuple[float, float]:
    sampling, privacy = quantile_errors(summary, noise, quantile=quantile, rows=rows, density=1.0)
    # At round shares of evenly spread values few nodes meet; real quantiles are not so lucky.
    return sampling, max(privacy, deviation)


def _inverse(study: PlannedRelease, shape: Shape, name: str, target: float) -> Inverse:
    def width(other: PlannedRelease) -> float:
        return _tried(other, shape).width(name)

    def beside_noise(other: PlannedRelease) -> str:
        return f"sampling error alone gives ±{predict_curve(other, shape, NO_NOISE).width(name):.2g}"

    return Inverse(
        metric=name,
        target=target,
        epsilon=smallest_epsilon(study, width, target, beside_noise),
        rows=fewest_rows(study, width, target),
    )
