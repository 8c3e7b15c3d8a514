"""The relay of `shuffle`: hands envelopes to the shuffler, letters to the analyst, and adds up what the letters say.

It holds no key. Before the shuffler has answered it knows who sent what, and cannot read it; after that it can read
all, and does not know who sent what.

======  ===========  =============================================================================================
leg     asked        for
======  ===========  =============================================================================================
0       servers      a public key each
1       clients      a report on each query, sealed for the analyst and then for the shuffler; their only leg
2 ..    shuffler     (envelopes, in as many legs as needed) the letters in them, for each query in an order of its own
then    analyst      (letters, in as many legs as needed) what they say
======  ===========  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from fedassay.errors import FederationError, TooFewClients, UnsupportedQuery, UsageError
from fedassay.protocol import Exchange, Message, Party, Released, Replies, Round
from fedassay.trust import shuffle_messages as messages
from fedassay.trust.local_reports import Question
from fedassay.trust.shuffle_helper import envelope_bytes, letter_bytes
from fedassay.trust.shuffle_messages import Bag, Envelopes
from fedassay.trust.shuffle_texts import from_text, text_bytes

LARGEST_LEG = 1 << 25
"""Bytes of envelopes or letters in one request: half of what fits into it."""

LARGEST_BAGS = 1 << 27
"""Bytes of envelopes of one exchange: what the shuffler holds of them, and what it answers, is one message."""

MOST_ENVELOPES = 1 << 14
"""Clients in one request: each is a mapping with a list, of which a message may have only so many."""


def relay(exchange: Exchange, *, fewest: int) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
    """Ask servers and clients in turn, and read what comes out."""
    analyst, shuffler = _servers(exchange)
    questions = [Question.of(plan) for plan in exchange.plans]
    _check_size(exchange, envelope_bytes(questions))
    introduction = yield from _introduce(analyst, shuffler)
    answers = yield Round(requests={name: dict(introduction) for name in exchange.cohort})
    found = {}
    for name in sorted(exchange.cohort):
        envelopes = messages.read_envelopes(answers.get(name), lengths=envelope_bytes(questions))
        if envelopes is not None:
            found[name] = envelopes
    _check_enough(len(found), len(exchange.cohort), fewest)
    reply: Any = None
    for message in _envelope_legs(found):
        reply = yield from _ask(shuffler, {**introduction, **message})
    opened = messages.read_refusal(reply)
    if opened is not None:
        _check_enough(opened, len(exchange.cohort), fewest)
    lengths = letter_bytes(questions)
    bags = messages.read_letters(reply, lengths=lengths, server=shuffler)
    texts: list[list[bytes]] = [[] for _ in questions]
    for message in _letter_legs(bags, lengths):
        reply = yield from _ask(analyst, {**introduction, **message})
        read = messages.read_texts(reply, lengths=list(map(text_bytes, questions)), server=analyst)
        for some, bag in zip(texts, read, strict=True):
            some += messages.from_bag(bag)
    return tuple(
        _released(question, some, len(exchange.cohort))
        for question, some in zip(questions, texts, strict=True)
    )


def _servers(exchange: Exchange) -> tuple[str, str]:
    if len(exchange.helpers) != 2 or exchange.helpers[0] == exchange.helpers[1]:
        raise UsageError(
            f"shuffle: got {len(set(exchange.helpers))} servers, expected two; name the second one."
        )
    return exchange.helpers[0], exchange.helpers[1]


def _check_size(exchange: Exchange, lengths: Sequence[int]) -> None:
    each, clients = sum(lengths), len(exchange.cohort)
    if each > LARGEST_LEG or each * clients > LARGEST_BAGS:
        raise UnsupportedQuery(
            f"shuffle: {clients:,} clients would send {each:,} bytes each, expected at most {LARGEST_LEG:,} each and "
            f"{LARGEST_BAGS:,} in all; give fewer points, fewer clients, or use local-dp."
        )


def _check_enough(clients: int, asked: int, fewest: int) -> None:
    if clients < fewest:
        raise TooFewClients(
            f"release: {clients:,} of {asked:,} clients sent envelopes that open, expected at least {fewest:,}: among "
            "fewer a message would not be hidden as promised."
        )


def _introduce(analyst: str, shuffler: str) -> Generator[Round, Replies, Message]:
    """Leg 0: both servers' keys."""
    servers = [analyst, shuffler]
    replies = yield Round(to=Party.HELPER, requests={name: {"servers": servers} for name in servers})
    read = [messages.WORDS.read_key(_reply(replies, name), server=name) for name in servers]
    return {
        "servers": servers,
        "keys": [public for public, _ in read],
        "signatures": [signature for _, signature in read],
    }


def _envelope_legs(found: Mapping[str, Envelopes]) -> Iterator[Message]:
    """The requests to the shuffler, each small enough."""
    each = sum(map(len, next(iter(found.values())).sealed))
    size = max(1, min(MOST_ENVELOPES, LARGEST_LEG // each))
    envelopes = [messages.as_message(client, one) for client, one in found.items()]
    for start in range(0, len(envelopes), size):
        yield {"envelopes": envelopes[start : start + size], "last": start + size >= len(envelopes)}


def _letter_legs(bags: Sequence[Bag], lengths: Sequence[int]) -> Iterator[Message]:
    """The requests to the analyst, each small enough."""
    size, count = max(1, LARGEST_LEG // sum(lengths)), len(bags[0])
    for start in range(0, count, size):
        yield {"letters": [bag[start : start + size] for bag in bags], "last": start + size >= count}


def _ask(server: str, request: Message) -> Generator[Round, Replies, Any]:
    """One leg to one server."""
    replies = yield Round(to=Party.HELPER, requests={server: request})
    return _reply(replies, server)


def _reply(replies: Replies, server: str) -> Any:
    if server not in replies:
        raise FederationError(
            f"shuffle: {server} did not answer, or refused; both servers are needed. See its log, and run again."
        )
    return replies[server]


def _released(question: Question, texts: Sequence[bytes], asked: int) -> Released[Any]:
    """What the letters for one query say together; one that says nonsense has said nothing."""
    reports = [report for text in texts if (report := from_text(question, text)) is not None]
    if not reports:
        raise TooFewClients(f"release: none of {asked:,} clients sent a report that can be read.")
    return question.release(reports)
