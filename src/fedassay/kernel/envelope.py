"""Requests and replies as bytes: the messages between the server half and the client halves.

A request repeats everything that a client needs to judge it (trust model, summaries, parts, settings): a
client believes no plan, it makes its own from these fields and refuses what it cannot make. Summaries and
trust models travel as a name and fields and are rebuilt from fixed catalogues; no code travels.

Replies sealed for the coordinator and signed by their sender, in the same way on every runtime.

A fresh X25519 key for each reply and the coordinator's reply key agree on a ChaCha20-Poly1305 key (HKDF-SHA256). The
sealed text is bound to the request that it answers and to its sender; so is the signature over it. The carrier of the
messages learns who answered, and how long the answer is. A refusal of bytes that were no request is in the clear:
there is no key to seal it for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, cast

from fedassay.crypto.keys import KEY_BYTES, KeyPair, context, is_usable, seal, unseal
from fedassay.errors import FedassayError, ProtocolError
from fedassay.protocol import wire
from fedassay.protocol.texts import require_name
from fedassay.protocol.vocabulary import (
    All,
    Budget,
    Collect,
    Message,
    Neighbours,
    Part,
    PartyKeys,
    Plan,
    Points,
    Protection,
    Query,
    Randomness,
    Request,
    Sample,
    Select,
    Setting,
    Sum,
    Summary,
    TrustModel,
    Unit,
)

VERSION = 3

MOST_QUERIES = 64
LONGEST_ANSWER = 1 << 24
LARGEST_REQUEST = 1 << 26
LONGEST_EXCHANGE = 1 << 12
"""Limits of what a client is willing to look at: a small message must not make it do boundless work."""
MOST_PREKEYS = 8

Summaries = Mapping[str, type[Summary[Any]]]
TrustModels = Mapping[str, type[TrustModel]]
_QUERIES: Mapping[str, type[Query[Any]]] = {
    "sum": Sum,
    "collect": Collect,
    "select": Select,
    "points": Points,
}
_QUERY_NAMES = {kind: name for name, kind in _QUERIES.items()}

Public = TypeVar("Public")


class Refusal(StrEnum):
    """Codes for the reason why a client does not answer: it reveals nothing else, never an exception's text."""

    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    POLICY = "policy"
    BUDGET = "budget"
    LEDGER = "ledger"
    """The ledger cannot be used. Not `BUDGET`: to ask for less would not help, an operator of the site has to look."""
    DATA = "data"
    OUT_OF_TURN = "out-of-turn"
    CHANGED = "changed-request"
    LOST = "lost-answer"
    """It was paid for, and what was answered is lost: the site sits this question out, or noise would be drawn anew."""
    PROTOCOL = "protocol"
    INTERNAL = "internal"


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """Request as it arrives: the trust model's part, and what `client.py` needs around it."""

    study: str
    trust: TrustModel
    tasks: tuple[str, ...]
    request: Request
    reply_key: bytes
    """X25519 key for which replies are sealed."""
    asker: str | None = None
    """The public key whose signature on the request the transport has checked, as rosters have it."""
    announced: tuple[tuple[str, Plan], ...] = ()
    """First questions of all tasks of the study, as announced, each with its task: judged before the first is paid."""


class Reply(NamedTuple):
    """Answer of a client, and the prekeys that it offers for later exchanges, as they are packed."""

    message: Message
    prekeys: tuple[bytes, ...]


def describe(public: Summary[Any] | TrustModel) -> Message:
    """Return a summary or trust model as its name and its public fields."""
    described: Message = {"name": public.name}
    for field in fields(cast(Any, public)):
        described[field.name] = getattr(public, field.name)
    return described


def rebuild(catalogue: Mapping[str, type[Public]], described: object) -> Public:
    """Rebuild the summary or trust model with this name and these fields, validated by its own constructor."""
    if not isinstance(described, dict) or described.get("name") not in catalogue:
        raise ProtocolError("request: it names something that is not in the catalogue.")
    kind = catalogue[described["name"]]
    wanted = {field.name for field in fields(cast(Any, kind))}
    given = {key: _tuples(value) for key, value in described.items() if key != "name"}
    if set(given) != wanted:
        raise ProtocolError(f"request: {described['name']} has other fields than expected.")
    try:
        return kind(**given)
    except (FedassayError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"request: the fields of {described['name']} are not valid.") from error


def kind_of(label: str) -> str:
    """Return the kind of the task that asks under this label: tasks of one kind may have names that tell them apart.

    Examples
    --------
    >>> kind_of("evaluate"), kind_of("conformal:strict")
    ('evaluate', 'conformal')
    """
    return label.partition(":")[0]


def pack_request(
    *, study: str, trust: TrustModel, tasks: tuple[str, ...], request: Request, reply_key: bytes
) -> bytes:
    """Write a request as bytes."""
    return wire.encode(
        {
            "version": VERSION,
            "study": study,
            "exchange": request.exchange,
            "cohort": request.cohort,
            "leg": request.leg,
            "recipient": request.recipient,
            "trust": describe(trust),
            "plans": [describe_plan(plan) for plan in request.plans],
            "tasks": list(tasks),
            "reply_key": reply_key,
            "message": request.message,
        }
    )


