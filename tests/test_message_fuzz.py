"""Random and mutated messages against clients, the server and signed frames: no crash, no forgery.

Some hundred in the ordinary suite, 100,000 in `make test-full`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sealed_requests
from fedassay.crypto.identity import Credentials, Identity
from fedassay.errors import FedassayError, ProtocolError
from fedassay.kernel import envelope
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Party, Protection, Setting, Sum, TrustModel
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from stated import Verify
from test_client import client, request
from toys import CountsUpTo, Once
from tracer.test_tracer import ROWS, house

FEW = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
MANY = settings(FEW, max_examples=34_000)


@st.composite
def mutated(draw: st.DrawFn, honest: bytes) -> bytes:
    """Random bytes, or the honest ones with some changed, cut off, doubled or put in."""
    kind = draw(st.sampled_from(["random", "flip", "cut", "insert", "repeat", "splice"]))
    if kind == "random":
        return draw(st.binary(max_size=300))
    at = draw(st.integers(0, len(honest) - 1))
    if kind == "flip":
        changed = bytearray(honest)
        for _ in range(draw(st.integers(1, 6))):
            changed[draw(st.integers(0, len(honest) - 1))] = draw(st.integers(0, 255))
        return bytes(changed)
    if kind == "cut":
        return honest[:at]
    if kind == "insert":
        return honest[:at] + draw(st.binary(min_size=1, max_size=9)) + honest[at:]
    if kind == "repeat":
        return honest + honest[at:]
    return honest[at:] + honest[:at]


def attack_the_client(rounds: settings) -> int:
    """Whatever arrives, a client answers with a message or a code, and reads rows only after agreeing."""
    tried = [0]

    @rounds
    @given(data=mutated(request()))
    def attack(data: bytes) -> None:
        log: list[str] = []
        sealed = client(log).answer(data)
        outer = wire.decode(sealed)
        # In the clear leaves nothing but a refusal; what is sealed for a changed key cannot be read here either.
        assert set(outer) in ({"version", "sender", "refusal"}, {"version", "sender", "sealed", "signature"})
        if "refusal" in outer or wire.decode(data)["reply_key"] == sealed_requests.REPLY_PAIR.public:
            reply = sealed_requests.said(sealed, data)
            assert "refusal" in reply or set(reply) == {
                *("version", "sender", "exchange", "leg", "message", "prekeys")
            }
        assert log[:2] == ["policy", "ledger"][: len(log)]
        tried[0] += 1

    attack()
    return tried[0]


class Mutating(Faithful):
    """Replaces the reply of client c at one leg by what the test says."""

    leg, replace = 0, staticmethod(lambda inner, sealed, to: sealed)

    def ask(self, to: Party, requests: Any, leg: int) -> Any:
        for name, sealed in super().ask(to, requests, leg):
            if leg == self.leg and name == "c":
                # Both what is sealed and the seal around it are the client's own to make.
                inner = envelope.opened(
                    sealed, self.reply_pair, request=requests[name], sender=name, credentials=None
                )
                to_coordinator = envelope.Addressee(self.reply_pair.public, requests[name])
                yield name, self.replace(inner, sealed, to_coordinator)
            else:
                yield name, sealed


def attack_the_server(rounds: settings) -> int:
    """One client's reply is garbage: the run ends with the others' sum, or with an error of ours."""
    tried = [0]
    query, trusted = Sum(of=CountsUpTo(top=4)), [Plain(), SecureSum(dropout=0.3, collusion=0.0)]
    others = np.sum([np.bincount(np.minimum(v, 4), minlength=5) for k, v in ROWS.items() if k != "c"], axis=0)

    @rounds
    @given(data=st.data(), trust=st.sampled_from(trusted), leg=st.integers(0, 1))
    def attack(data: st.DataObject, trust: TrustModel, leg: int) -> None:
        place = house()
        runtime = Mutating(place.clients)
        runtime.leg = leg

        def replaced(inner: bytes, sealed: bytes, to: envelope.Addressee) -> bytes:
            if data.draw(st.booleans()):
                return data.draw(mutated(sealed))
            return envelope.sealed(
                data.draw(mutated(inner)), to, sender="c", credentials=None, randomness=SimulatedRandomness(1)
            )

        runtime.replace = replaced  # type: ignore[method-assign, assignment]
        setting = Setting(trust=trust, protection=Protection(), budget=None, clients=4)
        tried[0] += 1
        try:
            released = run(
                [Job(name="t", task=Once(query=query), setting=setting)],
                runtime=runtime,
                ledger=MemoryLedger(None),
                randomness=SimulatedRandomness(1),
                study="fuzz",
            )["t"]
        except FedassayError:
            return
        # c may say what it likes of itself, as long as it says it well; the others are counted exactly.
        if released.clients == 3 and isinstance(trust, Plain):
            assert released.value.tolist() == others.tolist()

    attack()
    return tried[0]


def attack_signed_frames(rounds: settings) -> int:
    """Nothing but the very bytes that were signed is ever accepted between machines."""
    frames = pytest.importorskip("fedassay.runtimes.flower.post", reason="the extra flower is not installed")
    site, coordinator = (Identity.draw(SimulatedRandomness(i)) for i in (1, 2))
    roster = {"site": site.public, "coordinator": coordinator.public}
    ours, theirs = (Credentials(identity=who, roster=roster) for who in (coordinator, site))
    asked = frames.signed_request(b"the request", ours)
    honest = frames.signed_reply(b"the reply", theirs, request=b"the request")
    tried = [0]

    @rounds
    @given(body=mutated(honest.body), signature=mutated(honest.signature), both=st.booleans())
    def attack(body: bytes, signature: bytes, both: bool) -> None:
        tried[0] += 1
        for frame, opened in (
            (asked, lambda f: frames.opened_request(f, theirs, sender="coordinator")),
            (honest, lambda f: frames.opened_reply(f, ours, sender="site", request=b"the request")),
        ):
            forged = frames.Frame(body=body, signature=signature if both else frame.signature)
            if forged == frame:
                continue
            with pytest.raises(ProtocolError):
                opened(forged)

    attack()
    return tried[0]


ATTACKS: dict[str, Callable[[settings], int]] = {
    "clients": attack_the_client,
    "the server": attack_the_server,
    "signed frames": attack_signed_frames,
}


@pytest.mark.parametrize("target", sorted(ATTACKS))
def test_hundreds_of_messages(target: str) -> None:
    assert ATTACKS[target](FEW) >= 100


@pytest.mark.full
@pytest.mark.parametrize("target", sorted(ATTACKS))
def test_a_hundred_thousand_messages(target: str, verify: Verify) -> None:
    tried = ATTACKS[target](MANY)
    verify(
        f"random and mutated messages against {target}: no crash, nothing accepted that was not sent",
        f"{tried:,}",
    )
    assert tried >= 30_000
