"""A member whose prekey no client would take: the coordinator leaves it out before it asks, and all others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedassay.crypto.prekeys import DAY, PURPOSE, Prekey
from fedassay.errors import TooFewClients
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.trust.secure_sum import SecureSum
from policy_sites import SECURE, Ask, Direct, InProcess, Sites
from toys import Once

VILLAIN, NAMES = "e", "abcdef"


class Offering(Direct):
    """One site offers what the test says."""

    offered: Callable[[bytes], bytes] = staticmethod(lambda statement: statement)
    named: Mapping[str, bytes] = {}

    def keep(self, name: str, prekeys: Sequence[bytes]) -> None:
        super().keep(name, [self.offered(one) for one in prekeys] if name == VILLAIN else prekeys)

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        found = super().prekeys(names)
        self.named = {**self.named, **found}
        return found


def signed(sites: Sites, **changes: object) -> Callable[[bytes], bytes]:
    """A statement with something wrong, properly signed by its member."""

    def changed(statement: bytes) -> bytes:
        prekey = replace(Prekey.unpacked(statement), **changes)  # type: ignore[arg-type]
        words = prekey.words(sites.asker)
        return replace(prekey, signature=sites.identities[VILLAIN].sign(PURPOSE, words)).packed()

    return changed


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    found = Sites(tmp_path, tuple(NAMES))
    for name in NAMES:
        found.allow(name, trust_models=("secure-sum",))
    return found


def summed(sites: Sites, offered: Callable[[bytes], bytes]) -> tuple[int, bool]:
    """Over how many the total is, and whether the villain was asked."""
    runtime = Offering(InProcess(sites), NAMES)
    runtime.offered = offered  # type: ignore[method-assign]
    ask = Ask(trust=SecureSum())
    job = Job(name="evaluate", task=Once(query=ask.kind(of=ask.summary)), setting=ask.plan(6).setting)
    released = run([job], runtime=runtime, ledger=MemoryLedger(None), randomness=SECURE, study="s")
    return released["evaluate"].clients, VILLAIN in runtime.named


def test_an_honest_offer_is_taken(sites: Sites) -> None:
    assert summed(sites, lambda statement: statement) == (6, True)


NOW = int(time.time())


@pytest.mark.parametrize(
    "changes",
    [
        {"public": bytes(32)},
        {"public": b"\x01" + bytes(31)},
        {"public": (2**255 - 19 + 9).to_bytes(32, "little")},
        {"issued": NOW + 2 * DAY},
        {"issued": NOW + DAY // 2},
        {"issued": NOW - 29 * DAY},
        {"expires": NOW + 29 * DAY},
        {"expires": 0},
    ],
    ids=["zero", "order 1", "other bytes", "of tomorrow", "of tonight", "old", "expires soon", "expired"],
)
def test_a_statement_that_would_stop_everybody_stops_its_member_only(sites: Sites, changes: object) -> None:
    assert summed(sites, signed(sites, **changes)) == (5, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "offered",
    [
        lambda statement: b"",
        lambda statement: statement + b"x",
        lambda statement: statement[:-1] + bytes([statement[-1] ^ 1]),
    ],
)
def test_a_statement_that_is_none_is_left_out(sites: Sites, offered: Callable[[bytes], bytes]) -> None:
    assert summed(sites, offered) == (5, False)


def test_a_client_refuses_what_a_coordinator_should_not_have_named(sites: Sites) -> None:
    """The honest checks of a coordinator are no client's assurance: it looks itself."""
    runtime = Offering(InProcess(sites), NAMES)
    runtime.offered = signed(sites, issued=NOW - 29 * DAY, expires=NOW + DAY)  # type: ignore[method-assign]
    runtime.is_valid = lambda name, statement: True  # type: ignore[method-assign]
    ask = Ask(trust=SecureSum())
    job = Job(name="evaluate", task=Once(query=ask.kind(of=ask.summary)), setting=ask.plan(6).setting)
    with pytest.raises(TooFewClients, match="0 of 6 clients spoke"):
        run([job], runtime=runtime, ledger=MemoryLedger(None), randomness=SECURE, study="s")
    assert "not valid until the deadline" in sites.refusals("a")[-1].reason
