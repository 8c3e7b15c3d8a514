"""A server that cheats, alone or with colluding clients; the attacks work on a weakened protocol."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedassay.crypto.keys import KeyPair, Secret
from fedassay.crypto.masks import add_masks
from fedassay.crypto.shamir import combine
from fedassay.errors import ProtocolError
from fedassay.protocol import Budget, Message, Part, Protection, Sum
from fedassay.trust import secure_sum_protocol
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.secure_sum_graph import Parameters, parameters, tolerated
from fedassay.trust.secure_sum_keys import adds, pair_mask, question, seal_shares, self_mask, unseal_shares
from secure_sum_driver import Anything, Run, Seeded, plans_of

VICTIM = "client-000"


def before_leg_3(n: int, trust: SecureSum | None = None) -> Run:
    """A run whose first three legs are over: the server holds all masked vectors."""
    run = Run.of(n, trust)
    run.go()
    return run


def places(run: Run) -> dict[str, int]:
    """The x of the share that each neighbour of the victim holds."""
    return {name: x for x, name in enumerate(sorted(run.requests[1][VICTIM]["seal_keys"]), start=1)}


def told_silent(run: Run, client: str, silent: set[str]) -> Message:
    survivors = [name for name in run.requests[3][client]["survivors"] if name not in silent]
    return {"survivors": survivors, "count": len(survivors) + 1}


def unpaired(run: Run, key: KeyPair) -> np.ndarray[Any, Any]:
    """The victim's masked vector without the masks it shares with others, from its mask key."""
    session = run.states[1][VICTIM]["session"]
    plus, minus = [], []
    for j in places(run):
        mask = pair_mask(session, key, VICTIM, j, run.replies[0][j]["mask_key"])
        (minus if adds(VICTIM, j) else plus).append(mask)
    return add_masks(run.replies[2][VICTIM]["masked"], plus=plus, minus=minus)


# --- different survivors for different clients ------------------------------------------------------------


def split_view(run: Run, colluders: int, alive_to: int) -> tuple[dict[int, Secret], dict[int, Secret]]:
    """Shares of the victim's seed and key, if `alive_to` honest neighbours are told that the victim lives.

    The colluding neighbours hand over both shares that they hold.
    """
    seeds: dict[int, Secret] = {}
    keys: dict[int, Secret] = {}
    for rank, (holder, x) in enumerate(places(run).items()):
        state = run.states[3][holder]
        if rank < colluders:
            seeds[x] = Secret(state["seed_shares"][VICTIM])
            keys[x] = Secret(state["key_shares"][VICTIM])
            continue
        silent = set() if rank < colluders + alive_to else {VICTIM}
        revealed = run.answer(3, holder, told_silent(run, holder, silent))
        assert not revealed["seed_shares"].keys() & revealed["key_shares"].keys()
        seeds |= {x: Secret(revealed["seed_shares"][VICTIM])} if VICTIM in revealed["seed_shares"] else {}
        keys |= {x: Secret(revealed["key_shares"][VICTIM])} if VICTIM in revealed["key_shares"] else {}
    return seeds, keys


@pytest.mark.parametrize(("n", "collusion"), [(4, 0.1), (5, 0.1), (7, 0.1), (10, 0.1), (9, 0.3), (12, 0.25)])
def test_no_split_view_opens_both_secrets_of_a_client(n: int, collusion: float):
    trust = SecureSum(dropout=0.1, collusion=collusion)
    run, t, c = before_leg_3(n, trust), parameters(n, 0.1, collusion).threshold, tolerated(n, collusion)
    opened = set()
    for alive_to in range(n - c):
        seeds, keys = split_view(run, c, alive_to)
        assert len(seeds) + len(keys) == n - 1 + c
        assert min(len(seeds), len(keys)) < t
        opened |= {"seed"} if len(seeds) >= t else set()
        opened |= {"key"} if len(keys) >= t else set()
    assert opened == {"seed", "key"}  # each of them can be had: the split is what fails


