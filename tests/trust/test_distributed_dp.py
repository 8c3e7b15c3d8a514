"""Noise that clients add together: its law for any survivors, what stops a release, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from contract import Numbers, TrustModelContract, drive, untouched
from scipy.stats import chisquare, nbinom, skellam

from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.privacy import accounting
from fedassay.privacy.ledger.charges import Charge
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Message,
    Noise,
    Plan,
    Protection,
    Setting,
    Sum,
    TrustModel,
)
from fedassay.trust.distributed_dp import DistributedDP

FALSE_ALARM = 1e-6
CELLS = 40_000


class TestPure(TrustModelContract):
    budget = Budget(epsilon=0.5)

    @pytest.fixture
    def trust(self) -> TrustModel:
        return DistributedDP(dropout=0.2)


class TestSkellam(TrustModelContract):
    budget = Budget(epsilon=0.5, delta=1e-6)

    @pytest.fixture
    def trust(self) -> TrustModel:
        return DistributedDP(dropout=0.2)

    def plans(self, trust: TrustModel, lengths: Any = (3, 1)) -> tuple[Plan, ...]:
        # So that Skellam noise is the better choice.
        wide = [Numbers(cells=n, bound=self.bound, l1=400.0, l2=20.0) for n in lengths]
        plans = tuple(trust.plan(Sum(of=one, share=1 / len(wide)), self.setting(trust)) for one in wide)
        assert {plan.noise.law for plan in plans} == {"skellam"}
        return plans


def setting(clients: int, budget: Budget | None, trust: TrustModel | None = None) -> Setting:
    return Setting(trust=trust or DistributedDP(), protection=Protection(), budget=budget, clients=clients)


def planned(trust: DistributedDP, clients: int, *, skellam: bool = False, cells: int = CELLS) -> Plan:
    if skellam:
        budget, summary = Budget(epsilon=2.0, delta=1e-5), Numbers(cells=cells, l1=25.0, l2=5.0)
    else:
        budget, summary = Budget(epsilon=0.5), Numbers(cells=cells, l1=2.0, l2=1.5)
    return trust.plan(Sum(of=summary), setting(clients, budget, trust))


def law(noise: Noise, reach: int, *, copies: float) -> np.ndarray:
    """The probabilities of -reach..reach for this much of the noise."""
    if noise.law == "skellam":
        variance = noise.scale**2 * copies
        return skellam.pmf(np.arange(-reach, reach + 1), variance / 2, variance / 2)
    one = nbinom.pmf(np.arange(4 * reach), copies, -math.expm1(-1 / noise.scale))
    both = np.convolve(one, one[::-1])
    return both[4 * reach - 1 - reach : 4 * reach + reach]


def fits(values: np.ndarray, noise: Noise, *, copies: float) -> bool:
    """Whether so much noise could have drawn these values; false alarms once in a million."""
    reach = int(8 * noise.scale * math.sqrt(max(copies, 1))) + 8
    expected = law(noise, reach, copies=copies) * values.size
    observed = np.bincount(np.clip(values + reach, 0, 2 * reach), minlength=2 * reach + 1)
    # Tails are pooled until every class can be expected to hold 20 draws.
    cut = int(np.argmax(np.cumsum(expected) >= 20))
    pooled = [
        np.concatenate([[x[: cut + 1].sum()], x[cut + 1 : -cut - 1], [x[-cut - 1 :].sum()]])
        for x in (observed, expected)
    ]
    return bool(chisquare(pooled[0], pooled[1] * pooled[0].sum() / pooled[1].sum()).pvalue > FALSE_ALARM)


def zeros(n: int, cells: int = CELLS) -> dict[str, tuple[np.ndarray, ...]]:
    return {f"client{i}": (np.zeros(cells, dtype=np.int64),) for i in range(n)}


@pytest.mark.parametrize("skellam", [False, True])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_total_has_the_stated_law_for_any_survivors(skellam: bool, lost: int) -> None:
    trust = DistributedDP(dropout=0.2, collusion=0.1)
    plan = planned(trust, 10, skellam=skellam)
    gone = {f"client{i}" for i in range(lost)}
    (released,) = drive(
        trust, [plan], zeros(10), tamper=lambda name, leg, reply: None if name in gone else reply
    )
    survivors = 10 - lost
    assert released.clients == survivors
    assert released.noise.copies == survivors / 7  # 10 clients, 2 may fall silent, 1 may collude
    assert released.noise.law == ("skellam" if skellam else "discrete-laplace")
    assert fits(released.value, plan.noise, copies=survivors / 7)
    variance = released.noise.variance
    assert np.var(released.value) == pytest.approx(variance, rel=0.08)
    # The same test sees a share that is missing, one too many, and a scale that is off.
    assert not fits(released.value, plan.noise, copies=(survivors - 1) / 7)
    assert not fits(released.value, plan.noise, copies=(survivors + 1) / 7)
    assert not fits(2 * released.value, plan.noise, copies=survivors / 7)


def broken_shares(factor: Fraction, loses: str = "") -> Any:
    """A `draw_parts` that draws other parts than it should."""
    draw_parts = accounting.draw_parts

    def broken(noise: Noise, count: int, parts: Fraction, randomness: Any) -> np.ndarray:
        if loses and randomness.path[-1] == f"client/{loses}":
            return np.zeros(count, dtype=np.int64)
        return draw_parts(noise, count, parts * factor, randomness)

    return broken


@pytest.mark.parametrize("broken", [broken_shares(Fraction(1, 2)), broken_shares(Fraction(1), "client3")])
def test_broken_clients_are_noticed(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    trust = DistributedDP()
    plan = planned(trust, 10)
    assert fits(drive(trust, [plan], zeros(10))[0].value, plan.noise, copies=10 / 7)
    monkeypatch.setattr(accounting, "draw_parts", broken)
    assert not fits(drive(trust, [plan], zeros(10))[0].value, plan.noise, copies=10 / 7)


def test_colluders_who_add_nothing_leave_all_the_noise_that_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 20 clients, 2 silent and 2 colluding, exactly one whole draw is left."""
    trust = DistributedDP(dropout=0.1, collusion=0.1)
    plan = planned(trust, 20)
    draw_parts = accounting.draw_parts

    def colluding(noise: Noise, count: int, parts: Fraction, randomness: Any) -> np.ndarray:
        drawn = draw_parts(noise, count, parts, randomness)
        return 0 * drawn if randomness.path[-1] in ("client/client18", "client/client19") else drawn

    monkeypatch.setattr(accounting, "draw_parts", colluding)
    (released,) = drive(
        trust,
        [plan],
        zeros(20),
        tamper=lambda name, leg, reply: None if name in ("client0", "client1") and leg == 0 else reply,
    )
    assert released.clients == 18
    assert fits(released.value, plan.noise, copies=1.0)
    assert not fits(released.value, plan.noise, copies=14 / 16)


