"""The client half of `two-server`: believe the servers' keys, measure, encode each row, seal."""

from __future__ import annotations

from fedassay.crypto.keys import KeyPair
from fedassay.protocol import SECOND_SERVER, Credentials, Measure, Message, Randomness, Request
from fedassay.trust.two_server_deposits import make
from fedassay.trust.two_server_keys import SIGNED_KEY, Route, session_of, signed_words
from fedassay.trust.two_server_layout import Layout
from fedassay.trust.two_server_messages import Introduced, require, told_servers

CLIENT_LEG = 1
"""Clients are asked once, after both servers have drawn their keys for this exchange."""


def deposit(request: Request, measure: Measure, randomness: Randomness) -> Message:
    """The reply: for each server a sealed text per query."""
    require(request.leg == CLIENT_LEG, f"got leg {request.leg}, expected only leg {CLIENT_LEG}.")
    servers = told_servers(request.message)
    session = session_of(exchange=request.exchange, plans=request.plans, servers=servers.names)
    _check_signatures(servers, session, request.credentials)
    own = KeyPair.draw(randomness)
    sealed: tuple[list[bytes], list[bytes]] = ([], [])
    for place, (plan, counts) in enumerate(zip(request.plans, measure(), strict=True)):
        layout = Layout.of(plan.query, plan.setting)
        for party, text in enumerate(make(counts, layout, randomness, place=place)):
            route = Route(
                session=session,
                client=request.recipient,
                place=place,
                party=party,
                servers=servers.keys,
            )
            sealed[party].append(route.seal(own, text, randomness))
    return {"public": own.public, "sealed": list(sealed)}


def _check_signatures(servers: Introduced, session: bytes, credentials: Credentials | None) -> None:
    """With credentials: the second server is the one that is pinned as such, and its key is signed.

    Under another name the coordinator, which runs the first server, could appoint any site that works with it.

    The first server belongs to whoever asks, and asks through a transport that says who that is; if the roster has a
    key for it, it must have signed too.
    """
    if credentials is None:
        return
    second = servers.names[1]
    require(
        second == SECOND_SERVER and credentials.knows(second),
        f"got {second!r} as the second server, expected the one that the roster lists as {SECOND_SERVER!r}.",
    )
    for party, name in enumerate(servers.names):
        words = signed_words(session, party, servers.keys[party])
        require(
            not credentials.knows(name)
            or credentials.verifies(name, SIGNED_KEY, words, servers.signatures[party]),
            f"the key of {name!r} is not signed by the key that is pinned for it.",
        )
