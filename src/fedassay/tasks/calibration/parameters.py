"""Parameters of calibrations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from fedassay.protocol.parameters import Fraction, Interval
from fedassay.tasks.shared_parameters import (
    HOLDOUT,
    BucketParameters,
    Classes,
    Intervals,
    Participation,
    ScoreBins,
)
from fedassay.tasks.study_rules import Given, HistogramRules, missing_classes, same_holdout

CalibrationMethod = Literal["auto", "histogram", "bbq", "isotonic", "platt", "beta"]
ClassMethod = Literal[
    "auto", "temperature", "vector", "matrix", "order-preserving", "fedcal", "histogram", "bbq", "isotonic"
]
Solver = Literal["auto", "exact", "fedavg", "one-shot"]
Clipping = Literal["joint", "separate"]
MixtureWeighting = Literal["none", "all", "changed"]
Averaging = Literal["rows", "clients"]

MOST_ROUNDS = 10_000
TALLEST = 12
"""The largest height of a binning of logits: 4,096 bins."""


@dataclass(frozen=True, kw_only=True)
class CalibrateParameters(ScoreBins, BucketParameters, Intervals):
    """Parameters of `Calibrate`."""

    method: CalibrationMethod = "auto"
    """Method of calibration; auto is the best of the others, judged by the fit rows alone."""
    bins: Annotated[int, Interval(ge=1, le=10_000)] | None = None
    """Buckets of histogram binning. Default: the cube root of the rows, or fewer under noise."""


@dataclass(frozen=True, kw_only=True)
class CalibrateMulticlassParameters(Classes, Participation, BucketParameters, Intervals):
    """Parameters of `CalibrateMulticlass`."""

    method: ClassMethod = "auto"
    """Method of calibration; auto is isotonic, under noise temperature, for whole clients with shifts of classes."""
    solver: Solver = "auto"
    """Fit of a scaling: pooled optimum (exact), mean of clients' fits (fedavg), one release (one-shot)."""
    rounds: Annotated[int, Interval(ge=1, le=MOST_ROUNDS)] | None = None
    """Rounds of fedavg and of binnings. Default: 12 of fedavg, fewer under noise; 1 of binnings."""
    clip: Annotated[float, Interval(gt=0, le=1 << 20)] | None = None
    """Largest norm of an update (fedavg, under noise 0.5) or of a histogram of positives (binnings, 10)."""
    negative_clip: Annotated[float, Interval(gt=0, le=1 << 20)] | None = None
    """Largest norm of a client's histogram of negatives (binnings under noise). Default: 50."""
    clipping: Clipping = "joint"
    """Clipping of a client's histograms, all together or each (binnings)."""
    weighting: MixtureWeighting | None = None
    """Rows for which a binning is mixed with the model's own probabilities. Default: all."""
    averaging: Averaging = "clients"
    """What weighs the same in federated averaging: clients, or rows."""
    height: Annotated[int, Interval(ge=1, le=TALLEST)] | None = None
    """2^height bins of a binning. Default: 7."""
    holdout: Fraction = HOLDOUT
    """Share of the units (rows, or whole clients) that is kept to judge the result."""
    buckets: Annotated[int, Interval(ge=1, le=200)] = 15


# --- implications of a study file for calibrations ----------------------------------------------------------


class CalibrationRules(HistogramRules):
    """Rules of calibrations of scores: a calibrator is judged on held-out rows."""

    def holds_out(self, parameters: Given) -> bool:
        """See `StudyRules`."""
        return True


class ClassCalibrationRules(CalibrationRules):
    """Rules of calibrations of logits: held-out share of the study, number of classes looked up."""

    implied_names: ClassVar[tuple[str, ...]] = ("holdout",)

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        return same_holdout(given, holdout) if columns is not None or "holdout" in given else {}

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return missing_classes(parameters)
