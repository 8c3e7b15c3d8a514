"""Declarations of what the calibration of a binary classifier says."""

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
    """The two releases."""

    rows: float
    fit: Anything
    held_out: Anything


@declared(is_open=True)
class Candidate(TypedDict):
    """The log loss to expect of a method on new rows, from the fit rows, or why not."""

    method: str
    expected_log_loss: Anything | float | None


class CalibrationResults(TypedDict):
    """The results of the calibration of a binary classifier."""

    method: Literal["histogram", "bbq", "isotonic", "platt", "beta"] | None
    """What was fitted; null if `auto` found nothing that could be."""

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
    """With `auto`."""

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
    """From logits to probabilities, as in the artefact."""

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
    """For each class the fitted value in each bin: uniform bins, or with a `reach` bins equally spaced in the logit."""

    weights: NotRequired[list[Any]]
    """Where there are values: how much those of each class are believed. Otherwise numbers of the map."""


class ClassFit(TypedDict):
    """Of the fit rows. Null is what the way of fitting does not tell."""

    rows: NotNegative | None
    clients: Count
    """Clients that answered, with or without rows in the fit part; of sampled rounds, the most that answered one."""

    sums: Count
    """How often clients were asked."""

    converged: bool
    """False if it ended early; then a note says why."""

    loss_before: NotNegative | None
    """The mean log loss of the model itself."""

    loss: NotNegative | None
    noise: Anything
    """Of what the map was computed from; empty without noise."""


ClassBeforeAfter = TypedDict(
    "ClassBeforeAfter",
    {"class": Count, "rows": NotNegative | None, "before": MetricPart, "after": MetricPart},
)


class TemperaturePart(TypedDict):
    """What logits are divided by; null if it is infinite."""

    value: float | None


@declared({"if": {"properties": {"method": {"const": "temperature"}}}, "then": {"required": ["temperature"]}})
class ClassCalibrationResults(TypedDict):
    """The results of the calibration of a model with several classes, from logits."""

    method: Literal[
        "temperature", "vector", "matrix", "order-preserving", "fedcal", "histogram", "bbq", "isotonic"
    ]
    """What was fitted; never `auto`."""

    solver: Literal["exact", "fedavg", "one-shot", "counts"]
    """How; `counts` for methods that bin probabilities."""

    parameters: Anything
    """How it was fitted, and the numbers of maps that have few."""

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
