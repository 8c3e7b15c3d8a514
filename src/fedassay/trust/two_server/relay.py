"""The relay of `two-server`: hands on what clients seal for the servers, and the servers for each other.

It holds no key and sees no row. What it can compute in the end is the sum of the two servers' noisy shares, which is
the release.

======  ===========  =============================================================================================
leg     asked        for
======  ===========  =============================================================================================
0       servers      a public key each
1       clients      their rows, encoded and sealed for each server; the only leg that clients see
2 ..    servers      (what clients sealed, in as many legs as needed) the first message of the check
then    servers      the factors of the check
then    second       a commitment to its part of the verdict
then    first        its part of the verdict
then    second       noisy shares of what is asked for, and its part of the verdict; or nothing, if too many fail
then    first        noisy shares of what is asked for
later   servers      such shares, for other points (`Points`): an exchange that begins there, with this identity
======  ===========  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedassay.crypto.field61 import add
from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery
from fedassay.protocol.vocabulary import Exchange, Message, Points, Released, Replies, Round
from fedassay.trust.two_server import messages
from fedassay.trust.two_server.deposits import from_field
from fedassay.trust.two_server.layout import LARGEST_DEPOSIT, LARGEST_DEPOSITS, Layout
from fedassay.trust.two_server.messages import WORDS, Piece, Sealed

_Both = tuple[Any, Any]
"""Pair of things, one for, or of, each server."""


def relay(exchange: Exchange) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
    """Ask servers and clients in turn, and add up what the servers answer."""
    servers = WORDS.servers(exchange)
    places = [
        np.array(plan.query.at, dtype=np.int64) if isinstance(plan.query, Points) else None
        for plan in exchange.plans
    ]
    if exchange.first_leg == 0:
        replies = yield from _first_answers(exchange, servers, places)
    else:
        replies = yield from WORDS.ask({server: {"places": places} for server in servers})
    return _released(exchange, replies, servers)


def _first_answers(
    exchange: Exchange, servers: tuple[str, str], places: list[Any]
) -> Generator[Round, Replies, _Both]:
    """Run all legs of the table. The second server is the last to state anything about who passes the check."""
    layouts = [Layout.of(plan.query, plan.setting) for plan in exchange.plans]
    if all(layout.rows is not None for layout in layouts):
        _check_size(exchange, len(exchange.cohort) * sum(layout.text_bytes for layout in layouts))
    first, second = servers
    masked = yield from _deposit(exchange, servers, layouts)
    factors = _sealed(
        (yield from WORDS.ask({first: {"sealed": masked[1]}, second: {"sealed": masked[0]}})), servers
    )
    (committed,) = yield from WORDS.ask({second: {"sealed": factors[0]}})
    commitment = messages.read_sealed(committed, server=second)
    (opened,) = yield from WORDS.ask({first: {"sealed": factors[1], "commitment": commitment}})
    opening = messages.read_sealed(opened, server=first)
    (of_second,) = yield from WORDS.ask({second: {"sealed": opening, "places": places}})
    answer, verdict = messages.read_verdict(of_second, server=second)
    (of_first,) = yield from WORDS.ask({first: {"sealed": verdict, "places": places}})
    return of_first, answer


def _check_size(exchange: Exchange, size: int) -> None:
    """Refuse more keys than a server can hold; before clients are asked, if they all send as many."""
    if size > LARGEST_DEPOSITS:
        raise UnsupportedQuery(
            f"two-server: the keys of {len(exchange.cohort):,} clients are {size:,} bytes for each server, expected at "
            f"most {LARGEST_DEPOSITS:,}; give a smaller `rows_per_client`, fewer points, or use server-dp."
        )


def _deposit(
    exchange: Exchange, servers: tuple[str, str], layouts: Sequence[Layout]
) -> Generator[Round, Replies, _Both]:
    """Run legs 0 to 2: the servers' keys to the clients, and what those seal to the servers."""
    introduction = yield from WORDS.introduced(servers)
    answers = yield Round(requests={name: dict(introduction) for name in exchange.cohort})
    deposits, longest = {}, [layout.text_bytes for layout in layouts]
    for name in sorted(exchange.cohort):
        found = messages.read_deposit(answers.get(name), longest=longest)
        if found is not None:
            deposits[name] = found
    if not deposits:
        raise TooFewClients(f"release: none of {len(exchange.cohort)} clients answered, expected at least 1.")
    _check_size(exchange, sum(len(text) for found in deposits.values() for text in found.texts[0]))
    batches = list(_batches(deposits))
    for number, batch in enumerate(batches, start=1):
        last = number == len(batches)
        replies = yield from WORDS.ask(
            {
                server: {**introduction, "pieces": [dict(pair[party]) for pair in batch], "last": last}
                for party, server in enumerate(servers)
            }
        )
    return _sealed(replies, servers)


def _batches(deposits: Mapping[str, Sealed]) -> Iterator[list[tuple[Message, Message]]]:
    """Yield the pieces for both servers, in batches that fit into a request; the same clients to both at a time."""
    batch: list[tuple[Message, Message]] = []
    size = 0
    for client, deposit in deposits.items():
        for place, texts in enumerate(zip(*deposit.texts, strict=True)):
            length = max(map(len, texts))
            if batch and size + length > LARGEST_DEPOSIT:
                yield batch
                batch, size = [], 0
            first, second = (Piece(client, place, deposit.public, text)._asdict() for text in texts)
            batch.append((first, second))
            size += length
    yield batch


def _sealed(replies: _Both, servers: Sequence[str]) -> _Both:
    first, second = (
        messages.read_sealed(reply, server=name) for reply, name in zip(replies, servers, strict=True)
    )
    return first, second


def _released(exchange: Exchange, replies: _Both, servers: Sequence[str]) -> tuple[Released[Any], ...]:
    lengths = [
        len(plan.query.at) if isinstance(plan.query, Points) else plan.query.of.length
        for plan in exchange.plans
    ]
    (first, accepted), (second, too) = (
        messages.read_shares(reply, lengths=lengths, server=name)
        for reply, name in zip(replies, servers, strict=True)
    )
    if accepted != too:
        raise ProtocolError(
            f"two-server: {servers[0]} accepted {accepted} clients and {servers[1]} {too}, expected the same."
        )
    if not accepted:
        raise TooFewClients(
            f"release: none of {len(exchange.cohort)} clients sent keys that pass the servers' check, expected at "
            "least 1."
        )
    return tuple(
        Released(value=from_field(add(a, b)), noise=plan.noise, clients=accepted)
        for a, b, plan in zip(first, second, exchange.plans, strict=True)
    )
