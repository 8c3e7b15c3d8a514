"""Trust models: how the answers of many clients become one released value.

To add one: write `trust/<name>.py` with a subclass of `protocol.TrustModel` and put it into the tuple below.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fedassay.protocol import TrustModel
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.shuffle import Shuffle
from fedassay.trust.two_server import TwoServer

TRUST_MODELS: Mapping[str, type[TrustModel]] = MappingProxyType(
    {kind.name: kind for kind in (Plain, SecureSum, DistributedDP, LocalDP, ServerDP, TwoServer, Shuffle)}
)
"""The catalogue: name to trust model. Requests that name anything else are refused."""

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
