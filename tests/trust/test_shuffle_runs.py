"""Whole runs of `shuffle`: what comes out, what cannot be linked, who is counted, and what happens when all fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedassay.crypto.keys import KEY_BYTES, KeyPair
from fedassay.errors import FederationError, ProtocolError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.client import Client
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.helper import Helper
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Budget, Collect, Exchange, Request, Select, Setting, Sum, Vector
from fedassay.runtimes.in_process.runtime import Aggregate, Faithful
from fedassay.trust import TRUST_MODELS
from fedassay.trust.shuffle import model as shuffle_client
from fedassay.trust.shuffle import servers as shuffle_relay
from fedassay.trust.shuffle.model import Shuffle
from shuffle_driver import (
    ANALYST,
    HISTOGRAM,
    ONE_ROW,
    OPENED,
    READ,
    SERVERS,
    SHUFFLER,
    Losses,
    Town,
    one_row,
    plan_of,
)
from simulated_clients import open_site
from toys import CountsUpTo, InMemory, LargestValue, Once

N = 20
EXACT = Budget(epsilon=200.0, delta=1e-6)
"""Choices by this budget are the best candidate, but for a probability of e^-90."""
CHOICES = plan_of(Select(of=Losses(cells=N), share=0.5), budget=EXACT, clients=N)
"""Client i chooses candidate i: the release says whose reports were counted."""
COUNTS = plan_of(Sum(of=HISTOGRAM, share=0.5), budget=EXACT, clients=N)
PLANS = (CHOICES, COUNTS)
NAMES = [f"client{i:02}" for i in range(N)]


def losses(best: int) -> Vector:
    return 90 * (np.arange(N) != best)


VECTORS = {name: (losses(i), one_row(i % 8, i % 2)) for i, name in enumerate(NAMES)}


def town(**more: Any) -> Town:
    return Town(plans=PLANS, vectors=VECTORS, **more)


def counted(released: Any) -> list[str]:
    """Whose choices are in the release, in order of their names."""
    return sorted(NAMES[int(np.argmax(vector))] for vector in released.value)


def only(name: str, leg: int, change: Callable[[Any], Any]) -> Callable[[str, int, Any], Any]:
    """Change what one party says, or is told, in one leg."""
    return lambda who, when, message: change(message) if (who, when) == (name, leg) else message


# --- what comes out ---------------------------------------------------------------------------------------------


def test_every_client_is_counted_once_in_every_query() -> None:
    here = town()
    choices, counts = here.go()
    assert counted(choices) == NAMES
    assert choices.clients == counts.clients == N
    assert here.leg == 4
    assert {leg for name, leg in here.said if name in VECTORS} == {1}
    assert [leg for name, leg in here.said if name == SHUFFLER] == [0, OPENED]
    assert [leg for name, leg in here.said if name == ANALYST] == [0, READ]


def test_the_order_says_nothing_and_is_another_one_for_each_query() -> None:
    plans = tuple(plan_of(Select(of=Losses(cells=N), share=0.5), budget=EXACT, clients=N) for _ in range(2))
    vectors = {name: (losses(i), losses(i)) for i, name in enumerate(NAMES)}
    orders = [
        [int(np.argmax(vector)) for vector in released.value]
        for seed in (1, 2)
        for released in Town(plans=plans, vectors=vectors, seed=seed).go()
    ]
    assert all(sorted(order) == list(range(N)) for order in orders)
    assert len({tuple(order) for order in [*orders, list(range(N))]}) == 5


def test_nothing_that_the_server_sees_links_a_letter_to_a_client() -> None:
    """All envelopes have one length and all letters have; no letter, and no key of one, is to be seen before."""
    here = town()
    here.go()
    replies = [here.said[name, 1] for name in NAMES]
    assert len({len(wire.encode(reply)) for reply in replies}) == 1
    assert len({tuple(map(len, reply["sealed"])) for reply in replies}) == 1
    before = b"".join(wire.encode(reply) for reply in replies)
    letters = [row.tobytes() for bag in here.said[SHUFFLER, OPENED]["letters"] for row in bag]
    assert len({letter[:KEY_BYTES] for letter in letters}) == 2 * N
    for letter in letters:
        assert letter[:KEY_BYTES] not in before
        assert letter[KEY_BYTES:] not in before
        assert not any(name.encode() in letter for name in NAMES)
    assert set(here.said[SHUFFLER, OPENED]) == {"letters"}


def test_what_a_client_holds_does_not_show_in_what_it_sends() -> None:
    vectors = {
        **{name: (losses(3), np.zeros(HISTOGRAM.length, np.int64)) for name in NAMES},
        NAMES[1]: (losses(5), one_row(3, 1)),
        NAMES[2]: (losses(0), 1000 * one_row(3, 1)),
        NAMES[3]: (np.zeros(N, np.int64), one_row(0, 0) + one_row(5, 1)),
    }
    here = Town(plans=PLANS, vectors=vectors)
    here.go()
    assert len({len(wire.encode(here.said[name, 1])) for name in NAMES}) == 1


def test_letters_do_not_depend_on_the_name() -> None:
    """The same coins under other names: the letters that come out are the same, byte by byte."""

    def letters(names: list[str]) -> Counter[bytes]:
        here = Town(plans=PLANS, vectors=dict(zip(names, VECTORS.values(), strict=True)))
        here.sources = {name: SimulatedRandomness(7, str(i)) for i, name in enumerate(names)}
        here.go()
        return Counter(row.tobytes() for bag in here.said[SHUFFLER, OPENED]["letters"] for row in bag)

    assert letters(NAMES) == letters([f"somebody else {i:02}" for i in range(N)])


# --- who is counted ---------------------------------------------------------------------------------------------


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


SPOILS: dict[str, Callable[[Any], Any]] = {
    "lost": lambda reply: None,
    "other fields": lambda reply: {"reports": []},
    "another field": lambda reply: {**reply, "more": 1},
    "text": lambda reply: "text",
    "no key": lambda reply: {**reply, "public": bytes(32)},
    "short key": lambda reply: {**reply, "public": b"short"},
    "another key": lambda reply: {**reply, "public": KeyPair.draw(SimulatedRandomness(9)).public},
    "one envelope": lambda reply: {**reply, "sealed": reply["sealed"][:1]},
    "three envelopes": lambda reply: {**reply, "sealed": [*reply["sealed"], b""]},
    "no bytes": lambda reply: {**reply, "sealed": [1, 2]},
    "swapped": lambda reply: {**reply, "sealed": reply["sealed"][::-1]},
    "too long": lambda reply: {**reply, "sealed": [reply["sealed"][0] + b"\0", reply["sealed"][1]]},
    "too short": lambda reply: {**reply, "sealed": [reply["sealed"][0][:-1], reply["sealed"][1]]},
    "changed first": lambda reply: {**reply, "sealed": [flipped(reply["sealed"][0], 20), reply["sealed"][1]]},
    "changed second": lambda reply: {**reply, "sealed": [reply["sealed"][0], flipped(reply["sealed"][1], 0)]},
    "no signature": lambda reply: {**reply, "signature": None},
    "short signature": lambda reply: {**reply, "signature": b"short"},
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_client_that_sends_anything_else_is_left_out_of_all_queries(spoil: Callable[[Any], Any]) -> None:
    here = town(back=only(NAMES[4], 1, spoil))
    choices, counts = here.go()
    assert counted(choices) == [name for name in NAMES if name != NAMES[4]]
    assert choices.clients == counts.clients == N - 1


def test_a_letter_of_nonsense_has_said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sealed as it should be; only the analyst can see that it is no report."""
    honest = shuffle_client.drawn_text

    def nonsense(question: Any, vector: Vector, randomness: Any) -> bytes:
        text = honest(question, vector, randomness)
        return b"\xff" * len(text) if vector.sum() == 90 * (N - 1) and vector[4] == 0 else text

    monkeypatch.setattr(shuffle_client, "drawn_text", nonsense)
    choices, counts = town().go()
    assert counted(choices) == [name for name in NAMES if name != NAMES[4]]
    assert (choices.clients, counts.clients) == (N - 1, N)


