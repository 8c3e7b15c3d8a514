"""Releases that dp-accounting has no event for; a separate module, as importing dp-accounting takes half a second."""

from __future__ import annotations

import attr
from dp_accounting import DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SkellamDpEvent(DpEvent):  # type: ignore[misc]
    """Skellam noise, independent in each coordinate, on a vector of whole numbers.

    Attributes
    ----------
    variance : μ of the noise in each coordinate, the difference of two Poisson draws of mean μ/2.
    l1, l2_squared : how far one unit can move the vector, in L1 and in squared L2.

    Examples
    --------
    >>> SkellamDpEvent(variance=100.0, l1=3, l2_squared=3)
    SkellamDpEvent(variance=100.0, l1=3, l2_squared=3)
    """

    variance: float
    l1: int
    l2_squared: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledDpEvent(DpEvent):  # type: ignore[misc]
    """Messages of many clients in random order, each private by itself.

    Attributes
    ----------
    local : event of one message, to an observer who knows its sender.
    epsilon, delta : cost of all messages, shuffled, to an observer who does not know the senders.
    """

    local: DpEvent
    epsilon: float
    delta: float
