"""The server halves of `shuffle`: the analyst, who may read letters, and the shuffler, who may open envelopes.

The driver of this half keeps the state, which is on the disk before the reply leaves; a leg is answered once. So
messages are shuffled once, whatever crashes. `step` in the state is what comes next:

==============  ===========  ======================================  ================================================
step            whose        receives                                replies
==============  ===========  ======================================  ================================================
``hello``       both         who the two servers are                 a public key for this exchange, signed
``envelopes``   shuffler's   both keys; what clients have sealed     after the last: the letters for each query, in
                                                                     random order; or that clients were too few
``letters``     analyst's    both keys; letters                      their texts
``over``        both         nothing                                 nothing
==============  ===========  ======================================  ================================================

The relay of `shuffle`: hands envelopes to the shuffler, letters to the analyst, and adds up what the letters say.

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

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.keys import KeyPair
from fedassay.errors import ProtocolError, TooFewClients, UnsupportedQuery
from fedassay.protocol.vocabulary import (
    Exchange,
    Message,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
)
from fedassay.trust.introductions import Pair
from fedassay.trust.local_reports import Question
from fedassay.trust.shuffle import messages
from fedassay.trust.shuffle.messages import (
    ENVELOPE_OVERHEAD,
    LETTER_OVERHEAD,
    SIGNED_ENVELOPES,
    WORDS,
    Bag,
    Envelopes,
    LetterRoute,
    from_bag,
    from_text,
    session_of,
    signed_words,
    text_bytes,
    to_bag,
    told_envelopes,
    told_letters,
)

_Numbers = Sequence[int]
"""Numbers of others that hide a client, at least, as `Shuffle.numbers` has them; first the fewest survivors."""

_Step = Callable[[Request, Message, _Numbers, Randomness], tuple[Message, Message]]


def assist(
    request: Request, state: Message, numbers: _Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    """Return the reply to one leg, and the state for the next. `ProtocolError` for anything that is off."""
    step = _STEPS.get(state.get("step", "hello"))
    if step is None:
        raise ProtocolError("shuffle: this exchange is over.")
    return step(request, state, numbers, randomness)


def letter_bytes(questions: Sequence[Question]) -> list[int]:
    """Return the length of the letters for each query."""
    return [text_bytes(question) + LETTER_OVERHEAD for question in questions]


def envelope_bytes(questions: Sequence[Question]) -> list[int]:
    """Return the length of the envelopes for each query."""
    return [length + ENVELOPE_OVERHEAD for length in letter_bytes(questions)]


def permutation(count: int, randomness: Randomness) -> NDArray[np.intp]:
    """Draw an order of `count` things, all equally likely: that of uniform words, drawn again if two are equal.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> sorted(permutation(5, SecureRandomness()).tolist())
    [0, 1, 2, 3, 4]
    """
    while True:
        words = randomness.words(count)
        if len(np.unique(words)) == count:
            return np.argsort(words)


def _hello(
    request: Request, state: Message, numbers: _Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    reply, begun = WORDS.hello(
        request,
        lambda servers: session_of(
            exchange=request.exchange, plans=request.plans, numbers=numbers, servers=servers
        ),
        randomness,
    )
    if begun["party"] == 0:
        return reply, {"step": "letters", **begun}
    return reply, {"step": "envelopes", **begun, "opened": {}}


def _envelopes(
    request: Request, state: Message, numbers: _Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    """Count the clients, open their envelopes, and shuffle the letters for each query by itself (shuffler)."""
    questions = [Question.of(plan) for plan in request.plans]
    own, introduced, told = WORDS.told_later(request, state, "envelopes", "last")
    envelopes, last = told_envelopes(told, lengths=envelope_bytes(questions))
    opened = dict(state["opened"])
    for client, of_client in envelopes:
        # Who has sent two counts once; the servers themselves, who have keys in the rosters too, do not count.
        if client in opened or client in introduced.names:
            continue
        letters = _letters(client, of_client, own, introduced.keys, state["session"], request)
        if letters is not None:
            opened[client] = letters
    WORDS.require(
        len(opened) <= request.cohort,
        f"got envelopes of {len(opened)} clients, expected at most {request.cohort}.",
    )
    if not last:
        return {}, {**state, "keys": list(introduced.keys), "opened": opened}
    if len(opened) < numbers[0]:
        return {"too_few": len(opened)}, {"step": "over"}
    bags = []
    for place, length in enumerate(letter_bytes(questions)):
        bag = to_bag([letters[place] for letters in opened.values()], length)
        bags.append(bag[permutation(len(bag), randomness)])
    return {"letters": bags}, {"step": "over"}


def _letters(
    client: str, envelopes: Envelopes, own: KeyPair, servers: Pair, session: bytes, request: Request
) -> list[bytes] | None:
    """Return the letters of one client, if it has signed its envelopes and all of them open; else None."""
    public, sealed, signature = envelopes
    words = signed_words(session, client, public, sealed)
    credentials = request.credentials
    if credentials is not None and not credentials.verifies(client, SIGNED_ENVELOPES, words, signature):
        return None
    letters = []
    for place, one in enumerate(sealed):
        route = LetterRoute(session=session, place=place, servers=servers)
        letter = route.open_envelope(own, client, public, one)
        if letter is None:
            return None
        letters.append(letter)
    return letters


def _read(
    request: Request, state: Message, numbers: _Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    """Read letters (the analyst). A letter that does not open is left out and counts as no answer."""
    questions = [Question.of(plan) for plan in request.plans]
    own, introduced, told = WORDS.told_later(request, state, "letters", "last")
    bags, last = told_letters(told, lengths=letter_bytes(questions))
    texts = []
    for place, (bag, question) in enumerate(zip(bags, questions, strict=True)):
        route = LetterRoute(session=state["session"], place=place, servers=introduced.keys)
        read = [route.open_letter(own, letter) for letter in from_bag(bag)]
        texts.append(to_bag([text for text in read if text is not None], text_bytes(question)))
    after = {"step": "over"} if last else {**state, "keys": list(introduced.keys)}
    return {"texts": texts}, after


_STEPS: Mapping[str, _Step] = {"hello": _hello, "envelopes": _envelopes, "letters": _read}


# --- the relay of `shuffle` ---------------------------------------------------------------------------------

LARGEST_LEG = 1 << 25
"""Bytes of envelopes or letters in one request: half of what fits into it."""

LARGEST_BAGS = 1 << 27
"""Bytes of envelopes of one exchange: the shuffler's store of them, and its answer, is one message."""

