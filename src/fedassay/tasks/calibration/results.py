"""Declarations of the results of calibrations."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Len
from typing_extensions import TypedDict

from fedassay.protocol.result_parts import (
    Anything,
    Count,
    MetricPart,
    NonEmpty,
    NotNegative,
    Proportion,
    declared,
)
from fedassay.tasks.evaluation.results import TopLabelCurve


class HeldOutMetrics(TypedDict):
    """Metrics on held-out rows."""

    roc_auc: MetricPart
    brier_score: MetricPart
    log_loss: MetricPart
    expected_calibration_error: MetricPart
    expected_calibration_error_uniform: MetricPart
    calibration_intercept: MetricPart
    calibration_slope: MetricPart


class HeldOutChange(TypedDict):
    """After minus before, paired: below 0 is better."""

    brier_score: MetricPart
    log_loss: MetricPart


class CurvesBeforeAfter(TypedDict):
    """Reliability before and after."""

    before: Anything
    after: Anything | None


class CalibrationReleases(TypedDict):
    """Releases of the fit rows and of the held-out rows."""

    rows: float
    fit: Anything
    held_out: Anything


@declared(is_open=True)
class Candidate(TypedDict):
    """Expected log loss of a method on new rows, from the fit rows, or the reason why there is none."""

    method: str
    expected_log_loss: Anything | float | None


class CalibrationResults(TypedDict):
    """Results of the calibration of a binary classifier."""

    method: Literal["histogram", "bbq", "isotonic", "platt", "beta"] | None
    """Fitted method; null if `auto` found none that could be fitted."""

    parameters: Anything
    """The numbers that describe the calibrator."""

    calibrator: Anything | None
    """The map itself, as in the artefact; null with the reason if there is none."""

    recommended: bool
    reason: NonEmpty
    before: HeldOutMetrics
    after: HeldOutMetrics
    difference: HeldOutChange
    reliability_curve: CurvesBeforeAfter
    candidates: NotRequired[list[Candidate]]
    """Methods compared, with `auto`."""

    histogram: CalibrationReleases


# --- several classes ----------------------------------------------------------------------------------------


class HeldOutClassMetrics(TypedDict):
    """Metrics of a model with several classes on held-out rows."""

    classwise_calibration_error: MetricPart
    expected_calibration_error: MetricPart
    brier_score: MetricPart
    log_loss: MetricPart
    accuracy: MetricPart


class HeldOutClassChange(TypedDict):
    """After minus before, paired: below 0 is better, but for the accuracy."""

    log_loss: MetricPart
    brier_score: MetricPart
    accuracy: MetricPart


class ClassCurvesBeforeAfter(TypedDict):
    """Reliability of the most probable class before and after."""

    before: TopLabelCurve
    after: TopLabelCurve


@declared(is_open=True)
class LogitMapPart(TypedDict):
    """Map from logits to probabilities, as in the artefact."""

    kind: Literal[
        "temperature",
        "vector",
        "matrix",
        "order-preserving",
        "fedcal",
        "binned",
        "binned-changed",
        "isotonic",
    ]
    values: NotRequired[list[list[Proportion]]]
    """Fitted value of each class in each bin: uniform bins, or with a `reach` equally spaced in the logit."""

    weights: NotRequired[list[Any]]
    """Weights of the values of each class, where there are values. Otherwise numbers of the map."""


class ClassFit(TypedDict):
    """Fit of the map to the fit rows. Entries that the way of fitting does not reveal are null."""

    rows: NotNegative | None
    clients: Count
    """Clients that answered, with or without rows in the fit part; the largest number, for sampled rounds."""

    sums: Count
    """Number of times that clients were asked."""

    converged: bool
    """False if the fit ended early; then a note gives the reason."""

    loss_before: NotNegative | None
    """The mean log loss of the model itself."""

    loss: NotNegative | None
    noise: Anything
    """Noise in the data that the map was computed from; empty without noise."""


ClassBeforeAfter = TypedDict(
    "ClassBeforeAfter",
    {"class": Count, "rows": NotNegative | None, "before": MetricPart, "after": MetricPart},
)


class TemperaturePart(TypedDict):
    """Divisor of the logits; null if it is infinite."""

    value: float | None


@declared({"if": {"properties": {"method": {"const": "temperature"}}}, "then": {"required": ["temperature"]}})
class ClassCalibrationResults(TypedDict):
    """Results of the calibration of a model with several classes, from logits."""

    method: Literal[
        "temperature", "vector", "matrix", "order-preserving", "fedcal", "histogram", "bbq", "isotonic"
    ]
    """Fitted method; never `auto`."""

    solver: Literal["exact", "fedavg", "one-shot", "counts"]
    """Solver of the fit; `counts` for methods that bin probabilities."""

    parameters: Anything
    """Settings of the fit, and the numbers of maps that have few."""

    temperature: NotRequired[TemperaturePart]
    calibrator: LogitMapPart
    fit: ClassFit
    recommended: bool
    reason: NonEmpty
    before: HeldOutClassMetrics
    after: HeldOutClassMetrics
    difference: HeldOutClassChange
    reliability_curve: ClassCurvesBeforeAfter
    classes: Annotated[list[ClassBeforeAfter], Len(2)]
    """The calibration error of each class, one-vs-rest, before and after; rows are null if nothing but the changes was
    asked for."""

    rows: NotNegative
    """Held-out rows."""

    notes: list[str]
