"""Calibration slope: whether probabilities are too extreme."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.metrics import MetricRecord

CALIBRATION_SLOPE = MetricRecord(
    name="calibration_slope",
    title="calibration slope",
    short="cal. slope",
    sentence="the slope of labels on the logits of scores; 1 for a calibrated model, less if scores are too extreme",
    order=270,
    parts=("rows",),
    target=0.2,
    scale="identity",
    headline=True,
    forest=True,
    estimate=Named("fedassay.estimation.recalibration:calibration_slope"),
)
