"""Calibration maps that look a probability up, for each class by the bin of its own probability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.summaries.grid import Grid
from fedassay.summaries.maps import numbers, shares
from fedassay.summaries.multiclass.scaling_maps import LogitMap, as_many, exponentials
from fedassay.summaries.scored import MOST_CLASSES, whole

TALLEST = 12
"""Largest height: 4,096 bins."""


def bins_of(p: Floats, bins: int) -> Ints:
    """Return the uniform bin of each probability; exact, as multiplying by a power of two is.

    Examples
    --------
    >>> bins_of(np.array([0.0, 0.2499, 0.25, 1.0]), 4)
    array([0, 0, 1, 3])
    """
    return np.minimum((p * bins).astype(np.int64), bins - 1)


@dataclass(frozen=True, kw_only=True)
class _OfBins(LogitMap):
    """Values for each class and bin of its probability, and the weight of the values of each class."""

    expected_bins: ClassVar[str]
    fewest_bins: ClassVar[int] = 1

    values: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.values, list | tuple):
            raise UsageError("map: values are not a list, one list for each class.")
        whole(len(self.values), what="classes", least=2, most=MOST_CLASSES)
        values = tuple(shares("values", one) for one in self.values)
        sizes = {len(one) for one in values}
        known = {1 << height for height in range(TALLEST + 1) if 1 << height >= self.fewest_bins}
        if len(sizes) > 1 or not sizes <= known:
            raise UsageError(
                f"map: got values of {sorted(sizes)} bins, expected {self.expected_bins}, the same for each class."
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "weights", shares("weights", self.weights))
        as_many("weights", self.weights, len(values))

    @property
    def width(self) -> int:
        """Number of classes; see `LogitMap`."""
        return len(self.values)

    @cached_property
    def _values(self) -> Floats:
        return np.array(self.values)

    def _looked_up(self, bins: Ints) -> Floats:
        """Return g_j of each row, classes first, from the bins of its probabilities."""
        first = self._values.shape[1] * np.arange(self.width)
        return np.asarray(np.take(self._values, bins + first[:, None]))

    def _mixed(self, g: Floats, others: Floats) -> Floats:
        """Return the values as far as they are believed, and for the rest the others."""
        weights = np.array(self.weights)[:, None]
        return np.asarray(weights * g + (1 - weights) * others)


@dataclass(frozen=True, kw_only=True)
class Binned(_OfBins):
    """q_j = α_j g_j(p_j) + (1 - α_j) p_j, divided by its sum over classes, with p the softmax of the logits.

    g_j is constant on each of B = 2^M uniform bins of [0, 1]; α_j in [0, 1] is its weight. Where q is zero for every
    class, the model's p stands.

    Parameters
    ----------
    values : for each class the B values of g_j, in [0, 1].
    weights : α_j for each class.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Appendices B.3 to B.5 ("all weight").

    Examples
    --------
    >>> certain = Binned(values=((0.25, 1.0), (0.25, 1.0)), weights=(1.0, 1.0))
    >>> certain.predict_proba(np.log([[0.9, 0.1]])).round(6)
    array([[0.8, 0.2]])
    """

    kind: ClassVar[str] = "binned"
    expected_bins: ClassVar[str] = f"a power of two up to {1 << TALLEST:,}"

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map; see `LogitMap`."""
        if len(theta) < 2 * classes or len(theta) % classes:
            raise UsageError(
                f"map: got {len(theta)} parameters for {classes} classes, expected the values of each and its weight."
            )
        values = theta[:-classes].reshape(classes, -1)
        return cls(values=tuple(map(tuple, values.tolist())), weights=tuple(theta[-classes:].tolist()))

    @property
    def keeps_order(self) -> bool:
        """True if the model's probabilities are left as they are."""
        return not any(self.weights)

    def _weights(self, z: Floats) -> Floats:
        p = _softmax(z)
        return _to_one(self._mixed(self._calibrated(p), p), p)

    def _calibrated(self, p: Floats) -> Floats:
        """Return G(p), classes first."""
        return self._looked_up(bins_of(p, self._values.shape[1]))


