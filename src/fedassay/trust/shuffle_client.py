"""The client half of `shuffle`: believe the servers' keys, measure, report in private, seal twice."""

from __future__ import annotations

from collections.abc import Sequence

from fedassay.crypto.keys import KeyPair
from fedassay.protocol import Measure, Message, Randomness, Request
from fedassay.trust.local_reports import Question
from fedassay.trust.shuffle_keys import SIGNED_ENVELOPES, Route, session_of, signed_words
from fedassay.trust.shuffle_messages import WORDS
from fedassay.trust.shuffle_texts import drawn_text

CLIENT_LEG = 1
"""Clients are asked once, after both servers have drawn their keys for this exchange."""


def post(request: Request, measure: Measure, numbers: Sequence[int], randomness: Randomness) -> Message:
    """The reply: an envelope for each query, with a letter in it; always, whatever was measured."""
    WORDS.require(request.leg == CLIENT_LEG, f"got leg {request.leg}, expected only leg {CLIENT_LEG}.")
    servers = WORDS.told_servers(request.message)
    session = session_of(
        exchange=request.exchange, plans=request.plans, numbers=numbers, servers=servers.names
    )
    WORDS.check_servers(servers, session, request.credentials)
    own, client, sealed = KeyPair.draw(randomness), request.recipient, []
    for place, (plan, vector) in enumerate(zip(request.plans, measure(), strict=True)):
        route = Route(session=session, place=place, servers=servers.keys)
        letter = route.letter(drawn_text(Question.of(plan), vector, randomness), randomness)
        sealed.append(route.envelope(letter, own, client, randomness))
    words = signed_words(session, client, own.public, sealed)
    credentials = request.credentials
    signature = b"" if credentials is None else credentials.sign(SIGNED_ENVELOPES, words)
    return {"public": own.public, "sealed": sealed, "signature": signature}
