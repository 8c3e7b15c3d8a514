"""Calibration of binary classifiers: a map fitted to one part of the rows, judged on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.protocol.cards import names_of

if TYPE_CHECKING:
    from fedassay.tasks.calibration.calibrate import Calibrate
    from fedassay.tasks.calibration.methods import METHODS, fit

__all__ = ["METHODS", "Calibrate", "fit"]

__getattr__ = names_of(
    __name__,
    {
        "Calibrate": "calibrate",
        "METHODS": "methods",
        "fit": "methods",
    },
)
