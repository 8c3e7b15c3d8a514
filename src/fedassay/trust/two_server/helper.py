"""The server half of `two-server`, the same for both servers: the answers of each, step by step.

The driver of this half keeps the state, which is on the disk before the reply leaves; a leg is answered once. So
noise is drawn once, whatever crashes. `step` in the state is what comes next:

==============  ======================================  =============================================================
step            receives                                replies
==============  ======================================  =============================================================
``hello``       who the two servers are                 a public key for this exchange, signed
``deposits``    both keys; what clients have sealed     after the last: which clients' texts were good, and the
                                                        masked values of their keys (first message of the check)
``masked``      the other's masked values               its shares of the masked factors of each client's product
``factors``     the second server: the first's factors  a commitment to its share of each product
``factors``     the first server: the second's factors  its share of each product
                and commitment
``products``    the other's shares of the products;     noisy shares of what is asked for (from the second server also
                what is asked for                       its shares of the products); or that there will be none
``answers``     what is asked for next (`Points`)       noisy shares of it: the same draws of noise, where they recur
``over``        nothing                                 nothing
==============  ======================================  =============================================================

What one server says to the other is sealed for it: the relay only hands it on. The steps from ``masked`` to
``products`` are in `two_server_verification`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedassay.crypto.dcf_keys import Keys
from fedassay.crypto.keys import KeyPair
from fedassay.crypto.sketch import Challenge, begin_and_total
from fedassay.errors import ProtocolError
from fedassay.protocol.vocabulary import Message, Points, Randomness, Request
from fedassay.trust.introductions import Pair
from fedassay.trust.question import DOUBT
from fedassay.trust.two_server import messages, verification
from fedassay.trust.two_server.deposits import Deposits, content, noisy_points, noisy_share
from fedassay.trust.two_server.layout import Layout
from fedassay.trust.two_server.messages import WORDS, Channel, DepositRoute, Piece, require, session_of

_Step = Callable[[Request, Message, Randomness], tuple[Message, Message]]


def assist(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    """Return the reply to one leg, and the state for the next. `ProtocolError` for anything that is off."""
    step = _STEPS.get(state.get("step", "hello"))
    if step is None:
        raise ProtocolError("two-server: this exchange is over.")
    return step(request, state, randomness)


def layouts(request: Request) -> list[Layout]:
    """Return the layout of the keys for each query."""
    return [Layout.of(plan.query, plan.setting) for plan in request.plans]


# --- hello, deposits ----------------------------------------------------------------------------------------------


def _hello(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    reply, begun = WORDS.hello(
        request,
        lambda servers: session_of(exchange=request.exchange, plans=request.plans, servers=servers),
        randomness,
    )
    return reply, {"step": "deposits", **begun, "opened": {}}


def _deposits(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    own, introduced, told = WORDS.told_later(request, state, "pieces", "last")
    pieces, last = messages.told_pieces(told, plans=len(request.plans))
    opened = _opened(pieces, own, introduced.keys, state, request)
    require(
        len(opened) <= request.cohort,
        f"got deposits of {len(opened)} clients, expected at most {request.cohort}.",
    )
    if not last:
        return {}, {**state, "keys": list(introduced.keys), "opened": opened}
    channel = Channel.between(own, introduced.keys, party=state["party"], session=state["session"])
    return _masked(request, opened, channel, randomness)


def _opened(
    pieces: list[Piece], own: KeyPair, keys: Pair, state: Message, request: Request
) -> dict[str, Message]:
    """Open all that clients have sealed for this server so far and that is good; the rest is as if not sent."""
    opened = {client: dict(found) for client, found in state["opened"].items()}
    of = layouts(request)
    for piece in pieces:
        mine = opened.setdefault(piece.client, {})
        require(str(piece.place) not in mine, f"got two deposits of {piece.client!r} for the same query.")
        route = DepositRoute(
            session=state["session"],
            client=piece.client,
            place=piece.place,
            party=state["party"],
            servers=keys,
        )
        text = route.open(own, piece.public, piece.sealed)
        found = (
            None if text is None else content(text, of[piece.place], party=state["party"], place=piece.place)
        )
        mine[str(piece.place)] = found
    return opened


def _masked(
    request: Request, opened: Mapping[str, Message], channel: Channel, randomness: Randomness
) -> tuple[Message, Message]:
    """Make the first message of the check, once all keys have arrived. Nearly all the work of a server is here."""
    of = layouts(request)
    good = {
        client: found for client, found in opened.items() if all(one is not None for one in found.values())
    }
    deposits = Deposits.of(good, of)
    halves, masked, totals = [], [], []
    for place, layout in enumerate(of):
        challenge = Challenge.of(channel.challenge(place), bits=layout.bits, points=layout.checked)
        keys = deposits.keys_of(place, layout, party=channel.party)
        half, message, total = begin_and_total(keys, challenge)
        halves.append(half.numbers)
        masked.append(message)
        totals.append(None if isinstance(request.plans[place].query, Points) else total[: layout.leaves])
    reply, state = verification.first(deposits, halves, masked, channel, randomness)
    return reply, {**state, "totals": totals}


# --- answers ------------------------------------------------------------------------------------------------------


def _first_answers(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    told = messages.fields(request.message, {"sealed", "places"})
    verdict = verification.verdict(told["sealed"], state, randomness)
    if verdict.refused:
        return {"refused": True}, {"step": "over", **verdict.doubt}
    no_draws = {"of": np.empty(0, np.int64), "draws": np.empty(0, np.int64)}
    begun = {
        "step": "answers",
        "party": state["party"],
        "clients": len(verdict.kept.names),
        "keys": list(verdict.kept.keys),
        "totals": verdict.totals,
        "drawn": [no_draws for _ in request.plans],
        **verdict.doubt,
    }
    reply, after = _answered(request, begun, told["places"], randomness)
    return {**reply, **verdict.opening}, after


def _more_answers(request: Request, state: Message, randomness: Randomness) -> tuple[Message, Message]:
    told = messages.fields(request.message, {"places"})
    require(
        all(isinstance(plan.query, Points) for plan in request.plans),
        "a whole total is answered once; only points can be asked for later.",
    )
    return _answered(request, state, told["places"], randomness)


def _answered(
    request: Request, state: Message, places: object, randomness: Randomness
) -> tuple[Message, Message]:
    """Return noisy shares for each query. What can be asked again keeps its keys and its noise, and nothing else."""
    lengths = [plan.query.of.length if isinstance(plan.query, Points) else None for plan in request.plans]
    asked = messages.told_places(places, lengths=lengths)
    shares: list[Any] = []
    keys, drawn = list(state["keys"]), list(state["drawn"])
    for i, plan in enumerate(request.plans):
        layout, wanted = Layout.of(plan.query, plan.setting), asked[i]
        held = Keys.from_bytes(keys[i], party=state["party"], bits=layout.bits)
        if wanted is None:
            shares.append(noisy_share(held, plan, layout, randomness, up_to=state["totals"][i]))
            keys[i] = keys[i][:0]
        else:
            answer, drawn[i] = noisy_points(held, plan, wanted, drawn[i], randomness)
            shares.append(answer)
    reply = {"shares": shares, "clients": state["clients"]}
    if all(length is None for length in lengths):
        return reply, {"step": "over", **{name: state[name] for name in (DOUBT,) if name in state}}
    kept = {name: value for name, value in state.items() if name != "totals"}
    return reply, {**kept, "keys": keys, "drawn": drawn}


_STEPS: Mapping[str, _Step] = {
    "hello": _hello,
    "deposits": _deposits,
    "masked": verification.factors,
    "factors": verification.products,
    "products": _first_answers,
    "answers": _more_answers,
}
