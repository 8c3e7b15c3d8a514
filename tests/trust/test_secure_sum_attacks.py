"""Attacks that worked on double masking, and those of the review of its successor, on the messages of today.

A coordinator that lies drives real sites (`fedassay.audit.equivocation`), or a run of client halves. What follows from
their answers is computed by linear algebra: one total over enough honest clients, or nothing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.audit.equivocation import Liar, WeighedAnswers, is_one_total, liar_among
from fedassay.crypto.field61 import PRIME
from fedassay.crypto.keys import KeyPair, is_usable
from fedassay.errors import PolicyRefusal, ProtocolError, UsageError
from fedassay.kernel.client import Client
from fedassay.privacy.policy.judgement import PolicyRequest
from fedassay.privacy.policy.rules import SitePolicy
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import COORDINATOR, Budget, Plan, Protection, Setting, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.one_shot.messages import SPOKEN, Terms
from fedassay.trust.secure_sum import SecureSum
from policy_sites import Sites, close
from secure_sum_driver import Run, Seeded, vectors

TABLE = ScoreHistogram(
    transform="uniform",
    height=5,
    thresholds=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    widths=(1,),
    multipliers=(1,),
)
RECOMMENDED = """\
tasks = ["evaluate"]
askers = ["ASKER"]
smallest_cohort = 5
smallest_rows = 50
RULE
[summaries.score-histogram]
transform = "uniform"
height = 5
thresholds = [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]]
widths = [[1]]
multipliers = [[1]]
reach = 24.0
"""
"""What docs/how-to/policy.md recommends for exact totals."""


def plan_of(trust: Any, clients: int, summary: Any = TABLE) -> Plan:
    budget = Budget(epsilon=0.5) if trust.private else None
    setting = Setting(trust=trust, protection=Protection(), budget=budget, clients=clients)
    plan: Plan = trust.plan(Sum(of=summary), setting)
    return plan


# --- differencing: one hospital's exact table -------------------------------------------------------------------


def lying_to(sites: Sites, trust: SecureSum) -> tuple[Liar, dict[str, Client]]:
    clients = {name: sites.open(name) for name in sites.names}
    roster = {name: identity.public for name, identity in sites.identities.items()}
    liar = Liar(
        sites=clients,
        plan=plan_of(trust, len(clients)),
        identity=sites.identities[COORDINATOR],
        roster=roster,
    )
    return liar, clients


@pytest.mark.parametrize(
    ("rule", "terms"),
    [("same_set = true", {"same_set": True}), ("smallest_cohort_difference = 3", {"cohort_difference": 4})],
    ids=["same set", "difference"],
)
def test_nine_hospitals_with_the_recommended_policy_keep_their_tables(
    tmp_path: Path, rule: str, terms: dict[str, Any]
) -> None:
    """The coordinator tells each hospital that others are silent, differently in two exchanges of an allowed question.

    Of double masking this left one hospital's exact table, with no refusal anywhere.
    """
    names = [f"h{place}" for place in range(9)]
    sites = Sites(tmp_path, names)
    for name in names:
        policy = RECOMMENDED.replace("ASKER", sites.asker).replace("RULE", rule)
        sites.allow(name, policy, trust_models=("secure-sum",))
    trust = SecureSum(minimum_cohort=5, **terms)
    liar, clients = lying_to(sites, trust)
    honest, generator = trust.sizes(9).honest, random.Random(1)
    everybody, opened = frozenset(names), list[WeighedAnswers]()
    victim = names[0]
    for silent in (0, 1, 1):
        exchange = liar.begin()
        told = {}
        for name in names:  # as many are said to be silent as may be, for each another one, often the victim
            gone = generator.sample([victim, *names], silent)
            told[name] = everybody - set(gone)
        found = liar.learned(liar.name(exchange, told))
        assert is_one_total(found)
        opened += found
    assert opened  # an honest first exchange opens
    assert {one.clients for one in opened} == {everybody}
    assert len(everybody) >= honest
    assert liar.refusals
    for client in clients.values():
        close(client)


def test_what_nine_hospitals_open_is_their_exact_total(tmp_path: Path) -> None:
    """The attack would work if something opened: what the algebra says is what the sites hold."""
    sites = Sites(tmp_path, [f"h{place}" for place in range(9)])
    for name in sites.names:
        sites.allow(name, trust_models=("secure-sum",))
    liar, clients = lying_to(sites, SecureSum())
    exchange = liar.name(liar.begin(), dict.fromkeys(sites.names, frozenset(sites.names)))
    packed, columns = exchange.terms.sizes.packed, exchange.terms.columns
    total = np.sum([TABLE.measure(one.site.rows(), {})[0] for one in clients.values()], axis=0).tolist()
    total += [0] * (packed * columns - len(total))
    found = liar.learned(exchange)
    assert found
    for one in found:
        weights = one.weights["h0"]
        for column in range(columns):
            expected = sum(w * total[row * columns + column] for row, w in enumerate(weights))
            assert one.numbers[column] == expected % PRIME
    for client in clients.values():
        close(client)


# --- noise: a total with less than was promised -------------------------------------------------------------------


def adaptive_liar(liar: Liar, generator: random.Random) -> tuple[list[WeighedAnswers], int]:
    """Tell members, one after the other, sets that are chosen by what has opened so far; what opens in the end."""
    exchange, names = liar.begin(), sorted(liar.sites)
    least = exchange.terms.sizes.least
    honest = [name for name in names if name not in liar.colluding]
    favourites = [frozenset(generator.sample(names, least)) for _ in range(3)]
    told: dict[str, frozenset[str]] = {}
    for member in generator.sample(honest, len(honest)):
        told[member] = generator.choice([*favourites, frozenset(generator.sample(names, least))])
    found = liar.learned(liar.name(exchange, told))
    return found, len(liar.refusals)


@pytest.mark.parametrize("sites", [5, 9, 16])
def test_no_total_opens_with_fewer_honest_shares_of_noise_than_were_promised(sites: int) -> None:
    """Of double masking, 13 of 64 shares opened where each site was shown at least 36."""
    rows = {
        f"h{place:02}": {"score": np.full(20, (place + 0.5) / 64), "label": np.ones(20, np.int64)}
        for place in range(sites)
    }
    trust, generator, opened = DistributedDP(), random.Random(sites), 0
    promised = trust.sizes(sites).honest
    for attempt in range(12):
        liar = liar_among(
            rows,
            plan_of(trust, sites, ScoreHistogram(transform="uniform", height=2)),
            randomness=SimulatedRandomness(attempt, str(sites)),
            colluding=trust.sizes(sites).colluders,
        )
        found, _ = adaptive_liar(liar, generator)
        assert is_one_total(found)
        for one in found:
            assert len(one.clients - liar.colluding) >= promised
        opened += bool(found)
    liar = liar_among(
        rows,
        plan_of(trust, sites, ScoreHistogram(transform="uniform", height=2)),
        randomness=SimulatedRandomness(99, str(sites)),
        colluding=trust.sizes(sites).colluders,
    )
    whole = liar.name(liar.begin(), dict.fromkeys(liar.sites, frozenset(liar.sites)))
    assert liar.learned(whole)  # told the truth, they open


def test_a_dropout_that_the_coordinator_chooses_is_bounded_by_the_policy() -> None:
    """`dropout` 0.44 was nobody's rule: it is one of the site's policy now, and of the protocol."""
    with pytest.raises(UsageError, match="3 \\* dropout"):
        DistributedDP(dropout=0.44)
    plan = plan_of(DistributedDP(dropout=0.29), 64)
    with pytest.raises(PolicyRefusal, match="0.29 of the clients may fall silent, expected at most 0.2"):
        SitePolicy(total=Budget(epsilon=9.0)).check(PolicyRequest(plan=plan, study="s", cohort=64))


# --- the same lie to all ------------------------------------------------------------------------------------------


def test_a_hundred_sites_that_are_all_told_the_same_lie_open_nothing() -> None:
    """On a ring the count that was wanted was believed: 79 noise shares where 80 were needed."""
    run = Run.of(100, SecureSum(members=tuple(f"client-{place:03}" for place in range(16))), lengths=(1,))
    run.go()
    told = run.requests[1]["client-000"]
    least = run.trust.sizes(100).least
    assert least == 80
    for fewer in (least - 1, 50, 12, 1, 0):
        message = {**told, "named": told["named"][:fewer]}
        for member in run.trust.members:
            with pytest.raises(ProtocolError, match=f"got a set of {fewer} clients, expected at least 80"):
                run.answer(1, member, message)


# --- sets that are apart, and combined --------------------------------------------------------------------------


def again(first: Run, seed: str, **options: Any) -> Run:
    """Another exchange among the same sites, which remember."""
    run = Run.of(len(first.values), options.pop("trust", first.trust), seed=seed, **options)
    run.values, run.stores = first.values, first.stores
    run.exchange = run._exchange()
    return run


def refusing(run: Run, values: Mapping[str, Any]) -> list[str]:
    """The members that refuse to answer for all who have spoken."""
    run.go(until=1)
    flow = run.trust.exchange(run.exchange, SimulatedRandomness(1))
    asked = next(flow)
    kept = {name: asked.take(name, dict(reply)) for name, reply in run.replies[0].items()}
    message = next(iter(flow.send(kept).requests.values()))
    found = []
    for member in dict.fromkeys(run.exchange.prekeys):
        try:
            run.trust.respond(run.request(1, member, message), lambda: pytest.fail("measured"), {}, None)
        except PolicyRefusal:
            found.append(member)
    return found


def test_three_groups_of_three_and_then_all_ten_leave_no_tenth() -> None:
    """The tenth site alone has the rule; the others have only their records, and the terms of the last exchange."""
    names = [f"client-{place:03}" for place in range(10)]
    run = Run.of(10, SecureSum())
    for place in range(0, 9, 3):
        group = again(run, f"group {place}", cohort=names[place : place + 3])
        group.exchange = replace(
            group.exchange,
            prekeys={n: p for n, p in group.exchange.prekeys.items() if n in group.exchange.cohort},
        )
        assert vectors(group.go()) == run.total(names[place : place + 3])
    last = again(run, "all ten", trust=SecureSum(same_set=True))
    assert refusing(last, run.values) == names[:9]
    unruled = again(run, "all ten without the rule")
    tenth = SitePolicy(same_set=True)
    with pytest.raises(PolicyRefusal, match="expected all over the same ones"):
        tenth.check(PolicyRequest(plan=unruled.exchange.plans[0], study="s", cohort=10))


def test_a_difference_counts_from_what_colluders_could_stand_in_for() -> None:
    """Twenty sites, two of which may collude, and the value 3: sets that differ by the victim and the two colluders."""
    rule = SitePolicy(smallest_cohort_difference=3)
    for difference in (0, 3, 4):
        plan = plan_of(SecureSum(cohort_difference=difference), 20)
        with pytest.raises(PolicyRefusal, match="expected none or at least 5: 2 colluders and 3 others"):
            rule.check(PolicyRequest(plan=plan, study="s", cohort=20))
    rule.check(PolicyRequest(plan=plan_of(SecureSum(cohort_difference=5), 20), study="s", cohort=20))
    first = Run.of(20, SecureSum(cohort_difference=5), silent={"client-018": 0, "client-019": 0})
    first.go()
    second = again(first, "without the victim", silent={"client-000": 0})
    assert refusing(second, first.values) == [f"client-{place:03}" for place in range(20)]


# --- false rows ---------------------------------------------------------------------------------------------------


def steering(run: Run, shift: int, rows: Sequence[int]) -> Any:
    """Corrections of one client that are a codeword from the honest ones, but for the rows that it does not own.

    The word's polynomial is `shift` at the entry's point and zero at the points of the first seven members.
    """
    packing = run.trust.sizes(10).packing
    known = tuple(packing._point(place) for place in range(7))
    word = []
    for place in range(10):
        value = shift
        for point in known:
            value = value * (packing._point(place) - point) * pow(1 - point, -1, PRIME) % PRIME
        word.append(value)
    assert not any(word[:7])

    def tamper(leg: int, name: str, reply: Any) -> Any:
        if (leg, name) != (0, "client-003"):
            return reply
        corrections = [[int(one) for one in row] for row in reply["corrections"]]
        for row, place in enumerate(range(packing.threshold, 10)):
            if place in rows:
                corrections[row] = [(one + word[place]) % PRIME for one in corrections[row]]
        return {**reply, "corrections": np.array(corrections, np.uint64)}

    return tamper


def test_a_client_cannot_steer_a_correction_or_have_a_member_named() -> None:
    """Two of three spare rows shifted onto another polynomial: a decoder would shift the total, and blame a member."""
    run = Run.of(10)
    run.tamper = steering(run, 3, (7, 8))
    with pytest.raises(ProtocolError, match="who it was cannot be told") as refused:
        run.go()
    assert not any(name in str(refused.value) for name in run.values)


def test_with_exactly_as_many_answers_as_are_needed_a_shift_is_not_noticed_and_that_is_said() -> None:
    run = Run.of(10, silent={"client-008": 1, "client-009": 1})
    run.tamper = steering(run, 3, (7,))
    released = run.go()
    assert vectors(released) == [[one + 3 for one in run.total(list(run.values))[0]]]
    assert released[0].opening is not None
    assert released[0].opening["statement"].endswith("none spare. False rows could not be noticed.")


@pytest.mark.parametrize("seed", range(5))
def test_random_rows_of_one_client_are_refused_without_a_name(seed: int) -> None:
    def junk(leg: int, name: str, reply: Any) -> Any:
        if (leg, name) != (0, "client-003"):
            return reply
        numbers = np.random.default_rng(seed).integers(0, 2**60, reply["corrections"].shape)
        return {**reply, "corrections": numbers.astype(np.uint64)}

    with pytest.raises(ProtocolError, match="cannot be told"):
        Run.of(10, tamper=junk).go()


# --- keys of small order, signed ------------------------------------------------------------------------------------


def test_a_signed_key_of_small_order_is_left_out_before_anybody_is_told() -> None:
    run = Run.of(7, signed=True)
    small = bytes(32)

    def tamper(leg: int, name: str, reply: Any) -> Any:
        if (leg, name) != (0, "client-002"):
            return reply
        terms: Terms = run.trust._terms(run.exchange)
        words = terms.spoken(name, small)
        own = run.credentials(name)
        assert own is not None
        return {**reply, "public": small, "signature": own.sign(SPOKEN, words)}

    run.tamper = tamper
    assert vectors(run.go()) == run.total([name for name in run.values if name != "client-002"])


def test_a_key_has_one_form_in_bytes() -> None:
    """X25519 ignores the highest bit: the same key in other bytes would pass for another one."""
    public = KeyPair.draw(Seeded("key")).public
    other = public[:31] + bytes([public[31] | 0x80])
    assert KeyPair.draw(Seeded("peer")).agree(public, salt=b"", info=b"") is not None
    assert is_usable(public)
    assert not is_usable(other)


# --- whatever is told in the first leg ------------------------------------------------------------------------------


def test_stories_of_the_first_leg_do_not_mix() -> None:
    """Each client is told other terms: what one has signed under them is worth nothing under any others."""
    run = Run.of(7, signed=True)
    run.go()
    told = run.requests[0]["client-000"]
    later = {**told, "deadline": told["deadline"] - 1}
    fresh = Run.of(7, signed=True)
    said = fresh.trust.respond(
        fresh.request(0, "client-001", later), lambda: fresh.values["client-001"], {}, SimulatedRandomness(2)
    )[0]
    named = [list(entry) for entry in run.requests[1]["client-002"]["named"]]
    named[1] = [1, said["public"], said["signature"]]
    for member in ("client-002", "client-003"):
        run.stores[member] = Run.of(7, signed=True).stores[member]
        with pytest.raises(ProtocolError, match="not signed by the key"):
            run.answer(1, member, {**run.requests[1][member], "named": named})


def test_every_pair_of_sets_for_two_members_is_answered_once_each() -> None:
    """A member answers the first set that it is told, and never another one, in whatever order they come."""
    base = Run.of(6)
    base.go()
    entries = base.requests[1]["client-000"]["named"]
    sets = [[*entries], *(list(some) for some in itertools.combinations(entries, 5))]
    for first, second in itertools.permutations(sets[:4], 2):
        run = Run.of(6)
        run.go(until=1)
        message = {key: base.requests[1]["client-000"][key] for key in ("cohort", "members", "deadline")}
        run.requests.append({})
        assert run.answer(1, "client-000", {**message, "named": first})
        with pytest.raises(ProtocolError, match="another set"):
            run.answer(1, "client-000", {**message, "named": second})


# --- legs out of order ----------------------------------------------------------------------------------------------


def test_a_site_that_was_asked_to_answer_first_measures_nothing_that_is_not_charged() -> None:
    """A member may begin with the second leg, which costs nothing. One that it refuses must not pay for the first."""
    rows = {f"h{place}": {"score": np.full(9, 0.5), "label": np.ones(9, np.int64)} for place in range(5)}
    liar = liar_among(rows, plan_of(DistributedDP(), 5), randomness=SimulatedRandomness(1, "order"))
    story = liar.begin()
    terms = replace(story.terms, exchange=bytes(16))
    client = liar.sites["h0"]
    assert isinstance(client, Client)
    charged = len(client.site.ledger.charges)
    assert charged == 1
    assert liar._ask("h0", 1, {**story.message, "named": []}, terms, "audit") is None
    assert liar._ask("h0", 0, story.message, terms, "audit") is None
    assert len(client.site.ledger.charges) == charged