@dataclass(frozen=True, kw_only=True)
class BinnedChanged(Binned):
    """`Binned`, where the weights count only for rows whose most probable class the g alone would change.

    All other rows get g_j(p_j), divided by its sum. Ties for the most probable class go to the first one.

    Reference: Private Federated Multiclass Post-Hoc Calibration, Section 5 ("changed weight").

    Examples
    --------
    >>> fields = {"values": ((0.5, 0.4), (0.6, 1.0)), "weights": (0.0, 0.0)}
    >>> BinnedChanged(**fields).predict_proba(np.log([[0.7, 0.3], [0.3, 0.7]])).round(6)
    array([[0.7     , 0.3     ],
           [0.333333, 0.666667]])
    """

    kind: ClassVar[str] = "binned-changed"

    @property
    def keeps_order(self) -> bool:
        """False, whatever the weights are: classes below the most probable one can change places. See `LogitMap`."""
        return False

    def _weights(self, z: Floats) -> Floats:
        p = _softmax(z)
        g = self._calibrated(p)
        changed = _to_one(g, p).argmax(axis=0) != p.argmax(axis=0)
        return _to_one(np.where(changed, self._mixed(g, p), g), p)


@dataclass(frozen=True, kw_only=True)
class Isotonic(_OfBins):
    """w_j ĝ_j + (1 - w_j) q_j, divided by its sum over classes, with q = softmax(s z).

    ĝ is (g_1(p_1), .., g_c(p_c)) divided by its sum, p the softmax of the logits as they are; g_j is a step function
    that does not fall, on logit-spaced bins. Where all g_j are zero, or the mixture is, q stands.

    Parameters
    ----------
    inverse_temperature : s.
    values : for each class the value of g_j in each of 2^M bins, from the lowest, in [0, 1].
    weights : w_j in [0, 1], the weight of g_j.
    reach : the bins are equally spaced in the logit of p_j within ±reach (`Grid`).

    Examples
    --------
    >>> flat = Isotonic(inverse_temperature=1.0, values=((0.2,) * 4, (0.6,) * 4), weights=(1.0, 1.0), reach=16.0)
    >>> flat.predict_proba([[0.0, 3.0]])
    array([[0.25, 0.75]])
    """

    kind: ClassVar[str] = "isotonic"
    fewest_bins: ClassVar[int] = 4
    expected_bins: ClassVar[str] = f"4 to {1 << TALLEST:,}, a power of two"

    inverse_temperature: float
    reach: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("inverse_temperature", "reach"):
            object.__setattr__(self, name, *numbers(name, [getattr(self, name)]))
        if any(a > b for one in self.values for a, b in pairwise(one)):
            raise UsageError("map: values fall, expected numbers in [0, 1] that do not fall.")
        Grid(transform="logit", height=2, reach=self.reach)

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map; see `LogitMap`."""
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

    def to_json(self) -> dict[str, Any]:
        """Return plain values as `LogitMap` does; the temperature stands first."""
        content = super().to_json()
        return {"kind": self.kind, "inverse_temperature": content.pop("inverse_temperature"), **content}

    @property
    def keeps_order(self) -> bool:
        """True only where nothing but the temperature counts. See `LogitMap`."""
        return not any(self.weights) and self.inverse_temperature > 0

    @property
    def grid(self) -> Grid:
        """Grid of the bins."""
        height = self._values.shape[1].bit_length() - 1
        return Grid(transform="logit", height=height, reach=self.reach)

    def _weights(self, z: Floats) -> Floats:
        p, q = _softmax(z), _softmax(self.inverse_temperature * z)
        g = self._looked_up(self.grid.locate(p.reshape(-1)).reshape(p.shape))
        total = g.sum(axis=0)
        g = np.where(total > 0, g / np.where(total > 0, total, 1.0), q)
        mixed = self._mixed(g, q)
        # A class with a positive g may have no weight itself, and the others a g of zero.
        return np.asarray(np.where(mixed.sum(axis=0) > 0, mixed, q))


def _softmax(z: Floats) -> Floats:
    """Return the softmax as in `maps.predicted`: a row is in the bin that it was counted in."""
    e = exponentials(z)
    return np.asarray(e / e.sum(axis=0))


def _to_one(q: Floats, p: Floats) -> Floats:
    """Return the q of each row, divided by its largest; p instead where all are zero."""
    q = np.where(q.max(axis=0) > 0, q, p)
    return np.asarray(q / q.max(axis=0))
