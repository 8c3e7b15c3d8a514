"""The in-process runtime: a simulation, in two honest modes.

*Faithful*: every client computes, noises and hides its own message and everything passes through serialised
bytes; up to thousands of clients. *Aggregate*: the exact total is computed from all rows and the trust model
draws the release from the law that the protocol gives it; millions of one-row clients. A test shows that both
have the same distribution; the result says which one ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.protocol.cards import names_of

if TYPE_CHECKING:
    from fedassay.runtimes.in_process.aggregate import Aggregate
    from fedassay.runtimes.in_process.card import InProcess
    from fedassay.runtimes.in_process.faithful import Faithful

__all__ = ["Aggregate", "Faithful", "InProcess"]

__getattr__ = names_of(
    __name__,
    {
        "Aggregate": "aggregate",
        "Faithful": "faithful",
        "InProcess": "card",
    },
)