@pytest.mark.parametrize("leg", [0, 1])
def test_fewer_survivors_than_the_noise_allows_end_the_release(leg: int) -> None:
    trust = DistributedDP(dropout=0.2)
    plan = planned(trust, 10, cells=3)
    gone = {"client0", "client1", "client2"}
    with pytest.raises(TooFewClients, match="7 of 10 (clients|members)"):
        drive(
            trust,
            [plan],
            zeros(10, 3),
            tamper=lambda name, at, reply: None if name in gone and at >= leg else reply,
        )


def test_members_do_not_open_a_total_with_too_little_noise() -> None:
    """A coordinator that names seven of ten anyway gets no answer from any honest member."""
    trust = DistributedDP(dropout=0.2)
    plan = planned(trust, 10, cells=3)
    asked: list[str] = []

    class Eager(DistributedDP):
        """A server half that would go on with 7; the client halves are honest."""

        def sizes(self, clients: int, **options: Any) -> Any:
            return replace(super().sizes(clients, **options), least=7)

        def respond(self, request: Any, measure: Any, state: Message, randomness: Any) -> Any:
            if request.leg == 1:
                asked.append(request.recipient)
                with pytest.raises(ProtocolError, match="set of 7 clients, expected at least 8"):
                    trust.respond(request, measure, state, randomness)
                return {}, {}
            return trust.respond(request, measure, state, randomness)

    gone = {"client0", "client1", "client2"}
    with pytest.raises(TooFewClients):
        drive(
            Eager(dropout=0.2),
            [plan],
            zeros(10, 3),
            tamper=lambda name, leg, reply: None if name in gone and leg == 0 else reply,
        )
    assert len(asked) == 10