def test_a_letter_that_does_not_open_has_said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client seals garbage of the right length inside a good envelope."""
    honest = shuffle_client.LetterRoute.letter

    def garbage(self: Any, text: bytes, randomness: Any) -> bytes:
        letter = honest(self, text, randomness)
        return bytes(len(letter)) if text == (4).to_bytes(8, "little") else letter

    monkeypatch.setattr(shuffle_client.LetterRoute, "letter", garbage)
    choices, counts = town().go()
    assert counted(choices) == [name for name in NAMES if name != NAMES[4]]
    assert (choices.clients, counts.clients) == (N - 1, N)


def relayed(change: Callable[[list[Any]], list[Any]]) -> Callable[[str, int, Any], Any]:
    """The relay hands other envelopes to the shuffler."""
    return only(SHUFFLER, OPENED, lambda message: {**message, "envelopes": change(message["envelopes"])})


def test_who_is_handed_in_twice_counts_once() -> None:
    choices, _ = town(to=relayed(lambda all_of_them: [*all_of_them, *all_of_them[:7]])).go()
    assert counted(choices) == NAMES


def test_one_clients_envelopes_under_another_name_do_not_open() -> None:
    def replayed(envelopes: list[Any]) -> list[Any]:
        return [{**envelopes[0], "client": NAMES[1]}, envelopes[0], *envelopes[2:]]

    choices, _ = town(to=relayed(replayed)).go()
    assert counted(choices) == [name for name in NAMES if name != NAMES[1]]


def test_envelopes_of_another_exchange_do_not_open() -> None:
    other = town(seed=2)
    other.go()

    def old(envelopes: list[Any]) -> list[Any]:
        return [{"client": NAMES[0], **other.said[NAMES[0], 1]}, *envelopes[1:]]

    assert NAMES[0] not in counted(town(to=relayed(old)).go()[0])


def test_among_too_few_nobody_is_shown() -> None:
    """Two of 20 may fall silent; of a third the relay would not even tell the shuffler, which counts for itself."""
    two, three = NAMES[:2], NAMES[:3]
    here = town(back=lambda name, leg, reply: None if name in two else reply)
    assert here.go()[0].clients == 18
    here = town(back=lambda name, leg, reply: None if name in three else reply)
    with pytest.raises(
        TooFewClients, match="17 of 20 clients sent envelopes that open, expected at least 18"
    ):
        here.go()
    assert here.leg == 2
    here = town(to=relayed(lambda envelopes: envelopes[3:]))
    with pytest.raises(TooFewClients, match="17 of 20"):
        here.go()
    assert here.said[SHUFFLER, OPENED] == {"too_few": 17}
    assert here.helpers[SHUFFLER].store.conversations[here.id].state == {"step": "over"}


def test_the_shuffler_shuffles_no_more_clients_than_were_asked() -> None:
    here = town()
    here.vectors = {**VECTORS, "one more": VECTORS[NAMES[0]]}
    here.sources["one more"] = SimulatedRandomness(5)
    asked = here.ask

    def fewer(to: Any, name: str, message: Any) -> Any:
        """Servers are told of 20 clients."""
        if name not in SERVERS:
            return asked(to, name, message)
        vectors, here.vectors = here.vectors, VECTORS
        try:
            return asked(to, name, message)
        finally:
            here.vectors = vectors

    here.ask = fewer  # type: ignore[method-assign]
    with pytest.raises(FederationError, match="helper did not answer"):
        here.go()
    assert "got envelopes of 21 clients, expected at most 20" in str(here.helpers[SHUFFLER].reason)


@pytest.mark.parametrize("who", [SHUFFLER, NAMES[0]])
@pytest.mark.parametrize(
    "other",
    [
        {"clients": 19},
        {"budget": Budget(epsilon=1.0, delta=1e-6)},
        {"trust": Shuffle(collusion=0.3)},
        {"trust": Shuffle(dropout=0.3)},
    ],
    ids=["clients", "budget", "collusion", "dropout"],
)
def test_who_was_told_another_question_cannot_open_or_be_opened(who: str, other: dict[str, Any]) -> None:
    """A client that believes in a million others, and a shuffler that counts to ten, have nothing in common."""
    terms = {"budget": EXACT, "clients": N, **other}
    told = (
        plan_of(Select(of=Losses(cells=N), share=0.5), **terms),
        plan_of(Sum(of=HISTOGRAM, share=0.5), **terms),
    )
    here = town(told={who: told})
    respond = Shuffle.respond
    here_trust = {name: plans[0].setting.trust for name, plans in here.told.items()}

    def as_told(self: Shuffle, request: Request, measure: Any, state: Any, randomness: Any) -> Any:
        return respond(here_trust.get(request.recipient, self), request, measure, state, randomness)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Shuffle, "respond", as_told)
        if who == SHUFFLER:
            with pytest.raises(TooFewClients, match="0 of 20"):
                here.go()
        else:
            assert counted(here.go()[0]) == NAMES[1:]


# --- what fails -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "leg"), [(ANALYST, 0), (SHUFFLER, 0), (SHUFFLER, OPENED), (ANALYST, READ)]
)
def test_without_a_server_there_is_no_release(server: str, leg: int) -> None:
    here = town(back=only(server, leg, lambda reply: None))
    with pytest.raises(FederationError, match=f"{server} did not answer, or refused"):
        here.go()
    assert here.leg == leg + 1


BAG = np.zeros((3, 68), np.uint8)


@pytest.mark.parametrize(
    ("server", "leg", "reply"),
    [
        (SHUFFLER, 0, {"public": bytes(32), "signature": b""}),
        (SHUFFLER, OPENED, {}),
        (SHUFFLER, OPENED, {"letters": []}),
        (SHUFFLER, OPENED, {"letters": [BAG, BAG]}),
        (SHUFFLER, OPENED, {"letters": [BAG[:, :5], BAG]}),
        (SHUFFLER, OPENED, {"letters": [BAG.astype(np.int64), BAG]}),
        (SHUFFLER, OPENED, {"too_few": "none"}),
        (SHUFFLER, OPENED, {"too_few": 19}),
        (ANALYST, READ, {"texts": None}),
        (ANALYST, READ, {"texts": [BAG, BAG]}),
    ],
)
def test_a_server_that_says_anything_else_ends_the_exchange(server: str, leg: int, reply: Any) -> None:
    with pytest.raises(ProtocolError, match="shuffle"):
        town(back=only(server, leg, lambda _: reply)).go()


TOLD: list[tuple[str, int, Any]] = [
    (SHUFFLER, 0, {"servers": ["helper", "helper"]}),
    (SHUFFLER, 0, {"servers": ["a", "b"]}),
    (SHUFFLER, OPENED, {"envelopes": None}),
    (SHUFFLER, OPENED, {"envelopes": [{}]}),
    (SHUFFLER, OPENED, {"envelopes": [7]}),
    (SHUFFLER, OPENED, {"last": 1}),
    (SHUFFLER, OPENED, {"keys": []}),
    (SHUFFLER, OPENED, {"servers": ["helper", "coordinator"]}),
    (SHUFFLER, OPENED, {"more": 1}),
    (ANALYST, READ, {"letters": [b"", b""]}),
    (ANALYST, READ, {"letters": [np.zeros((2, 3, 4), np.uint8).reshape(6, 4), BAG]}),
    (ANALYST, READ, {"last": None}),
    (ANALYST, READ, {"signatures": [b"", b"x"]}),
]


@pytest.mark.parametrize(("server", "leg", "changes"), TOLD)
def test_a_server_is_told_nonsense_and_says_nothing(server: str, leg: int, changes: Any) -> None:
    here = town(to=only(server, leg, lambda message: {**message, **changes}))
    with pytest.raises(FederationError, match="did not answer"):
        here.go()
    assert isinstance(here.helpers[server].reason, ProtocolError)


def test_a_message_is_shuffled_once() -> None:
    """The same question gets the same bytes again; another one, none: two orders of one bag would be two releases."""
    here = town()
    here.go()
    for server, leg in ((SHUFFLER, OPENED), (ANALYST, READ)):
        data = here.asked[server, leg]
        again = {here.helpers[server].answer(data) for _ in range(3)}
        assert len(again) == 1
        outer = wire.decode(data)
        fewer = wire.encode({**outer, "message": {**outer["message"], "last": False}})
        refused = envelope.pack_refusal(sender=server, code=Refusal.CHANGED)
        assert here.unsealed(server, fewer) == refused
        later = wire.encode({**outer, "leg": 9})
        assert here.unsealed(server, later) == envelope.pack_refusal(sender=server, code=Refusal.MALFORMED)
        assert "over" in str(here.helpers[server].reason)


@pytest.mark.parametrize(("server", "leg"), [(SHUFFLER, OPENED), (ANALYST, READ)])
def test_a_server_may_restart_between_any_two_messages(server: str, leg: int) -> None:
    here = town()

    def restart(name: str, now: int, message: Any) -> Any:
        if (name, now) == (server, leg):
            here.restart(server, seed=leg)
        return message

    here.to = restart
    assert counted(here.go()[0]) == NAMES


def test_many_envelopes_go_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle_relay, "LARGEST_LEG", 500)
    here = town()
    choices, counts = here.go()
    assert counted(choices) == NAMES
    assert counts.clients == N
    assert here.leg > 10
    assert sum("letters" in message for (name, _), message in here.said.items() if name == SHUFFLER) == 1


def test_more_than_the_servers_can_hold_is_refused_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    each = sum(len(one) for one in _reply()["sealed"])
    for limit, clients, name in ((each, N, "LARGEST_LEG"), (each * N, N, "LARGEST_BAGS")):
        with monkeypatch.context() as patched:
            patched.setattr(shuffle_relay, name, limit)
            town().go()
            patched.setattr(shuffle_relay, name, limit - 1)
            here = town()
            with pytest.raises(UnsupportedQuery, match=f"{clients} clients would send {each} bytes each"):
                here.go()
            assert not here.said


def _reply() -> Any:
    here = town()
    here.go()
    return here.said[NAMES[0], 1]


def test_no_honest_reply_is_too_large() -> None:
    here = town()
    here.go()
    largest = Shuffle().largest_reply(Exchange(id=here.id, plans=PLANS, cohort=tuple(NAMES)))
    sizes = [len(wire.encode(message)) for message in here.said.values()]
    assert max(sizes) < largest < 2 * max(sizes) + 100_000


def test_two_servers_are_needed() -> None:
    for helpers in ((), ("a",), ("a", "a"), ("a", "b", "c")):
        exchange = Exchange(id=bytes(16), plans=PLANS, cohort=("x",), helpers=helpers)
        with pytest.raises(UsageError, match=r"got \d servers, expected two"):
            next(Shuffle().exchange(exchange, SimulatedRandomness(1)))


# --- with clients and servers as they are -----------------------------------------------------------------------

SUMMARIES = {kind.name: kind for kind in (CountsUpTo, LargestValue)}
ROWS = {f"site{i}": (i % 5,) for i in range(11)} | {"idle": ()}


def federation(budget: Budget | None = None) -> tuple[Faithful, dict[str, MemoryLedger]]:
    source, ledgers = SimulatedRandomness(3), {name: MemoryLedger(budget) for name in ROWS}

    def client(name: str) -> Client:
        site = open_site(name, lambda: InMemory(ROWS[name]), source.child(name), ledger=ledgers[name])
        return Client(site, summaries=SUMMARIES)

    helpers = [Helper(name, randomness=source.child(name), summaries=SUMMARIES) for name in SERVERS]
    return Faithful([client(name) for name in ROWS], helpers=helpers), ledgers


def job(query: Any, budget: Budget) -> Job:
    setting = Setting(trust=Shuffle(), protection=ONE_ROW, budget=budget, clients=len(ROWS))
    return Job(name="job", task=Once(query=query), setting=setting)


def test_a_run_in_process() -> None:
    budget = Budget(epsilon=60.0, delta=1e-6)
    runtime, ledgers = federation(budget)
    found = run(
        [job(Sum(of=CountsUpTo(top=4)), budget)],
        runtime=runtime,
        ledger=MemoryLedger(budget),
        randomness=SimulatedRandomness(1),
        study="s",
    )["job"]
    assert found.value.tolist() == [3, 2, 2, 2, 2]
    assert found.clients == 12
    assert runtime.traffic.rounds == 4
    for name, ledger in ledgers.items():
        (charge,) = ledger.charges
        assert charge.shuffled is not None
        assert ledger.spent(name, budget.delta) <= budget.epsilon


def test_single_answers_in_process() -> None:
    """The one without rows has no largest, and is lost; one of twelve may be."""
    budget = Budget(epsilon=1.0)
    found = run(
        [job(Collect(of=LargestValue()), budget)],
        runtime=federation()[0],
        ledger=MemoryLedger(budget),
        randomness=SimulatedRandomness(1),
        study="s",
    )["job"]
    assert len(found.value) == found.clients == 11


def test_a_ledger_of_a_site_refuses_what_all_messages_cost_together() -> None:
    runtime, ledgers = federation(Budget(epsilon=0.9, delta=1e-6))
    with pytest.raises(TooFewClients, match="0 of 12"):
        run(
            [job(Sum(of=CountsUpTo(top=4)), Budget(epsilon=1.0, delta=1e-6))],
            runtime=runtime,
            ledger=MemoryLedger(None),
            randomness=SimulatedRandomness(1),
            study="s",
        )
    assert not any(ledger.charges for ledger in ledgers.values())


def test_the_aggregate_mode_has_servers_for_it() -> None:
    assert len(Aggregate.helpers) == TRUST_MODELS["shuffle"].helpers_needed