def open_request(data: bytes, *, summaries: Summaries, trust_models: TrustModels) -> Envelope:
    """Read the request in these bytes; `ProtocolError` if malformed, `UnsupportedQuery` if it cannot be planned."""
    outer = wire.decode(data, largest=LARGEST_REQUEST)
    if _typed(outer, "version", int) != VERSION:
        raise ProtocolError(f"request: got version {outer['version']}, expected {VERSION}.")
    trust = rebuild(trust_models, outer.get("trust"))
    described = _typed(outer, "plans", list)
    if len(described) > MOST_QUERIES:
        raise ProtocolError(f"request: got {len(described)} queries, expected at most {MOST_QUERIES}.")
    plans = tuple(_rebuild_plan(plan, trust, summaries) for plan in described)
    if sum(plan.measured.length for plan in plans) > LONGEST_ANSWER:
        raise ProtocolError(f"request: it asks for more than {LONGEST_ANSWER:,} numbers.")
    tasks = tuple(require_name(str(task), "task") for task in _typed(outer, "tasks", list))
    if not plans or len(tasks) != len(plans):
        raise ProtocolError("request: it asks nothing, or its lists differ in length.")
    request = Request(
        exchange=_typed(outer, "exchange", bytes),
        plans=plans,
        cohort=_typed(outer, "cohort", int),
        leg=_typed(outer, "leg", int),
        recipient=require_name(_typed(outer, "recipient", str), "recipient"),
        message=_typed(outer, "message", dict),
    )
    if len(request.exchange) != 16 or not 0 <= request.leg < LONGEST_EXCHANGE:
        raise ProtocolError("request: the exchange or the leg is out of range.")
    reply_key = _typed(outer, "reply_key", bytes)
    if not is_usable(reply_key):
        raise ProtocolError("request: its key for replies is not usable.")
    study = require_name(_typed(outer, "study", str), "study")
    return Envelope(study=study, trust=trust, tasks=tasks, request=request, reply_key=reply_key)


def pack_reply(
    *, sender: str, exchange: bytes, leg: int, message: Message, prekeys: Sequence[bytes] = ()
) -> bytes:
    """Write a reply as bytes; the endpoint seals it."""
    return wire.encode(
        {
            "version": VERSION,
            "sender": sender,
            "exchange": exchange,
            "leg": leg,
            "message": message,
            "prekeys": list(prekeys),
        }
    )


def pack_refusal(*, sender: str, code: Refusal) -> bytes:
    """Write a refusal: a fixed code and nothing else."""
    return wire.encode({"version": VERSION, "sender": sender, "refusal": str(code)})


def open_reply(
    data: bytes, *, sender: str, exchange: bytes, leg: int, largest: int = wire.LARGEST_MESSAGE
) -> Reply | Refusal:
    """Open a reply to exactly this leg by exactly this sender, or return the code of a refusal."""
    outer = wire.decode(data, largest=largest)
    if _typed(outer, "version", int) != VERSION or _typed(outer, "sender", str) != sender:
        raise ProtocolError("reply: another version, or not from whom it should be.")
    if "refusal" in outer:
        try:
            return Refusal(_typed(outer, "refusal", str))
        except ValueError as error:
            raise ProtocolError("reply: unknown refusal code.") from error
    if _typed(outer, "exchange", bytes) != exchange or _typed(outer, "leg", int) != leg:
        raise ProtocolError("reply: it answers another question.")
    prekeys = tuple(_typed(outer, "prekeys", list))
    if len(prekeys) > MOST_PREKEYS or not all(type(one) is bytes for one in prekeys):
        raise ProtocolError("reply: its prekeys are malformed.")
    return Reply(_typed(outer, "message", dict), prekeys)


def describe_plan(plan: Plan) -> Message:
    """Return a plan as the public fields from which a client can make it again.

    Which places `Points` ask for is not among them: these are the terms of a whole exchange, and more places are
    asked for as it goes on, in its messages.
    """
    return {
        "query": _QUERY_NAMES[type(plan.query)],
        "summary": describe(plan.query.of),
        "share": plan.query.share,
        "part": str(plan.query.part),
        "rate": plan.query.cohort.rate if isinstance(plan.query.cohort, Sample) else None,
        **describe_terms(plan.setting.protection, plan.setting.budget),
        "clients": plan.setting.clients,
    }


def describe_terms(protection: Protection, budget: Budget | None) -> Message:
    """Describe as plain values what is protected, and for which budget."""
    return {
        "unit": str(protection.unit),
        "neighbours": str(protection.neighbours),
        "rows_per_client": protection.rows_per_client,
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
    }


