"""What a planned regression assumes: standardised features, uncorrelated and with small effects."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedassay.errors import UsageError
from fedassay.parameters import made
from fedassay.planning.expectation import PlannedRelease
from fedassay.summaries.regression.losses import LogLoss, SquaredError
from fedassay.summaries.regression.moments import Moments
from fedassay.summaries.regression.standard import MOST_FEATURES
from fedassay.summaries.scored import whole
from fedassay.tasks.inference.infer import NEWTON, Infer
from fedassay.tasks.inference.online import ROUND

PREVALENCE = 0.1

SUMS = {SquaredError.name: 2, LogLoss.name: 6}
"""Of `newton`, beside the one for means and scales; for logistic regression what is typical."""


@dataclass(frozen=True, kw_only=True)
class Regression:
    """What is to be fitted: so many standardised features beside an intercept.

    Parameters
    ----------
    prevalence : of logistic regression, the share of positive rows; 0.1 if it is not given.
    rounds, participation : see `Infer`.

    Examples
    --------
    >>> Regression(features=4, model="logistic", prevalence=0.5).curvature
    0.25
    """

    features: int
    model: str = SquaredError.name
    prevalence: float | None = None
    rounds: int | None = None
    participation: float = 1.0
    level: float = 0.95

    def __post_init__(self) -> None:
        whole(self.features, what="features", least=1, most=MOST_FEATURES)
        if self.model not in SUMS:
            raise UsageError(f"model: got {self.model!r}, expected one of {', '.join(SUMS)}.")
        if self.model == LogLoss.name and self.prevalence is None:
            object.__setattr__(self, "prevalence", PREVALENCE)
        if self.prevalence is not None and not 0 < self.prevalence < 1:
            raise UsageError(
                f"prevalence: got {self.prevalence:g}, expected the share of positive rows, between 0 and 1."
            )
        if self.prevalence is not None and self.model != LogLoss.name:
            raise UsageError(f"prevalence: the model {self.model} has no use for it; leave it out.")
        self.task(ROUND)

    @property
    def parameters(self) -> int:
        """With the intercept."""
        return 1 + self.features

    @property
    def curvature(self) -> float:
        """Of the loss, in the direction of a standardised feature; and the variance of a row's gradient there."""
        return 1.0 if self.prevalence is None else self.prevalence * (1 - self.prevalence)

    def task(self, method: str) -> Infer:
        """The task with these options."""
        rounds = {} if method == NEWTON else {"rounds": self.rounds, "participation": self.participation}
        names = tuple(f"x{place}" for place in range(self.features))
        unit = names if self.model != SquaredError.name else (*names, "target")
        scales = () if method == NEWTON else tuple(f"{name}=0:1" for name in unit)
        given = {
            "model": self.model,
            "features": names,
            "method": method,
            "level": self.level,
            "scales": scales,
        }
        return made(Infer, {**given, **rounds})

    def moments(self, study: PlannedRelease) -> Moments:
        """What rows like these have in common."""
        mean = 0.0 if self.prevalence is None else self.prevalence
        return Moments(
            rows=math.floor(study.rows),
            clients=study.expectation.clients,
            constant_targets=0,
            not_binary=0,
            cut=0,
            means=np.zeros(self.features),
            deviations=np.ones(self.features),
            target_mean=mean,
            target_deviation=math.sqrt(self.curvature),
        )