def test_clients_told_different_tolerances_share_no_session() -> None:
    """Otherwise some would add small shares, made for many survivors, to a total that others open with few."""

    class TwoTongued(DistributedDP):
        def respond(self, request: Any, measure: Any, state: Message, randomness: Any) -> Any:
            strict = DistributedDP(dropout=0.0)
            trust = strict if request.recipient in ("client0", "client1") else DistributedDP(dropout=0.2)
            return trust.respond(request, measure, state, randomness)

    (released,) = drive(DistributedDP(dropout=0.2), [planned(DistributedDP(), 10, cells=3)], zeros(10, 3))
    assert released.clients == 10
    with pytest.raises((ProtocolError, TooFewClients)):
        drive(TwoTongued(dropout=0.2), [planned(DistributedDP(), 10, cells=3)], zeros(10, 3))


@pytest.mark.parametrize(
    ("n", "survivors", "honest"), [(3, 3, 2), (5, 4, 3), (10, 8, 7), (40, 32, 28), (1000, 800, 700)]
)
def test_shares_are_made_for_the_fewest_honest_survivors(n: int, survivors: int, honest: int) -> None:
    trust = DistributedDP()
    assert (trust.fewest_survivors(n), trust.sizes(n).honest) == (survivors, honest)


def test_a_million_clients_in_aggregate_have_the_law_of_their_shares() -> None:
    trust = DistributedDP()
    for kind in (False, True):
        plan = planned(trust, 10**6, skellam=kind)
        zero = np.zeros(CELLS, dtype=np.int64)
        (released,) = trust.aggregate([plan], [zero], 10**6, SimulatedRandomness(4))
        assert released.noise == plan.noise
        assert fits(released.value, plan.noise, copies=1 / 0.7)


def test_faithful_and_aggregate_draw_from_one_law() -> None:
    trust = DistributedDP()
    plan = planned(trust, 12)
    (faithful,) = drive(trust, [plan], zeros(12), tamper=untouched)
    (aggregate,) = trust.aggregate([plan], [np.zeros(CELLS, dtype=np.int64)], 12, SimulatedRandomness(5))
    for released in (faithful, aggregate):
        assert fits(released.value, plan.noise, copies=12 / 8)
    assert faithful.noise == aggregate.noise


def test_a_charge_is_for_the_noise_that_is_guaranteed() -> None:
    """Not for the larger noise that is there if all survive."""
    plan = planned(DistributedDP(), 10)
    charge = Charge.of(plan, id="1", dataset="d", study="s")
    assert accounting.spent([charge.event], 0.0) == pytest.approx(0.5, rel=1e-6)
    assert accounting.spent([charge.event], 0.0) <= 0.5


def test_totals_with_their_noise_cannot_wrap() -> None:
    trust = DistributedDP()
    noise = planned(trust, 10).noise
    largest = (2**60 - 1) // 10 - accounting.largest_share(noise)
    trust.plan(Sum(of=Numbers(bound=largest, l1=2.0, l2=1.5)), setting(10, Budget(epsilon=0.5)))
    with pytest.raises(UnsupportedQuery, match="cannot wrap"):
        trust.plan(Sum(of=Numbers(bound=largest + 1, l1=2.0, l2=1.5)), setting(10, Budget(epsilon=0.5)))


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedQuery, match="hides who sent what"):
        DistributedDP().plan(Collect(of=Numbers()), setting(10, Budget(epsilon=1.0)))
    with pytest.raises(UsageError, match="epsilon"):
        DistributedDP().plan(Sum(of=Numbers()), setting(10, None))
    with pytest.raises(TooFewClients, match="got 2 clients"):
        DistributedDP().plan(Sum(of=Numbers()), setting(2, Budget(epsilon=1.0)))


def test_the_statement_names_its_assumptions() -> None:
    few = DistributedDP().statement(setting(40, Budget(epsilon=1.0, delta=1e-7)))
    assert "A total over fewer than 32 of 40 sites is never opened" in few
    assert "the noise of 28 honest sites" in few
    assert "Up to 4 sites may collude with a lying coordinator" in few
    assert "delta = 1e-07" in few
