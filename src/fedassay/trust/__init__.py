"""Trust models: how the answers of many clients become one released value.

To add one: write a package with a subclass of `protocol.TrustModel` and, in its module ``card``, its card, here or
elsewhere (entry-point group ``fedassay.trust_models``). Those of one module have their cards in ``modules_card``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedassay.protocol.cards import Loaded, names_of
from fedassay.protocol.vocabulary import TrustModel
from fedassay.trust.card import TRUST_CARDS

if TYPE_CHECKING:
    from fedassay.trust.distributed_dp import DistributedDP
    from fedassay.trust.local_dp import LocalDP
    from fedassay.trust.plain import Plain
    from fedassay.trust.secure_sum import SecureSum
    from fedassay.trust.server_dp import ServerDP
    from fedassay.trust.shuffle.model import Shuffle
    from fedassay.trust.two_server.model import TwoServer

__getattr__ = names_of(
    __name__,
    {
        "Plain": "plain",
        "SecureSum": "secure_sum",
        "DistributedDP": "distributed_dp",
        "LocalDP": "local_dp",
        "ServerDP": "server_dp",
        "TwoServer": "two_server.model",
        "Shuffle": "shuffle.model",
    },
)

TRUST_MODELS: Mapping[str, type[TrustModel]] = Loaded(
    lambda: {card.name: card.model for card in TRUST_CARDS.values()}
)
"""Trust models by name. Requests that name anything else are refused."""

__all__ = [
    "TRUST_MODELS",
    "DistributedDP",
    "LocalDP",
    "Plain",
    "SecureSum",
    "ServerDP",
    "Shuffle",
    "TwoServer",
]