def test_with_a_threshold_lower_by_one_the_split_view_reads_the_victims_vector(
    monkeypatch: pytest.MonkeyPatch,
):
    n, c = 5, 0

    def lower(clients: int, dropout: float, collusion: float) -> Parameters:
        found = parameters(clients, dropout, collusion)
        return found._replace(threshold=(found.neighbours + c) // 2)

    monkeypatch.setattr(secure_sum_protocol, "parameters", lower)
    run = before_leg_3(n)
    t = lower(n, 0.2, 0.1).threshold
    seeds, keys = split_view(run, c, 2)
    assert min(len(seeds), len(keys)) >= t
    seed = combine(dict(itertools.islice(seeds.items(), t)))
    key = combine(dict(itertools.islice(keys.items(), t)))
    assert seed is not None
    assert key is not None
    own_mask = self_mask(run.states[1][VICTIM]["session"], seed, VICTIM)
    read = add_masks(unpaired(run, KeyPair.of(key)), minus=[own_mask])
    np.testing.assert_array_equal(read.view(np.int64), run.values[VICTIM][0])


def fewest_learned(n: int, t: int) -> int:
    """The fewest clients whose total a split view opens in a complete graph, by trying all views."""
    names = range(n)
    views = [
        [set(gone) for size in range(n - t) for gone in itertools.combinations(set(names) - {i}, size)]
        for i in names
    ]
    fewest = n
    for told in itertools.product(*views):
        keys = {j for j in names if sum(j in told[i] for i in names if i != j) >= t}
        seeds = {j for j in names if sum(j not in told[i] for i in names if i != j) >= t}
        assert not keys & seeds
        if seeds and keys | seeds == set(names):  # else a mask with a client that stays closed hides the rest
            fewest = min(fewest, len(seeds))
    return fewest


@pytest.mark.parametrize(("n", "fewest"), [(3, 3), (4, 2), (5, 4)])
def test_how_much_a_split_view_can_learn_is_what_the_documentation_says(n: int, fewest: int):
    """With k - t neighbours that may be called silent, at most n (k - t) / t keys are opened."""
    k, t, _, _ = parameters(n, 0.2, 0.1)
    assert fewest_learned(n, t) == fewest >= n - n * (k - t) // t


# --- a vector that arrives late ---------------------------------------------------------------------------


def late_vector() -> tuple[Run, np.ndarray[Any, Any]]:
    """The server has the victim's masked vector but tells everybody that it is silent, and opens its key."""
    run = before_leg_3(7)
    t = run.states[1][VICTIM]["threshold"]
    shares = {}
    for holder, x in places(run).items():
        revealed = run.answer(3, holder, told_silent(run, holder, {VICTIM}))
        assert VICTIM not in revealed["seed_shares"]
        shares[x] = Secret(revealed["key_shares"][VICTIM])
    key = combine(dict(itertools.islice(shares.items(), t)))
    assert key is not None
    assert KeyPair.of(key).public == run.replies[0][VICTIM]["mask_key"]
    return run, unpaired(run, KeyPair.of(key))


def test_a_late_vector_stays_hidden_behind_its_self_mask():
    run, read = late_vector()
    assert not set(read.view(np.int64).tolist()) & set(run.values[VICTIM][0].tolist())


def test_without_the_self_mask_a_late_vector_can_be_read(monkeypatch: pytest.MonkeyPatch):
    real = secure_sum_protocol.add_masks
    monkeypatch.setattr(  # the self mask is the first that a client adds
        secure_sum_protocol,
        "add_masks",
        lambda vector, *, plus, minus: real(vector, plus=plus[1:], minus=minus),
    )
    run, read = late_vector()
    np.testing.assert_array_equal(read.view(np.int64), run.values[VICTIM][0])


# --- different questions to different clients -------------------------------------------------------------


def variants() -> dict[str, Any]:
    """Questions that differ from the ordinary one in one respect."""
    trust = SecureSum()
    [plan] = plans_of(trust, 4)
    asked = plan.query
    return {
        "another field": replace(plan, query=Sum(of=Anything(bound=7))),
        "another part": replace(plan, query=Sum(of=asked.of, part=Part.HELD_OUT)),
        "another share": replace(plan, query=Sum(of=asked.of, share=0.5)),
        "other rows": replace(plan, setting=replace(plan.setting, protection=Protection(rows_per_client=5))),
        "a budget": replace(plan, setting=replace(plan.setting, budget=Budget(epsilon=1.0))),
    }


@pytest.mark.parametrize("variant", variants())
def test_a_client_that_is_asked_something_else_refuses_or_shares_no_mask(variant: str):
    """Told the digest of the others' question it refuses; told its own, it is in a session of its own."""
    run = Run.of(4)
    run.go()
    other = replace(run.request(0, VICTIM), plans=(variants()[variant],))
    with pytest.raises(ProtocolError, match="not the one that was asked"):
        run.trust.respond(other, tuple, {}, Seeded())
    told = {**run.requests[0][VICTIM], "question": question(other.plans)}
    _, state = run.trust.respond(replace(other, message=told), tuple, {}, Seeded())
    assert state["session"] != run.states[1]["client-001"]["session"]


def test_questions_are_the_same_before_and_after_they_travelled():
    [plan] = plans_of(SecureSum(), 4)
    travelled = replace(plan, query=Sum(of=Anything(), share=1), setting=replace(plan.setting, clients=4))
    assert question([plan]) == question([travelled])
    assert question([plan]) != question([plan, plan])


def test_clients_that_are_told_different_numbers_share_no_session():
    sessions = set()
    for n in (4, 5, 6):
        run = Run.of(n)
        run.go(until=2)
        sessions.add(run.states[1][VICTIM]["session"])
    assert len(sessions) == 3


# --- messages that no honest server sends -----------------------------------------------------------------


@pytest.fixture(scope="module")
def seven() -> Run:
    run = Run.of(7, silent={"client-006": 2})
    run.go()
    return run


@pytest.mark.parametrize("leg", range(4))
@pytest.mark.parametrize("state_of", range(5))
def test_legs_are_answered_in_order_and_once(seven: Run, leg: int, state_of: int):
    if state_of == 4:
        _, state = seven.trust.respond(
            seven.request(3, VICTIM), lambda: seven.values[VICTIM], seven.states[3][VICTIM], Seeded()
        )
    else:
        state = seven.states[state_of][VICTIM]
    if leg == state_of:
        seven.trust.respond(seven.request(leg, VICTIM), lambda: seven.values[VICTIM], state, Seeded())
    else:
        with pytest.raises(ProtocolError, match=f"got leg {leg}, expected leg {state_of}"):
            seven.trust.respond(seven.request(leg, VICTIM), tuple, state, Seeded())


@pytest.mark.parametrize("leg", [1, 2, 3])
def test_a_state_serves_its_own_exchange_only(seven: Run, leg: int):
    request = replace(seven.request(leg, VICTIM), exchange=b"another exchange")
    with pytest.raises(ProtocolError, match="same exchange"):
        seven.trust.respond(request, tuple, seven.states[leg][VICTIM], Seeded())


HOSTILE: list[Any] = [
    None,
    -1,
    2**200,
    1.5,
    float("nan"),
    "x",
    b"x",
    [],
    [None],
    ["client-001", 7],
    {},
    {"client-001": b"short"},
    {"client-001": "x" * 32},
    {5: bytes(32)},
    np.zeros(3),
    np.array([7, 7]),
]


def test_a_server_cannot_arrange_a_large_cohort_in_small_groups():
    """Each client finds its neighbours in the ring by itself; a group that tells true numbers is refused."""
    run = Run.of(80)
    run.go()
    k, t = run.requests[0]["client-000"]["neighbours"], run.requests[0]["client-000"]["threshold"]
    assert k < 79
    group = sorted(run.values)[: t + 1]
    keys = {name: run.replies[0][name] for name in group}
    near = [name for name in group if name != group[0]]
    message = {
        "seal_keys": {name: keys[name]["seal_key"] for name in near},
        "mask_keys": {name: keys[name]["mask_key"] for name in near},
        "signatures": {name: keys[name]["signature"] for name in near},
    }
    with pytest.raises(ProtocolError, match="not neighbours"):
        run.trust.respond(run.request(1, group[0], message), lambda: (), run.states[1][group[0]], Seeded())


@pytest.mark.parametrize("names", [[], ["client-000"], ["client-001"] * 80, None, list(range(80))])
def test_the_names_of_a_large_cohort_are_complete(names: Any):
    run = Run.of(80)
    run.go()
    message = {**run.requests[0]["client-000"], "names": names}
    with pytest.raises(ProtocolError, match="secure sum"):
        run.trust.respond(run.request(0, "client-000", message), lambda: (), {}, Seeded())


def test_clients_who_are_told_of_different_cohorts_share_no_keys():
    run = Run.of(80)
    run.go()
    others = [*run.requests[0]["client-000"]["names"][:-1], "stranger"]
    message = {**run.requests[0]["client-000"], "names": others}
    _, state = run.trust.respond(run.request(0, "client-000", message), lambda: (), {}, Seeded())
    assert state["session"] != run.states[1]["client-000"]["session"]


@pytest.mark.parametrize("leg", range(4))
def test_a_hostile_request_gets_no_answer_and_no_measurement(seven: Run, leg: int):
    message = seven.requests[leg][VICTIM]
    changed: list[Any] = [{}, {**message, "more": 1}, {"x": 1}]
    for field, value in message.items():
        changed += [{**message, field: junk} for junk in HOSTILE if repr(junk) != repr(value)]
        changed.append({name: other for name, other in message.items() if name != field})
        if isinstance(value, dict):
            first = min(value)
            changed += [
                {**message, field: {**value, first: value[first] + b"x"}},
                {**message, field: {**value, "nobody": value[first]}},
                {**message, field: {**value, VICTIM: value[first]}},
            ]
    for hostile in changed:
        with pytest.raises(ProtocolError):
            seven.trust.respond(
                seven.request(leg, VICTIM, hostile),
                lambda: pytest.fail("measured for a hostile request"),
                copy.deepcopy(seven.states[leg][VICTIM]),
                Seeded(),
            )


@pytest.mark.parametrize("told", [{"clients": 2}, {"neighbours": 5}, {"threshold": 3}, {"clients": 8}])
def test_a_client_works_out_the_numbers_itself(seven: Run, told: dict[str, int]):
    assert parameters(7, 0.2, 0.1)[:2] == (6, 4)
    with pytest.raises(ProtocolError, match="expected"):
        seven.answer(0, VICTIM, {**seven.requests[0][VICTIM], **told})


def test_numbers_that_cannot_be_are_a_protocol_error_too():
    trust = SecureSum(dropout=0.35, collusion=0.0)
    run = Run.of(7, trust)
    run.go(until=1)
    with pytest.raises(ProtocolError, match="3 clients"):
        run.answer(0, VICTIM, {**run.requests[0][VICTIM], "clients": 3, "neighbours": 2})


@pytest.mark.parametrize("keys", ["seal_keys", "mask_keys"])
def test_a_small_order_key_is_not_used(seven: Run, keys: str):
    """The server could compute whatever is agreed with such a key."""
    told = copy.deepcopy(seven.requests[1][VICTIM])
    told[keys]["client-001"] = bytes(32)
    state = copy.deepcopy(seven.states[1][VICTIM])

    def both_legs() -> None:
        _, later = seven.trust.respond(seven.request(1, VICTIM, told), tuple, state, Seeded())
        seven.trust.respond(seven.request(2, VICTIM), lambda: pytest.fail("measured"), later, Seeded())

    with pytest.raises(ProtocolError, match="X25519"):
        both_legs()


def test_neither_too_few_nor_too_many_neighbours_are_dealt_to(seven: Run):
    told = seven.requests[1][VICTIM]
    fewer = {field: dict(sorted(keys.items())[:3]) for field, keys in told.items()}
    more = {field: {**keys, "nobody": keys["client-001"]} for field, keys in told.items()}
    for wrong in (fewer, more):
        with pytest.raises(
            ProtocolError, match=f"{len(wrong['seal_keys'])} neighbours, expected those of 4 to 6"
        ):
            seven.answer(1, VICTIM, wrong)


def test_too_few_dealers_get_no_masked_vector(seven: Run):
    sealed = dict(sorted(seven.requests[2][VICTIM]["sealed"].items())[:3])
    with pytest.raises(ProtocolError, match="shares of 3 neighbours, expected of at least 4"):
        seven.answer(2, VICTIM, {"sealed": sealed})


def test_sealed_shares_open_on_their_own_route_and_in_their_own_session_only():
    key, shares = Secret(bytes(32)), (Secret(b"a" * 33), Secret(b"b" * 33))
    sealed = seal_shares(key, shares, session=b"s", route=("a", "b"), source=Seeded())
    assert unseal_shares(key, sealed, session=b"s", route=("a", "b")) == shares
    assert unseal_shares(key, sealed, session=b"s", route=("b", "a")) is None
    assert unseal_shares(key, sealed, session=b"t", route=("a", "b")) is None


@pytest.mark.parametrize(
    ("survivors", "count"),
    [
        ([1, 2, 3], 4),  # fewer neighbours than the threshold
        ([1, 2, 3, 4], 4),  # a count that forgets the client itself
        ([1, 2, 3, 4], 6),  # a count beyond what a complete graph shows
        ([1, 2, 3, 4, 4], 6),  # one neighbour twice
        ([0, 1, 2, 3, 4], 6),  # the client itself
        ([1, 2, 3, 4, 9], 6),  # somebody else
        ([1, 2, 3, 4], True),
    ],
)
def test_only_plausible_survivors_are_believed(seven: Run, survivors: list[int], count: int):
    told = {"survivors": [f"client-{i:03}" for i in survivors], "count": count}
    with pytest.raises(ProtocolError, match="expected"):
        seven.answer(3, VICTIM, told)


def test_a_client_enforces_the_smallest_cohort_itself():
    run = Run.of(7, SecureSum(minimum_cohort=6))
    run.go()
    told = {"survivors": [f"client-{i:03}" for i in (1, 2, 3, 4)], "count": 5}
    with pytest.raises(ProtocolError, match="expected 6"):
        run.answer(3, VICTIM, told)


def test_what_a_client_reveals_about_one_neighbour_is_one_share(seven: Run):
    for names in itertools.combinations(seven.states[3][VICTIM]["partners"], 4):
        revealed = seven.answer(3, VICTIM, {"survivors": list(names), "count": 5})
        assert set(revealed["seed_shares"]) == set(names)
        assert set(revealed["key_shares"]) == set(seven.states[3][VICTIM]["partners"]) - set(names)
