"""What a multiclass calibrator does to logits: a map from logits to probabilities.

A map is plain numbers: it is written to JSON and read back bit for bit, and applying it executes no code from the
file. Finite logits of any size become probabilities that add up to one; a logit beyond ±2^20 counts as ±2^20, in
predictions as in fits. Every map is determined by its kind, the number of classes and `theta`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError, UsageError
from fedassay.summaries.multiclass.losses import LARGEST_PARAMETER, blocks, padded

Floats = NDArray[np.float64]


class LogitMap(ABC):
    """A function from logits to probabilities."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def width(self) -> int:
        """c, the number of classes."""

    @property
    @abstractmethod
    def theta(self) -> Floats:
        """The parameters in the order of `summaries.multiclass.losses`."""

    @classmethod
    @abstractmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """The map with these parameters."""

    @property
    @abstractmethod
    def keeps_order(self) -> bool:
        """Whether it surely leaves the classes of each row in their order, so that no accuracy is lost or won."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """As plain values; `logit_map_from_json` reads it."""

    @abstractmethod
    def _weights(self, z: Floats) -> Floats:
        """What the probabilities of a block are proportional to (classes first); the largest of each row is one."""

    def predict_proba(self, logits: ArrayLike) -> Floats:
        """Calibrated probabilities, n x c, one row for each row of logits.

        Raises `DataError` for another number of classes, and for logits that are NaN or infinite.
        """
        z = np.asarray(logits)
        if z.ndim != 2 or z.shape[1] != self.width:
            raise DataError(f"logits: got an array of shape {z.shape}, expected rows x {self.width} classes.")
        p = np.empty(z.shape)
        for part, block in blocks(z):
            e = self._weights(padded(block))
            p[part] = (e / e.sum(axis=0))[:, : block.shape[1]].T
        return p


def numbers(what: str, given: object, *, least: float = -LARGEST_PARAMETER) -> tuple[float, ...]:
    """The parameters of a map as floats; anything else than numbers within the bounds is refused."""
    if not isinstance(given, list | tuple):
        raise UsageError(f"map: {what} are not a list of numbers.")
    for number in given:
        if isinstance(number, bool) or not isinstance(number, float | int):
            raise UsageError(f"map: {what} hold something that is not a number.")
        if not least <= number <= LARGEST_PARAMETER:  # NaN fails too
            raise UsageError(
                f"map: {what} hold {number}, expected numbers in [{least:g}, {LARGEST_PARAMETER:g}]."
            )
    return tuple(float(number) for number in given)


def as_many(what: str, given: Any, classes: int) -> None:
    """Refuse unless there is one for each class."""
    if len(given) != classes:
        raise UsageError(f"map: got {len(given)} {what} for {classes} classes, expected one for each.")
