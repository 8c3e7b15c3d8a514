"""What a server of `two-server` answers: its share of a total, plus noise of its own, modulo p = 2^61 − 1.

A share of how many rows are in the leaves up to i is the sum of the keys' shares at the point i; the rest is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedassay.crypto.dcf import totals
from fedassay.crypto.dcf_keys import Keys
from fedassay.crypto.field61 import PRIME, Elements, add, multiply, negate
from fedassay.errors import ProtocolError
from fedassay.privacy import accounting
from fedassay.protocol import Message, Plan, Randomness, Summary, Vector
from fedassay.trust.local_noise import spread
from fedassay.trust.two_server_layout import Layout

LIMIT = PRIME // 2
"""Numbers below this, of either sign, are read back from their remainder modulo p."""

_LIMB = 21


def to_field(numbers: Vector) -> Elements:
    """Whole numbers modulo p.

    Examples
    --------
    >>> to_field(np.array([-1, 5])).tolist() == [PRIME - 1, 5]
    True
    """
    return np.mod(numbers, PRIME).astype(np.uint64)


def from_field(elements: Elements) -> Vector:
    """The whole numbers between −p/2 and p/2 with these remainders.

    Examples
    --------
    >>> from_field(to_field(np.array([-7, 0, 2**59]))).tolist() == [-7, 0, 2**59]
    True
    """
    numbers = elements.astype(np.int64)
    return np.where(numbers > LIMIT, numbers - PRIME, numbers)


def shared_total(summary: Summary[Any], leaves: Elements) -> Elements:
    """A share of the total of a summary, from shares of its leaves.

    `from_leaves` is linear, but works on 64-bit integers: shares, which can be any number below 2^61, are cut into
    limbs of 21 bits. Exact if the coefficients of no entry add up to 2^42: of 2^20 leaves, each may count 2^22 times.
    """
    total = np.zeros(summary.length, np.uint64)
    for limb in range(3):
        part = (leaves >> np.uint64(_LIMB * limb)) & np.uint64(2**_LIMB - 1)
        counted = summary.from_leaves(part.astype(np.int64))
        if counted.dtype != np.int64 or counted.shape != total.shape:
            raise ProtocolError(
                f"{summary.name}: what it makes of its leaves is not {summary.length} whole numbers."
            )
        power = np.full(total.shape, 2 ** (_LIMB * limb), np.uint64)
        total = add(total, multiply(to_field(counted), power))
    return total


def noisy_share(
    keys: Keys, plan: Plan, layout: Layout, randomness: Randomness, *, up_to: Elements | None = None
) -> Elements:
    """This server's share of a whole total, with one full draw of the plan's noise.

    `up_to` are its shares of how many rows are in the leaves up to each, if they have been computed already.
    """
    summary = plan.query.of
    if up_to is None:
        up_to = totals(keys, layout.points)
    leaves = add(up_to, negate(np.concatenate([np.zeros(1, np.uint64), up_to[:-1]])))
    noise = spread(summary, accounting.draw(plan.noise, summary.draws, randomness))
    return add(shared_total(summary, leaves), to_field(noise))


def noisy_points(
    keys: Keys, plan: Plan, places: Vector, drawn: Message, randomness: Randomness
) -> tuple[Elements, Message]:
    """This server's shares of some entries of a cumulative summary, with their noise; and all noise drawn so far.

    `drawn` has the numbers of the draws (`of`, increasing) and what they came out as (`draws`). Each is drawn when it
    is first needed and never again: an entry that is asked for again has the same noise. As draws are independent, it
    does not matter for their law that some come later.
    """
    needed = [plan.query.of.draws_of(int(place)) for place in places]
    known, draws = _with_more(drawn, needed, plan, randomness)
    noise = np.array([draws[np.searchsorted(known, one)].sum() for one in needed], dtype=np.int64)
    shares = add(totals(keys, places.astype(np.uint64)), to_field(noise))
    return shares, {"of": known, "draws": draws}


def _with_more(
    drawn: Message, needed: Sequence[tuple[int, ...]], plan: Plan, randomness: Randomness
) -> tuple[Vector, Vector]:
    """The draws so far and those that are needed besides, in order of their numbers."""
    known, draws = drawn["of"], drawn["draws"]
    fresh = np.setdiff1d(np.array(sorted({one for some in needed for one in some}), dtype=np.int64), known)
    numbers = np.concatenate([known, fresh])
    values = np.concatenate([draws, accounting.draw(plan.noise, len(fresh), randomness)])
    order = np.argsort(numbers)
    return numbers[order], values[order]
