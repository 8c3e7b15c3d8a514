"""Declarations of what the calibration of a binary classifier says."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from fedassay.protocol.result_parts import Anything, MetricPart, NonEmpty, declared


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
