"""Maps that look a calibrated probability up, for each class by the bin of its own probability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.summaries.multiclass.histograms import TALLEST, bins_of
from fedassay.summaries.multiclass.scaling_maps import LogitMap, as_many, numbers
from fedassay.summaries.scored import MOST_CLASSES, whole


@dataclass(frozen=True, kw_only=True)
class Binned(LogitMap):
    """q_j = α_j g_j(p_j) + (1 - α_j) p_j, divided by its sum over classes, with p the softmax of the logits.

    g_j is constant on each of B = 2^M uniform bins of [0, 1]; α_j in [0, 1] is how much it is believed. Where q is zero
    for every class, the model's p stands.

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

    values: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.values, list | tuple):
            raise UsageError("map: values are not a list, one list for each class.")
        whole(len(self.values), what="classes", least=2, most=MOST_CLASSES)
        values = tuple(_shares("values", one) for one in self.values)
        bins = len(values[0])
        if any(len(one) != bins for one in values) or bins not in [
            1 << height for height in range(TALLEST + 1)
        ]:
            raise UsageError(
                f"map: got values of {sorted({len(one) for one in values})} bins, expected a power of two up to "
                f"{1 << TALLEST:,}, the same for each class."
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "weights", _shares("weights", self.weights))
        as_many("weights", self.weights, len(values))

    @property
    def width(self) -> int:
        """See `LogitMap`."""
        return len(self.values)

    @property
    def theta(self) -> Floats:
        """The values by class, then the weights."""
        return np.concatenate([self._values.reshape(-1), self.weights])

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """See `LogitMap`."""
        if len(theta) < 2 * classes or len(theta) % classes:
            raise UsageError(
                f"map: got {len(theta)} parameters for {classes} classes, expected the values of each and its weight."
            )
        values = theta[:-classes].reshape(classes, -1)
        return cls(values=tuple(map(tuple, values.tolist())), weights=tuple(theta[-classes:].tolist()))

    @property
    def keeps_order(self) -> bool:
        """Only where the model's probabilities are left as they are."""
        return not any(self.weights)

    def to_json(self) -> dict[str, Any]:
        """See `LogitMap`."""
        return {
            "kind": self.kind,
            "values": [list(one) for one in self.values],
            "weights": list(self.weights),
        }

    @cached_property
    def _values(self) -> Floats:
        return np.array(self.values)

    def _weights(self, z: Floats) -> Floats:
        p = _softmax(z)
        return _to_one(self._believed(self._calibrated(p), p), p)

    def _calibrated(self, p: Floats) -> Floats:
        """G(p), classes first."""
        bins = self._values.shape[1]
        first = (bins * np.arange(self.width))[:, None]
        return np.asarray(np.take(self._values, bins_of(p, bins) + first))

    def _believed(self, g: Floats, p: Floats) -> Floats:
        alpha = np.array(self.weights)[:, None]
        return np.asarray(alpha * g + (1 - alpha) * p)


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
        """See `LogitMap`: whatever the weights are, classes below the most probable one can change places."""
        return False

    def _weights(self, z: Floats) -> Floats:
        p = _softmax(z)
        g = self._calibrated(p)
        changed = _to_one(g, p).argmax(axis=0) != p.argmax(axis=0)
        return _to_one(np.where(changed, self._believed(g, p), g), p)


def _softmax(z: Floats) -> Floats:
    """As in `probabilities.predicted`: a row is in the bin that it was counted in."""
    e = np.exp(z - z.max(axis=0))
    return np.asarray(e / e.sum(axis=0))


def _to_one(q: Floats, p: Floats) -> Floats:
    """The q of each row, divided by its largest; p instead where all are zero."""
    q = np.where(q.max(axis=0) > 0, q, p)
    return np.asarray(q / q.max(axis=0))


def _shares(what: str, given: object) -> tuple[float, ...]:
    found = numbers(what, given, least=0.0)
    if found and max(found) > 1:
        raise UsageError(f"map: {what} hold {max(found)}, expected numbers in [0, 1].")
    return found
