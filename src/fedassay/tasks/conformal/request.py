"""What is wanted of a threshold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Request:
    """The coverage, and with which confidence over the calibration rows (None: on average over them)."""

    level: float
    confidence: float | None = None
