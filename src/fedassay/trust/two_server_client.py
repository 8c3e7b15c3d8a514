"""The client half of `two-server`: believe the servers' keys, measure, encode each row, seal."""

from __future__ import annotations

from fedassay.crypto.keys import KeyPair
from fedassay.protocol import Measure, Message, Randomness, Request
from fedassay.trust.two_server_deposits import make
from fedassay.trust.two_server_keys import Route, session_of
from fedassay.trust.two_server_layout import Layout
from fedassay.trust.two_server_messages import WORDS, require, told_servers

CLIENT_LEG = 1
"""Clients are asked once, after both servers have drawn their keys for this exchange."""


def deposit(request: Request, measure: Measure, randomness: Randomness) -> Message:
    """The reply: for each server a sealed text per query."""
    require(request.leg == CLIENT_LEG, f"got leg {request.leg}, expected only leg {CLIENT_LEG}.")
    servers = told_servers(request.message)
    session = session_of(exchange=request.exchange, plans=request.plans, servers=servers.names)
    WORDS.check_servers(servers, session, request.credentials)
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
