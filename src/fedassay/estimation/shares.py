"""Shares of rows at a threshold, as data: records of metrics hold them without importing arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedassay.estimation.metric import LEVEL, Metric, estimator

if TYPE_CHECKING:
    from fedassay.estimation.confusion import Confusion

Weights = tuple[float, float, float, float]
"""Weights of the counts TP, FN, FP and TN in a sum."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Share (a·x)/(b·x) over x = (TP, FN, FP, TN), and what its denominator counts.

    TP are rows that are predicted positive and are, FN positive rows that are missed, FP negative rows that are
    predicted positive, TN negative rows that are not.
    """

    numerator: Weights
    denominator: Weights
    counted: str

    @estimator
    def __call__(self, confusion: Confusion, *, level: float = LEVEL) -> Metric:
        """Estimate the share with Wilson's interval, widened for the noise."""
        return confusion.metric(self, level=level)


ROWS: Weights = (1, 1, 1, 1)
TRUE_POSITIVE_RATE = Ratio(numerator=(1, 0, 0, 0), denominator=(1, 1, 0, 0), counted="positive rows")
FALSE_NEGATIVE_RATE = Ratio(numerator=(0, 1, 0, 0), denominator=(1, 1, 0, 0), counted="positive rows")
FALSE_POSITIVE_RATE = Ratio(numerator=(0, 0, 1, 0), denominator=(0, 0, 1, 1), counted="negative rows")
TRUE_NEGATIVE_RATE = Ratio(numerator=(0, 0, 0, 1), denominator=(0, 0, 1, 1), counted="negative rows")
