"""Multiclass maps by kind, their reading from JSON, and the probabilities that logits stand for through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.vocabulary import Batch, Rows
from fedassay.summaries.class_scores import blocks, checked_labels, checked_logits, require_finite
from fedassay.summaries.maps import numbers, one_of
from fedassay.summaries.measures import column
from fedassay.summaries.multiclass.binned_map import Binned, BinnedChanged, Isotonic
from fedassay.summaries.multiclass.fedcal import FedCal
from fedassay.summaries.multiclass.losses import padded
from fedassay.summaries.multiclass.scaling_maps import (
    LogitMap,
    MatrixScaling,
    OrderPreserving,
    Temperature,
    VectorScaling,
)
from fedassay.summaries.scored import MOST_CLASSES, whole

LOGIT_MAPS: Mapping[str, type[LogitMap]] = MappingProxyType(
    {
        kind.kind: kind
        for kind in (
            Temperature,
            VectorScaling,
            MatrixScaling,
            OrderPreserving,
            Binned,
            BinnedChanged,
            FedCal,
            Isotonic,
        )
    }
)
"""Maps by the name of their family."""


def logit_map_from_json(content: object) -> LogitMap:
    """Return the map that `to_json` was called on; anything else is refused with a sentence.

    Examples
    --------
    >>> logit_map_from_json({"kind": "order-preserving", "slopes": [0.5, 1.0]})
    OrderPreserving(slopes=(0.5, 1.0))
    """
    return one_of(LOGIT_MAPS, content)


# --- a map as two fields of a summary -----------------------------------------------------------------------


def carried_theta(kind: str, theta: tuple[float, ...], classes: int) -> tuple[float, ...]:
    """Return the numbers as floats, if they make a map of this kind; both are empty for the model as it is."""
    if not kind and not theta:
        return ()
    if not isinstance(kind, str) or kind not in LOGIT_MAPS:
        raise UsageError(f"kind: got {kind!r}, expected one of {', '.join(LOGIT_MAPS)}.")
    checked = numbers("theta", theta)
    carried_map(kind, checked, classes)
    return checked


@lru_cache(maxsize=8)
def carried_map(kind: str, theta: tuple[float, ...], classes: int) -> LogitMap | None:
    """Return the map with these fields, None for the model as it is.

    Examples
    --------
    >>> carried_map("temperature", (2.0,), 3)
    Temperature(inverse_temperature=2.0, classes=3)
    >>> carried_map("vector", (2.0,), 3)
    Traceback (most recent call last):
    fedassay.errors.UsageError: theta: got 1 numbers, expected those of a map of kind vector for 3 classes.
    """
    if not kind:
        return None
    try:
        made = LOGIT_MAPS[kind].of(np.array(theta), classes)
    except (IndexError, ValueError):  # not as many as can be cut into the parts of such a map
        made = None
    if made is None or made.width != classes or len(made.theta) != len(theta):
        raise UsageError(
            f"theta: got {len(theta):,} numbers, expected those of a map of kind {kind} for {classes} classes."
        )
    return made


# --- the probabilities that logits stand for ----------------------------------------------------------------

FEWEST_CLASSES = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicted:
    """Block of rows: `p` has a line per class and a column per row, `y` the true and `top` the most probable class."""

    p: Floats
    y: Ints
    top: Ints

    @property
    def of_truth(self) -> Floats:
        """Probability of the true class."""
        return np.asarray(self.p[self.y, np.arange(len(self.y))])

    @property
    def confidence(self) -> Floats:
        """Probability of the most probable class."""
        return np.asarray(self.p[self.top, np.arange(len(self.y))])


def checked_classes(classes: int) -> int:
    """Return the number of classes, if it is valid."""
    return whole(classes, what="classes", least=FEWEST_CLASSES, most=MOST_CLASSES)


def logits_of(rows: Rows, classes: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield logits and true classes, batch by batch.

    Rows with another number of logits, another model's, count for nothing: whether a client refuses is seen, and must
    not reveal that it has rows. If they are all that there is, the total has no rows.
    """
    for batch in rows.batches():
        logits = checked_logits(column(batch, "logits"))
        if logits.shape[1] == classes:
            yield logits, np.asarray(column(batch, "class"))


def predicted(batch: Batch, classes: int, through: LogitMap | None = None) -> Iterator[Predicted]:
    """Yield the rows of a batch in blocks, as the model gives them or `through` a map. Ties for the most probable class
    go to the first. Where a map keeps the order of classes, the most probable one is the model's, even if rounding
    makes others as probable. The blocks do not depend on the map.

    Rows with another number of logits, another model's, count for nothing: whether a client refuses is seen, and must
    not reveal that it has rows. If they are all that there is, the total has no rows. What the data layer does not let
    pass, classes without a logit, NaN and infinite logits, is a `DataError`.

    Examples
    --------
    >>> (block,) = predicted({"logits": np.log([[0.25, 0.75], [0.5, 0.5]]), "class": np.array([1, 1])}, 2)
    >>> block.p.round(6).tolist(), block.top.tolist(), block.of_truth.round(6).tolist()
    ([[0.25, 0.5], [0.75, 0.5]], [1, 0], [0.75, 0.5])
    """
    z = checked_logits(column(batch, "logits"))
    if z.shape[1] != classes:
        return
    y = checked_labels(column(batch, "class"), z)
    for part, block in blocks(z):
        require_finite(bool(np.isfinite(block).all()))
        p = _softmax(block)
        if through is not None:
            mapped = np.ascontiguousarray(through.predict_proba(block.T).T)
            # A map that the server has chosen must not make numbers of which sums are not bounded.
            p = np.where(np.isfinite(mapped).all(axis=0), mapped, p)
        top = (block if through is None or through.keeps_order else p).argmax(axis=0)
        yield Predicted(p=p, y=y[part], top=top)


def _softmax(block: Floats) -> Floats:
    wide = padded(block)
    with np.errstate(over="ignore"):  # a difference of -∞ is a probability of zero
        e = np.exp(wide - wide.max(axis=0))
    return np.ascontiguousarray((e / e.sum(axis=0))[:, : block.shape[1]])
