"""The card of a trust model: who learns what, and what that rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedassay.cards import Catalogue, Named
from fedassay.protocol import TrustModel


@dataclass(frozen=True, kw_only=True)
class TrustCard:
    """What faces need to know of a trust model.

    Parameters
    ----------
    name : in options, study files, requests and results.
    order : place in tables and help.
    model : the trust model itself.
    parameters : the frozen dataclass that it inherits its parameters from, in a module that imports little; None where
        it has none.
    server_learns, readers_learn, rests_on : who learns what and why, as the planner's table has it.
    rounds : how often a client has to answer for one release.
    learnt : the same in one clause, for a comparison of runs.
    trusted : who is trusted with what, for the certificate.
    message_alone : whether the attacker of an audit sees the messages of single clients, and not a total.
    """

    name: str
    order: int
    model: Named[type[TrustModel]]
    parameters: Named[type[Any]] | None = None
    server_learns: str
    readers_learn: str
    rests_on: str
    rounds: int
    learnt: str
    trusted: str
    message_alone: bool = False


TRUST_CARDS: Catalogue[TrustCard] = Catalogue(
    "fedassay.trust_models",
    ("fedassay.trust.*_card", "fedassay.trust.*.card"),
    what="trust model",
)
"""Every trust model that is installed."""