MOST_ENVELOPES = 1 << 14
"""Clients in one request: each is a mapping with a list, of which a message may have only a limited number."""


def relay(exchange: Exchange, *, fewest: int) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
    """Ask servers and clients in turn, and read what comes out."""
    analyst, shuffler = servers = WORDS.servers(exchange)
    questions = [Question.of(plan) for plan in exchange.plans]
    _check_size(exchange, envelope_bytes(questions))
    introduction = yield from WORDS.introduced(servers)
    answers = yield Round(requests={name: dict(introduction) for name in exchange.cohort})
    found = {}
    for name in sorted(exchange.cohort):
        envelopes = messages.read_envelopes(answers.get(name), lengths=envelope_bytes(questions))
        if envelopes is not None:
            found[name] = envelopes
    _check_enough(len(found), len(exchange.cohort), fewest)
    reply: Any = None
    for message in _envelope_legs(found):
        (reply,) = yield from WORDS.ask({shuffler: {**introduction, **message}})
    opened = messages.read_refusal(reply)
    if opened is not None:
        _check_enough(opened, len(exchange.cohort), fewest)
    lengths = letter_bytes(questions)
    bags = messages.read_letters(reply, lengths=lengths, server=shuffler)
    texts: list[list[bytes]] = [[] for _ in questions]
    for message in _letter_legs(bags, lengths):
        (reply,) = yield from WORDS.ask({analyst: {**introduction, **message}})
        read = messages.read_texts(reply, lengths=list(map(text_bytes, questions)), server=analyst)
        for some, bag in zip(texts, read, strict=True):
            some += messages.from_bag(bag)
    return tuple(
        _released(question, some, len(exchange.cohort))
        for question, some in zip(questions, texts, strict=True)
    )


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


def _envelope_legs(found: Mapping[str, Envelopes]) -> Iterator[Message]:
    """Yield the requests to the shuffler, each small enough."""
    each = sum(map(len, next(iter(found.values())).sealed))
    size = max(1, min(MOST_ENVELOPES, LARGEST_LEG // each))
    envelopes = [messages.as_message(client, one) for client, one in found.items()]
    for start in range(0, len(envelopes), size):
        yield {"envelopes": envelopes[start : start + size], "last": start + size >= len(envelopes)}


def _letter_legs(bags: Sequence[Bag], lengths: Sequence[int]) -> Iterator[Message]:
    """Yield the requests to the analyst, each small enough."""
    size, count = max(1, LARGEST_LEG // sum(lengths)), len(bags[0])
    for start in range(0, count, size):
        yield {"letters": [bag[start : start + size] for bag in bags], "last": start + size >= count}


def _released(question: Question, texts: Sequence[bytes], asked: int) -> Released[Any]:
    """Compute the result of the letters for one query; a letter without a valid report counts as no answer."""
    reports = [report for text in texts if (report := from_text(question, text)) is not None]
    if not reports:
        raise TooFewClients(f"release: none of {asked:,} clients sent a report that can be read.")
    return question.release(reports)
