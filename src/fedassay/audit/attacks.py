"""What an attacker computes from what he sees: scores that should be larger in one world than in the other.

The attacker knows both worlds, row by row, and the law that the noise is said to have; he wants to know which of the
two he sees. `likelihood` is the best that he can do if the law is as stated (Neyman and Pearson 1933): the logarithm
of how much more probable the outcome is in the second world. The others need no law, and find what a wrong one leaves:
single coordinates, low bits together with the size of a number, entries that are zero or that hit an exact total.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from fedassay.audit.bound import Scores
from fedassay.privacy.accounting import CHOICE, LAPLACE, UNARY
from fedassay.protocol import Noise, Vector

_COORDINATES = 4
"""Of single coordinates, the attacker looks at those that move most."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the attacker knows about one query: the exact answers in both worlds, and the noise as it is claimed.

    Parameters
    ----------
    first, second : without noise; where clients choose among candidates, their losses.
    spread : the matrix that takes draws of noise to entries; None if each entry has its own draw.
    sampled : the probability with which the client under attack takes part.
    counted : whether the last number that is seen says how many clients answered.
    """

    first: Vector
    second: Vector
    noise: Noise
    spread: NDArray[np.float64] | None = field(default=None, repr=False)
    sampled: float = 1.0
    counted: bool = True

    @property
    def width(self) -> int:
        """How many numbers of a view belong to this query."""
        return len(self.first) + int(self.counted)

    @property
    def moved(self) -> NDArray[np.float64]:
        """How the second world differs from the first."""
        return np.asarray(self.second - self.first, dtype=np.float64)


def scores(views: NDArray[Any], known: tuple[Known, ...]) -> dict[str, Scores]:
    """All scores of these runs, by name; see the module.

    Examples
    --------
    >>> noise = Noise(law="discrete-laplace", scale=1.0, variance=1.84)
    >>> of = Known(first=np.array([0]), second=np.array([1]), noise=noise, counted=False)
    >>> found = scores(np.array([[[0]], [[5]]]), (of,))
    >>> found["likelihood"].tolist(), found["number 0"].tolist()
    ([-1.0, 1.0], [0.0, 5.0])
    """
    parts = np.split(views, np.cumsum([one.width for one in known])[:-1], axis=-1)
    bare = [part[..., :-1] if one.counted else part for part, one in zip(parts, known, strict=True)]
    found = {"likelihood": sum_of([_likelihood(part, one) for part, one in zip(bare, known, strict=True)])}
    everything = np.concatenate(bare, axis=-1)
    first, second = (np.concatenate([getattr(one, name) for one in known]) for name in ("first", "second"))
    found |= _plain(everything, first, second)
    if any(one.counted for one in known):
        found["answers"] = sum_of(
            [part[..., -1].sum(axis=1) for part, one in zip(parts, known, strict=True) if one.counted]
        )
    return found


def sum_of(parts: list[NDArray[Any]]) -> Scores:
    """Scores that add up: of independent answers."""
    return np.asarray(np.sum(parts, axis=0), dtype=np.float64)


def _likelihood(views: NDArray[Any], known: Known) -> Scores:
    """The logarithm of how much likelier the messages about one query are in the second world."""
    each = _of_message(views, known)
    if known.sampled < 1:
        # With the client, by chance: (1-q) + q·P/Q of the world in which it is. That is the first one.
        q = known.sampled
        each = -np.logaddexp(np.log1p(-q), np.log(q) - each)
    # Any of the messages may be the victim's, and others look as his does in the first world: the mean of the ratios.
    return np.asarray(logsumexp(each, axis=1) - np.log(each.shape[1]))


def _of_message(views: NDArray[Any], known: Known) -> Scores:
    """The same for single messages: runs x messages."""
    law, scale, moved = known.noise.law, known.noise.scale, known.moved
    if law == CHOICE:
        return np.asarray(views @ (-moved / scale))
    if law == UNARY:
        # A bit that is one is e^ε times as likely, against one that is zero, if the row is in its cell.
        return np.asarray((views - 0.5) @ (moved / scale))
    from_first = np.asarray(views - known.first, dtype=np.float64)
    if known.spread is not None and _can_be_undone(known.spread):
        undo = np.linalg.inv(known.spread)
        from_first, moved = from_first @ undo.T, undo @ moved
    elif known.spread is not None:
        # Exact for Gaussian noise; for other laws the best of all linear scores.
        weights = np.linalg.pinv(known.spread @ known.spread.T) @ moved / scale**2
        return np.asarray((from_first - moved / 2) @ weights)
    if law == LAPLACE:
        return np.asarray((np.abs(from_first) - np.abs(from_first - moved)).sum(axis=-1) / scale)
    return np.asarray((from_first - moved / 2) @ (moved / scale**2))


def _can_be_undone(spread: NDArray[np.float64]) -> bool:
    """Whether the draws can be computed from the entries."""
    rows, draws = spread.shape
    return rows == draws and bool(np.linalg.matrix_rank(spread) == rows)


def _plain(views: NDArray[Any], first: Vector, second: Vector) -> dict[str, Scores]:
    """Scores that need no law."""
    total = views.sum(axis=1)
    moved = np.asarray(second - first)
    largest = [int(place) for place in np.argsort(-np.abs(moved), kind="stable") if moved[place]]
    found = {f"number {place}": total[:, place].astype(np.float64) for place in largest[:_COORDINATES]}
    found["zeros"] = (views == 0).sum(axis=(1, 2)).astype(np.float64)
    found["direct hits"] = (
        ((views == second).astype(np.int64) - (views == first)).sum(axis=(1, 2)).astype(float)
    )
    if total.dtype == np.int64:
        for place in largest[:_COORDINATES]:
            found[f"low bits of number {place}"] = _low_bits(
                total[:, place], int(first[place]), int(moved[place])
            )
    return found


def _low_bits(numbers: Vector, first: int, moved: int) -> Scores:
    """The size of a number, with a sign by the lowest bit in which the two worlds differ.

    Whole noise has all bits; noise from a float of this size has only zeros there, which gives the world away.
    """
    lowest = moved & -moved
    same = (numbers - first) & lowest == 0
    size = np.abs(numbers.astype(np.float64) - first)
    return np.where(same, -1.0, 1.0) * size
