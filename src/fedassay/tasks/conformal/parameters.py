"""Parameters of prediction sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedassay.parameters import Fraction, Interval, Listed
from fedassay.tasks.shared_parameters import Classes, Groups

Method = Literal["auto", "qq", "qq-paper", "average", "pooled", "weighted", "local"]
Sets = Literal["conformity", "absolute", "normalised", "cqr", "lac", "aps", "raps", "binary"]
Guarantee = Literal["marginal", "training-conditional"]
Conditional = Literal["class", "group", "none"]

MOST_POINTS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ConformalParameters(Groups, Classes):
    """Parameters of `Conformal`."""

    level: Fraction = 0.9
    """Share of new rows that the sets cover."""
    method: Method = "auto"
    """Method for the threshold; auto is qq where single clients answer, and pooled elsewhere."""
    sets: Sets = "conformity"
    """Conformity score that makes the sets. Default: the first that the columns stand for."""
    score_parameters: Annotated[tuple[float, ...], Listed("LAMBDA,K")] = ()
    """Parameters of raps: the penalty lambda, and the rank after which it counts. Default: 0.01,5."""
    guarantee: Guarantee = "marginal"
    """Coverage on average over calibration rows (marginal), or for the rows used, with a confidence."""
    confidence: Fraction = 0.9
    """Probability with which a training-conditional guarantee holds."""
    score_range: Annotated[tuple[float, ...], Listed("A,B")] = ()
    """Range of the scores, which is public. It is known for the scores of classes."""
    bins: Annotated[int, Interval(ge=2, le=MOST_POINTS)] | None = None
    """Number of public points, where single scores are not seen."""
    conditional: Conditional | None = None
    """Threshold and guarantee for each class or group, or one for all rows (none). Default: class where two are."""
    holdout: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Share of the units (rows, or whole clients) that is kept to judge the result."""
    report_level: Fraction = 0.95
    """Confidence level of the intervals of measured coverage."""
