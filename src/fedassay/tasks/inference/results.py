"""Declarations of the results of a regression, and its guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from annotated_types import Len
from typing_extensions import TypedDict

from fedassay.protocol.result_parts import (
    Anything,
    Interval,
    Level,
    NotNegative,
    Positive,
    Proportion,
    declared,
)
from fedassay.tasks.promise import ROWS, Data, Promise, clients, within


@declared(is_open=True)
class OddsRatio(TypedDict):
    """Logistic regression: exp of the value and of the interval; null beyond what a float holds."""

    value: float | None
    interval: Annotated[list[float | None], Len(2, 2)] | None


_WITHHELD = declared(
    {
        "if": {"properties": {"interval": {"type": "null"}}},
        "then": {
            "required": ["reason"],
            "properties": {name: {"type": "null"} for name in ("standard_error", "statistic", "p_value")},
        },
    },
    is_open=True,
)


@_WITHHELD
class EstimatePart(TypedDict):
    """A coefficient or contrast with its standard error, interval and two-sided test; null, with a reason, where rounds
    have not arrived at the optimum, and all of it where there is none.
    """

    value: float | None
    standard_error: NotNegative | None
    statistic: float | None
    """null: the standard error is 0, or withheld."""

    p_value: Proportion | None
    interval: Interval | None
    reason: NotRequired[str]
    """Reason why standard error, interval and test are withheld, or why there is no value."""

    level: Level
    odds_ratio: NotRequired[OddsRatio]


@_WITHHELD
class CoefficientPart(EstimatePart):
    """A coefficient."""

    name: str
    simultaneous_interval: Interval | None


@_WITHHELD
class ContrastPart(EstimatePart):
    """A contrast."""

    contrast: str
    against: float


@declared(is_open=True)
class FitPart(TypedDict):
    """Model and method of the fit."""

    method: str
    model: str
    variance: Literal["row", "site", "model"] | None
    """null: by rounds."""

    rounds: Positive
    """newton: sums."""

    rows: NotNegative | None
    clients: NotNegative | None
    converged: bool
    reason: str
    """Empty if it converged."""

    loss: float | None


@declared(is_open=True)
class RoundPart(TypedDict):
    """Estimate at a round."""

    round: int
    values: list[float]
    standard_errors: list[float]


@declared(is_open=True)
class RegressionResults(TypedDict):
    """The results of a regression."""

    coefficients: Annotated[list[CoefficientPart], Len(1)]
    covariance: list[list[float]] | None
    law: str
    """Law of a coefficient's error in standard errors."""

    contrasts: list[ContrastPart]
    fit: FitPart
    path: list[RoundPart]
    """By rounds: up to 50 of them, with what was known then."""

    state: NotRequired[Anything]
    """By rounds: what is needed to go on."""

    notes: list[str]


# --- what it promises ---------------------------------------------------------------------------------------


def _rows(rng: np.random.Generator) -> Data:
    """Draw rows with a slope of 1, and errors that grow with the feature: textbook standard errors are too small."""
    x = rng.normal(size=ROWS)
    return {"client": clients(), "x": x, "y": 0.5 + x + (0.5 + np.abs(x)) * rng.normal(size=ROWS)}


def _slope_holds(results: Mapping[str, Any], rng: np.random.Generator) -> bool:
    (slope,) = (entry for entry in results["coefficients"] if entry["name"] == "x")
    return within(slope["interval"], 1.0)


PROMISES = (
    Promise(
        name="infer",
        statement="95 % interval of a slope, errors that grow with the feature, no noise",
        level=0.95,
        parameters={"model": "linear", "features": ["x"], "method": "newton"},
        columns={"features": "x", "target": "y"},
        draw=_rows,
        holds=_slope_holds,
        noisy=False,
    ),
)
