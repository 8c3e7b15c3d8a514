"""Evaluation of binary classifiers: one released score histogram, every standard metric with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.protocol.cards import names_of

if TYPE_CHECKING:
    from fedassay.tasks.evaluation.evaluate import Evaluate
    from fedassay.tasks.evaluation.stored import metrics_at

__all__ = ["Evaluate", "metrics_at"]

__getattr__ = names_of(
    __name__,
    {
        "Evaluate": "evaluate",
        "metrics_at": "stored",
    },
)
