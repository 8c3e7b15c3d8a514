"""Calibration intercept: whether probabilities are too low or too high in all."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

CALIBRATION_INTERCEPT = MetricRecord(
    name="calibration_intercept",
    title="calibration intercept",
    short="cal. intercept",
    sentence="by how much the logits of the scores are too low in all; 0 for a calibrated model",
    order=260,
    parts=("rows",),
    target=0.2,
    scale="identity",
    estimate=Named("fedassay.estimation.recalibration:calibration_intercept"),
)
