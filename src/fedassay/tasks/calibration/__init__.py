"""Calibration of binary classifiers: a map fitted to one part of the rows, judged on the other."""

from __future__ import annotations

from fedassay.summaries.maps import Map, map_from_json
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.calibration.methods import METHODS, fit

__all__ = ["METHODS", "Calibrate", "Map", "fit", "map_from_json"]
