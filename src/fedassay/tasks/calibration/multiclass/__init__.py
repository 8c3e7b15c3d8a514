"""Calibration of multiclass models: scaling maps, and the pooled optimum through sums."""

from __future__ import annotations

from fedassay.summaries.multiclass.maps import LOGIT_MAPS, logit_map_from_json
from fedassay.summaries.multiclass.scaling_maps import LogitMap
from fedassay.tasks.calibration.multiclass.exact import RIDGE, Fit, fit_exact

__all__ = ["LOGIT_MAPS", "RIDGE", "Fit", "LogitMap", "fit_exact", "logit_map_from_json"]
