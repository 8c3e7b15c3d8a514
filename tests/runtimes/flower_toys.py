"""The cast of the contract on Flower: toy clients that break where a scenario says so, and a helper."""

from __future__ import annotations

import hashlib

from scenarios import HELPER, ROWS, SCENARIOS, SUMMARIES, TRUSTED, ToyRows

from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import Endpoint
from fedassay.kernel.helper import Helper
from fedassay.kernel.member_store import MemberStore
from fedassay.privacy.ledger.charges import Ledger, MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import PartyKeys, Randomness
from simulated_clients import open_site

SECRET = "a text that nobody else should read"


class ToyClient(Client):
    """A client that breaks down whenever it is asked in a scenario in which it is lost."""

    def answer(self, data: bytes, *, asker: str | None = None) -> bytes:
        if SCENARIOS[wire.decode(data)["study"]].lost == self.name:
            raise RuntimeError(SECRET)
        return super().answer(data, asker=asker)


def toy_client(
    name: str,
    *,
    randomness: Randomness,
    ledger: Ledger,
    credentials: PartyKeys | None = None,
    prekeys: MemberStore | None = None,
) -> ToyClient:
    site = open_site(
        name,
        lambda: ToyRows(ROWS[name]),
        randomness,
        ledger=ledger,
        credentials=credentials,
        prekeys=prekeys or MemberStore(None),
    )
    return ToyClient(site, summaries=SUMMARIES, trust_models=TRUSTED)


def toy_helper(randomness: Randomness, credentials: PartyKeys | None = None) -> Helper:
    return Helper(
        HELPER, randomness=randomness, credentials=credentials, summaries=SUMMARIES, trust_models=TRUSTED
    )


def endpoint(name: str, request: bytes) -> Endpoint:
    """The toy of this name in a simulation, with a stream of randomness for each request."""
    source = SimulatedRandomness(7).child(name).child(hashlib.sha256(request).hexdigest())
    if name == HELPER:
        return toy_helper(source)
    return toy_client(name, randomness=source, ledger=MemoryLedger(None))
