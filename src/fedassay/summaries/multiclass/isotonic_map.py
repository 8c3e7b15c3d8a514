"""A map that rises with each class's own probability, held by a temperature where rows are few."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.summaries.grid import Grid
from fedassay.summaries.multiclass.scaling_maps import LogitMap, as_many, numbers
from fedassay.summaries.scored import MOST_CLASSES, whole

TALLEST = 12


@dataclass(frozen=True, kw_only=True)
class Isotonic(LogitMap):
    """w_j ĝ_j + (1 - w_j) q_j, divided by its sum over classes, with q = softmax(s z).

    ĝ is (g_1(p_1), .., g_c(p_c)) divided by its sum, p the softmax of the logits as they are; g_j is a step function
    that does not fall, on logit-spaced bins. Where all g_j are zero, or the mixture is, q stands.

    Parameters
    ----------
    inverse_temperature : s.
    values : for each class the value of g_j in each of 2^M bins, from the lowest, in [0, 1].
    weights : w_j in [0, 1]: how much g_j is believed.
    reach : the bins are equally spaced in the logit of p_j within ±reach (`Grid`).

    Examples
    --------
    >>> flat = Isotonic(inverse_temperature=1.0, values=((0.2,) * 4, (0.6,) * 4), weights=(1.0, 1.0), reach=16.0)
    >>> flat.predict_proba([[0.0, 3.0]])
    array([[0.25, 0.75]])
    """

    kind: ClassVar[str] = "isotonic"

    inverse_temperature: float
    values: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    reach: float

    def __post_init__(self) -> None:
        (s,) = numbers("inverse_temperature", [self.inverse_temperature])
        (reach,) = numbers("reach", [self.reach])
        if not isinstance(self.values, list | tuple):
            raise UsageError("map: values are not a list, one list for each class.")
        whole(len(self.values), what="classes", least=2, most=MOST_CLASSES)
        values = tuple(_rising(one) for one in self.values)
        sizes = {len(one) for one in values}
        if len(sizes) > 1 or not sizes <= {1 << height for height in range(2, TALLEST + 1)}:
            raise UsageError(
                f"map: got values of {sorted(sizes)} bins, expected 4 to {1 << TALLEST:,}, a power of two, the same "
                "for each class."
            )
        weights = numbers("weights", self.weights, least=0.0)
        as_many("weights", weights, len(values))
        if max(weights) > 1:
            raise UsageError(f"map: weights hold {max(weights)}, expected numbers in [0, 1].")
        for name, value in (
            ("inverse_temperature", s),
            ("reach", reach),
            ("values", values),
            ("weights", weights),
        ):
            object.__setattr__(self, name, value)
        Grid(transform="logit", height=2, reach=reach)

    @property
    def width(self) -> int:
        """See `LogitMap`."""
        return len(self.values)

    @property
    def theta(self) -> Floats:
        """The values by class, the weights, s and the reach."""
        return np.concatenate(
            [self._values.reshape(-1), self.weights, [self.inverse_temperature, self.reach]]
        )

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """See `LogitMap`."""
        bins, left = divmod(len(theta) - 2 - classes, classes)
        if bins < 1 or left:
            raise UsageError(
                f"map: got {len(theta)} parameters for {classes} classes, expected the values of each class, its "
                "weight, an inverse temperature and a reach."
            )
        values = theta[: classes * bins].reshape(classes, bins)
        return cls(
            inverse_temperature=float(theta[-2]),
            values=tuple(map(tuple, values.tolist())),
            weights=tuple(theta[classes * bins : -2].tolist()),
            reach=float(theta[-1]),
        )

    @property
    def keeps_order(self) -> bool:
        """See `LogitMap`: only where nothing but the temperature counts."""
        return not any(self.weights) and self.inverse_temperature > 0

    def to_json(self) -> dict[str, Any]:
        """See `LogitMap`."""
        return {
            "kind": self.kind,
            "inverse_temperature": self.inverse_temperature,
            "values": [list(one) for one in self.values],
            "weights": list(self.weights),
            "reach": self.reach,
        }

    @cached_property
    def _values(self) -> Floats:
        return np.array(self.values)

    @property
    def grid(self) -> Grid:
        """The bins."""
        height = self._values.shape[1].bit_length() - 1
        return Grid(transform="logit", height=height, reach=self.reach)

    def _weights(self, z: Floats) -> Floats:
        p, q = _softmax(z), _softmax(self.inverse_temperature * z)
        bins = self._values.shape[1]
        leaf = self.grid.locate(p.reshape(-1)).reshape(p.shape) + (bins * np.arange(self.width))[:, None]
        g = np.take(self._values, leaf)
        total = g.sum(axis=0)
        g = np.where(total > 0, g / np.where(total > 0, total, 1.0), q)
        w = np.array(self.weights)[:, None]
        mixed = w * g + (1 - w) * q
        # A class that g believes in may not be believed itself, and the others have nothing to say.
        return np.asarray(np.where(mixed.sum(axis=0) > 0, mixed, q))


def _softmax(z: Floats) -> Floats:
    e = np.exp(z - z.max(axis=0))
    return np.asarray(e / e.sum(axis=0))


def _rising(given: object) -> tuple[float, ...]:
    values = numbers("values", given, least=0.0)
    if values and (max(values) > 1 or any(a > b for a, b in pairwise(values))):
        raise UsageError("map: values fall, or exceed 1, expected numbers in [0, 1] that do not fall.")
    return values