def rebuild_terms(described: Message) -> tuple[Protection, Budget | None]:
    """Restore what `describe_terms` was given; a `KeyError`, `TypeError` or `ValueError` for anything else."""
    protection = Protection(
        unit=Unit(described["unit"]),
        neighbours=Neighbours(described["neighbours"]),
        rows_per_client=_optional(described["rows_per_client"], int),
    )
    epsilon = _optional(described["epsilon"], float)
    return protection, None if epsilon is None else Budget(epsilon=epsilon, delta=float(described["delta"]))


def _rebuild_plan(described: object, trust: TrustModel, summaries: Summaries) -> Plan:
    if not isinstance(described, dict) or described.get("query") not in _QUERIES:
        raise ProtocolError(f"request: a query is not one of {', '.join(_QUERIES)}.")
    summary = rebuild(summaries, described.get("summary"))
    try:
        kind = _QUERIES[described["query"]]
        also: dict[str, Any] = {"at": (0,)} if kind is Points else {}
        rate = _optional(described["rate"], float)
        query = kind(
            of=summary,
            share=float(described["share"]),
            part=Part(described["part"]),
            cohort=All() if rate is None else Sample(rate=rate),
            **also,
        )
        protection, budget = rebuild_terms(described)
        clients = int(described["clients"])
        if clients < 0:
            raise ValueError("a negative number of clients")
    except (FedassayError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError("request: a query's fields are not valid.") from error
    setting = Setting(trust=trust, protection=protection, budget=budget, clients=clients)
    return trust.plan(query, setting)


Kind = TypeVar("Kind")


def _typed(outer: Message, key: str, kind: type[Kind]) -> Kind:
    value = outer.get(key)
    if type(value) is not kind:
        raise ProtocolError(f"message: the field {key} is missing or of the wrong type.")
    return value


def _optional(value: object, kind: type[Kind]) -> Kind | None:
    if value is None:
        return None
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}")
    return value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


# --- replies sealed for the coordinator and signed by their sender ------------------------------------------

SEAL_VERSION = 2
_PURPOSE = "reply 2"
_OVERHEAD = 1024


class Addressee(NamedTuple):
    """Recipient of a reply: the key that opens it, and the request that it answers."""

    reply_key: bytes
    request: bytes


def sealed(
    reply: bytes, to: Addressee, *, sender: str, credentials: PartyKeys | None, randomness: Randomness
) -> bytes:
    """Seal and sign the reply; it is not signed where the sender has no identity, as in a simulation.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> source = SecureRandomness()
    >>> own = KeyPair.draw(source)
    >>> data = sealed(b"hi", Addressee(own.public, b"who?"), sender="a", credentials=None, randomness=source)
    >>> opened(data, own, request=b"who?", sender="a", credentials=None)
    b'hi'
    >>> opened(data, own, request=b"what?", sender="a", credentials=None)
    Traceback (most recent call last):
    fedassay.errors.ProtocolError: reply: it is not sealed for this coordinator, or answers another request.
    """
    fresh = KeyPair.draw(randomness)
    bound = _bound(to, sender, fresh.public)
    key = fresh.agree(to.reply_key, salt=b"", info=bound)
    text = fresh.public + seal(key, reply, associated=bound, randomness=randomness)
    signature = b"" if credentials is None else credentials.sign(_PURPOSE, _words(bound, text))
    return wire.encode({"version": SEAL_VERSION, "sender": sender, "sealed": text, "signature": signature})


def opened(
    data: bytes,
    own: KeyPair,
    *,
    request: bytes,
    sender: str,
    credentials: PartyKeys | None,
    largest: int = wire.LARGEST_MESSAGE,
) -> bytes:
    """Open the reply of this sender to this request, or a refusal in the clear; `ProtocolError` for anything else.

    With `credentials`, nothing is decrypted that its sender has not signed.
    """
    outer = wire.decode(data, largest=largest + _OVERHEAD)
    if "refusal" in outer and "sealed" not in outer:
        return data
    text, signature = outer.get("sealed"), outer.get("signature")
    if outer.get("version") != SEAL_VERSION or not isinstance(text, bytes) or len(text) < KEY_BYTES:
        raise ProtocolError("reply: another version, or not of the expected form.")
    bound = _bound(Addressee(own.public, request), sender, text[:KEY_BYTES])
    if credentials is not None and not credentials.verifies(sender, _PURPOSE, _words(bound, text), signature):
        raise ProtocolError(f"reply: it is not signed by {sender}, or answers another request.")
    key = own.agree(text[:KEY_BYTES], salt=b"", info=bound)
    found = unseal(key, text[KEY_BYTES:], associated=bound)
    if found is None:
        raise ProtocolError("reply: it is not sealed for this coordinator, or answers another request.")
    return found.data


def _bound(to: Addressee, sender: str, fresh: bytes) -> bytes:
    return context("reply", hashlib.sha256(to.request).digest(), sender, fresh, to.reply_key)


def _words(bound: bytes, text: bytes) -> bytes:
    """Return what is signed. A digest, because Ed25519 reads what it signs twice, and texts are megabytes."""
    return bound + hashlib.sha256(text).digest()
