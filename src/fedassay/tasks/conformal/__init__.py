"""Prediction sets with guaranteed coverage after one message from each client."""

from __future__ import annotations

from fedassay.tasks.conformal.conformal import Conformal

__all__ = ["Conformal"]
