"""Metrics: numbers with their intervals, or the reason why there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")

LEVEL = 0.95
"""Default confidence level."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One estimated quantity.

    `sampling` and `privacy` are standard errors, `discretisation` is a bound on the binning error. An
    undefined metric has neither value nor interval but a `reason`. `details` are further fields of its JSON.
    There is never a NaN or an infinity in it.

    Examples
    --------
    >>> undefined("there are no positive rows", level=0.95).to_json()
    {'value': None, 'interval': None, 'level': 0.95, 'reason': 'there are no positive rows'}
    """

    value: float | None
    interval: tuple[float, float] | None
    level: float
    sampling: float | None = None
    privacy: float | None = None
    discretisation: float | None = None
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = (self.value, *(self.interval or ()), self.sampling, self.privacy, self.discretisation)
        assert all(number is None or math.isfinite(number) for number in numbers), self
        assert (self.value is None) == (self.reason is not None), self

    def times(self, factor: float) -> Metric:
        """Return the metric in other units."""
        numbers = {
            name: getattr(self, name) * factor
            for name in ("value", "sampling", "privacy", "discretisation")
            if getattr(self, name) is not None
        }
        ends = None if self.interval is None else (self.interval[0] * factor, self.interval[1] * factor)
        return replace(self, **numbers, interval=ends)

    def to_json(self) -> dict[str, Any]:
        """Return the metric of the public contract."""
        if self.value is None:
            return {"value": None, "interval": None, "level": self.level, "reason": self.reason}
        return {
            "value": self.value,
            "interval": None if self.interval is None else list(self.interval),
            "level": self.level,
            "error": {
                "sampling": self.sampling,
                "privacy": self.privacy,
                "discretisation": self.discretisation,
            },
            **self.details,
        }


class Undefined(Exception):
    """Error raised inside an estimator whose metric does not exist on this evidence; the message is the reason."""


def undefined(reason: str, *, level: float) -> Metric:
    """Return a metric that has no value, and why."""
    return Metric(value=None, interval=None, level=level, reason=reason)


def estimator(function: Callable[P, Metric]) -> Callable[P, Metric]:
    """Turn `Undefined` into a metric without a value. The estimator takes `level` as a keyword."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Metric:
        try:
            return function(*args, **kwargs)
        except Undefined as error:
            level = kwargs.get("level", LEVEL)
            assert isinstance(level, float)
            return undefined(str(error), level=level)

    return wrapped
