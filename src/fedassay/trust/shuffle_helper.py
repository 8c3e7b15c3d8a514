"""The server halves of `shuffle`: the analyst, who may read letters, and the shuffler, who may open envelopes.

The state is kept by whoever drives this half, and is on the disk before the reply leaves; a leg is answered once. So
messages are shuffled once, whatever crashes. `step` in the state is what comes next:

==============  ===========  ======================================  ================================================
step            whose        is told                                 replies
==============  ===========  ======================================  ================================================
``hello``       both         who the two servers are                 a public key for this exchange, signed
``envelopes``   shuffler's   both keys; what clients have sealed     after the last: the letters for each query, in
                                                                     random order; or that clients were too few
``letters``     analyst's    both keys; letters                      their texts
``over``        both         nothing                                 nothing
==============  ===========  ======================================  ================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import ProtocolError
from fedassay.protocol import Message, Randomness, Request
from fedassay.trust.introductions import Pair
from fedassay.trust.local_reports import Question
from fedassay.trust.shuffle_keys import (
    ENVELOPE_OVERHEAD,
    LETTER_OVERHEAD,
    SIGNED_ENVELOPES,
    Route,
    session_of,
    signed_words,
)
from fedassay.trust.shuffle_messages import (
    WORDS,
    Envelopes,
    from_bag,
    to_bag,
    told_envelopes,
    told_letters,
)
from fedassay.trust.shuffle_texts import text_bytes

Numbers = Sequence[int]
"""What hides a client: how many others at least, as `Shuffle.numbers` has it; the first is the fewest survivors."""

Step = Callable[[Request, Message, Numbers, Randomness], tuple[Message, Message]]


def assist(
    request: Request, state: Message, numbers: Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    """The reply to one leg, and the state for the next. `ProtocolError` for anything that is off."""
    step = _STEPS.get(state.get("step", "hello"))
    if step is None:
        raise ProtocolError("shuffle: this exchange is over.")
    return step(request, state, numbers, randomness)


def letter_bytes(questions: Sequence[Question]) -> list[int]:
    """The length of the letters for each query."""
    return [text_bytes(question) + LETTER_OVERHEAD for question in questions]


def envelope_bytes(questions: Sequence[Question]) -> list[int]:
    """The length of the envelopes for each query."""
    return [length + ENVELOPE_OVERHEAD for length in letter_bytes(questions)]


def permutation(count: int, randomness: Randomness) -> NDArray[np.intp]:
    """All orders of so many things are equally likely: the order of uniform words, drawn again if two are the same.

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
    request: Request, state: Message, numbers: Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    servers = WORDS.told_names(request.message, recipient=request.recipient)
    party = servers.index(request.recipient)
    session = session_of(exchange=request.exchange, plans=request.plans, numbers=numbers, servers=servers)
    reply, own = WORDS.introduce(session, party, request.credentials, randomness)
    return reply, {
        "step": ("letters", "envelopes")[party],
        "servers": list(servers),
        "party": party,
        "session": session,
        "private": own.private.data,
        **({"opened": {}} if party == 1 else {}),
    }


def _envelopes(
    request: Request, state: Message, numbers: Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    """The shuffler: count the clients, open their envelopes, and shuffle the letters for each query by itself."""
    questions = [Question.of(plan) for plan in request.plans]
    introduced, envelopes, last = told_envelopes(request.message, lengths=envelope_bytes(questions))
    own = KeyPair.of(Secret(state["private"]))
    WORDS.check_other(introduced, own, state, request.credentials)
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
    """The letters of one client, if it has signed its envelopes and all of them open; else it has sent nothing."""
    public, sealed, signature = envelopes
    words = signed_words(session, client, public, sealed)
    credentials = request.credentials
    if credentials is not None and not credentials.verifies(client, SIGNED_ENVELOPES, words, signature):
        return None
    letters = []
    for place, one in enumerate(sealed):
        route = Route(session=session, place=place, servers=servers)
        letter = route.open_envelope(own, client, public, one)
        if letter is None:
            return None
        letters.append(letter)
    return letters


def _read(
    request: Request, state: Message, numbers: Numbers, randomness: Randomness
) -> tuple[Message, Message]:
    """The analyst: read letters. One that does not open is left out; whoever wrote it has said nothing."""
    questions = [Question.of(plan) for plan in request.plans]
    introduced, bags, last = told_letters(request.message, lengths=letter_bytes(questions))
    own = KeyPair.of(Secret(state["private"]))
    WORDS.check_other(introduced, own, state, request.credentials)
    texts = []
    for place, (bag, question) in enumerate(zip(bags, questions, strict=True)):
        route = Route(session=state["session"], place=place, servers=introduced.keys)
        read = [route.open_letter(own, letter) for letter in from_bag(bag)]
        texts.append(to_bag([text for text in read if text is not None], text_bytes(question)))
    after = {"step": "over"} if last else {**state, "keys": list(introduced.keys)}
    return {"texts": texts}, after


_STEPS: Mapping[str, Step] = {"hello": _hello, "envelopes": _envelopes, "letters": _read}
