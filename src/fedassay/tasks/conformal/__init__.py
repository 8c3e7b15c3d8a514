"""Prediction sets with guaranteed coverage after one message from each client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.protocol.cards import names_of

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal

__all__ = ["Conformal"]

__getattr__ = names_of(__name__, {"Conformal": "conformal"})
