"""The two requests and replies of a secure sum: the agreed terms, and the reading of strangers' messages.

Clients and members believe nothing of what they receive: each computes the numbers and the session for itself, and
raises `ProtocolError` for anything else than an honest coordinator would send. The coordinator takes a malformed reply
for a silent client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, cast

from fedassay.crypto.field61 import Elements, require_reduced
from fedassay.crypto.keys import KEY_BYTES, KeyPair, Secret, context
from fedassay.crypto.prekeys import PAD_KEY_BYTES, Prekey
from fedassay.errors import FedassayError, ProtocolError
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    COORDINATOR,
    SECOND_SERVER,
    Exchange,
    Message,
    PartyKeys,
    Request,
    TrustModel,
)
from fedassay.trust.card import OneShotParameters
from fedassay.trust.one_shot.sizes import Sizes, colluders_of
from fedassay.trust.question import canonical, question

SPOKEN = "secure sum: message"
ANSWERED = "secure sum: answer"
"""The purposes for which clients sign what they send, and members the set that they answer."""

SIGNATURE_BYTES = 64

_VERSION = "one-shot sum 2: p = 2^61 - 1, entries at 1..l, members at l + 1.."


def require(holds: bool, sentence: str) -> None:  # noqa: FBT001
    """Refuse what the coordinator sent."""
    if not holds:
        raise ProtocolError(f"secure sum: {sentence}")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Terms that all parties of an exchange agree on; `session` is a digest of all of them.

    Parameters
    ----------
    cohort : the clients that are asked, sorted.
    members : those that answer in the second leg, in the order of their shares, with their prekeys.
    deadline : time until which members may be asked (seconds since 1970).
    asker : the coordinator's public key as text.
    roster : a digest of the public keys that are pinned for cohort and members; empty in a simulation.
    """

    exchange: bytes
    question: bytes
    trust: bytes
    noise: tuple[str, ...]
    length: int
    cohort: tuple[str, ...]
    members: tuple[tuple[str, Prekey], ...]
    deadline: int
    asker: str
    roster: bytes
    sizes: Sizes

    @classmethod
    def of(cls, trust: TrustModel, exchange: Exchange, sizes: Sizes) -> Terms:
        """Make the terms of an exchange, as its coordinator and each client make them alike."""
        public = {field.name: getattr(trust, field.name) for field in fields(cast(Any, trust))}
        return cls(
            exchange=exchange.id,
            question=question(exchange.plans),
            trust=canonical([trust.name, public]),
            noise=tuple(plan.noise.law for plan in exchange.plans),
            length=sum(plan.query.of.length for plan in exchange.plans),
            cohort=tuple(sorted(exchange.cohort)),
            members=tuple((name, Prekey.unpacked(prekey)) for name, prekey in exchange.prekeys.items()),
            deadline=exchange.deadline,
            asker=exchange.asker,
            roster=digest_of_keys(keys_of([*exchange.cohort, *exchange.prekeys], exchange.credentials)),
            sizes=sizes,
        )

    @cached_property
    def agreed(self) -> bytes:
        """All of it, as bytes."""
        agreed = {field.name: getattr(self, field.name) for field in fields(self)}
        sizes = [getattr(self.sizes, field.name) for field in fields(self.sizes)]
        return wire.encode({"version": _VERSION, **agreed, "members": self._members, "sizes": sizes})

    @cached_property
    def session(self) -> bytes:
        """The digest that all pads and signatures of the exchange are bound to."""
        return hashlib.sha256(self.agreed).digest()

    @property
    def columns(self) -> int:
        """Number of elements of a pad, a share and an answer."""
        return self.sizes.packing.columns(self.length)

    def to_message(self) -> Message:
        """Return what the coordinator sends; everything else each party computes for itself."""
        return {"cohort": list(self.cohort), "members": self._members, "deadline": self.deadline}

    @property
    def _members(self) -> list[list[Any]]:
        return [[name, prekey.packed()] for name, prekey in self.members]

    def pad_key(self, own: KeyPair, other: bytes, parties: tuple[str, str, bytes]) -> Secret:
        """Return the key of the pad between a client and a member, as both compute it, bound to the session and to
        these parties: the client, the member, and the client's public key.
        """
        return own.agree(other, salt=self.session, info=context("pad", *parties), length=PAD_KEY_BYTES)

    def spoken(self, client: str, public: bytes) -> bytes:
        """Return what a client signs: this is my key in this session. Its corrections are signed with the reply."""
        return context("message", self.session, client, public)

    def answered(self, named: NamedSet) -> bytes:
        """Return what a member signs: I have answered once in this session, on these clients' messages."""
        return answered_words(self.session, tuple(named.clients), named.digest)


def answered_words(session: bytes, clients: Sequence[str], set_digest: bytes) -> bytes:
    """Return the words under a member's answer, which `fedassay verify` checks again."""
    names = _digest("clients", list(clients))
    return context("answer", session, names, len(clients), set_digest)


def keys_of(names: Iterable[str], credentials: PartyKeys | None) -> dict[str, bytes]:
    """Return the public keys that a party has pinned for these sites; none in a simulation."""
    return (
        {}
        if credentials is None
        else {name: credentials.sites[name] for name in sorted(dict.fromkeys(names))}
    )


def digest_of_keys(keys: Mapping[str, bytes]) -> bytes:
    """Return the digest of pinned keys that the terms hold, so that all sites must have pinned the same."""
    names = sorted(keys)
    return _digest("roster", [names, [keys[name] for name in names]]) if keys else b""


def _digest(what: str, items: list[Any]) -> bytes:
    """Return the digest of a list, which the wire format makes one unambiguous string of."""
    return hashlib.sha256(wire.encode({what: items})).digest()


# --- what parties receive ---------------------------------------------------------------------------------------


def told(request: Request) -> Exchange:
    """Read the exchange in a request with just the fields of its leg: names in order, each once, all of them sites."""
    message, more = request.message, {"named"} if request.leg else set()
    require(message.keys() == {"cohort", "members", "deadline"} | more, "the message has other fields.")
    cohort, members, deadline = message["cohort"], message["members"], message["deadline"]
    require(type(deadline) is int and 0 <= deadline < 2**63, "the deadline is no time.")
    require(isinstance(cohort, list) and {*map(type, cohort)} <= {str}, "the cohort is no list.")
    in_order = cohort == sorted(cohort) and len(set(cohort)) == len(cohort)
    require(in_order, "the cohort's names are not in order, each once.")
    require(
        len(cohort) == request.cohort, f"got {len(cohort)} clients, expected {request.cohort} as was said."
    )
    pairs: list[Any] = members if isinstance(members, list) else [None]
    require(all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in pairs), "no members.")
    names, publics = {name for name, _ in pairs}, {Prekey.unpacked(prekey).public for _, prekey in pairs}
    require(len(names) == len(pairs) == len(publics), "a member or a prekey is named twice.")
    # The second server holds no rows, and the coordinator is a party of its own: with either, two would pass for three.
    everybody = names.union(cohort)
    require(everybody.isdisjoint((COORDINATOR, SECOND_SERVER)), "the cohort holds a name that is no site's.")
    require(
        request.credentials is None or request.credentials.sites.keys() >= everybody,
        "it names a client whose key is not pinned here.",
    )
    return Exchange(
        id=request.exchange,
        plans=request.plans,
        cohort=tuple(cohort),
        prekeys=dict(pairs),
        deadline=deadline,
        asker=request.asker,
        credentials=request.credentials,
    )


def require_pinned(terms: Terms, request: Request, trust: OneShotParameters) -> None:
    """Require that all is signed by parties that this site has pinned, and count colluders over all of those.

    Rules about other sets of clients hold only where every honest site has seen all of these: with such a rule, the
    cohort must be the whole roster.
    """
    credentials, N = request.credentials, request.plans[0].setting.clients
    whole = trust.same_set or trust.cohort_difference > 0
    if credentials is None:
        require(not whole or len(terms.cohort) == N, "the cohort is not the whole roster, as was agreed.")
        return
    require(
        colluders_of(credentials.pinned, trust.collusion) <= terms.sizes.colluders,
        f"colluders are counted over {N:,} sites, expected the {credentials.pinned:,} of this site's roster; use a "
        "site's file with the roster of this study alone.",
    )
    require(
        not whole or len(terms.cohort) == credentials.pinned, "the cohort is not this site's whole roster."
    )
    for name, prekey in terms.members:
        require(
            prekey.is_of(name, coordinator=request.asker, credentials=credentials),
            f"the prekey of {name!r} is not signed by the key that is pinned for it.",
        )
    assert request.membership is not None
    request.membership.require_fresh(terms.members, until=terms.deadline)


class Spoken(NamedTuple):
    """A client's message, without its corrections."""

    public: bytes
    signature: bytes


class NamedSet(NamedTuple):
    """The clients whose sum is opened, each with its message, in the order of the cohort."""

    clients: dict[str, Spoken]
    digest: bytes

    @classmethod
    def of(cls, terms: Terms, clients: Mapping[str, Spoken]) -> NamedSet:
        """Return the set of these clients."""
        ordered = {name: clients[name] for name in terms.cohort if name in clients}
        return cls(
            ordered, _digest("set", [terms.session, *([name, *said] for name, said in ordered.items())])
        )

    def to_message(self, terms: Terms) -> list[list[Any]]:
        """Return the clients by their places in the cohort."""
        places = {name: place for place, name in enumerate(terms.cohort)}
        return [[places[name], *spoken] for name, spoken in self.clients.items()]


def told_set(request: Request, terms: Terms) -> NamedSet:
    """Return the set in a request for an answer: large enough, of clients who have each signed their entry."""
    named = request.message["named"]
    entries: list[Any] = named if isinstance(named, list) else [None]
    for entry in entries:
        require(isinstance(entry, list) and len(entry) == 3 and type(entry[0]) is int, "the set is no list.")
        require(_is_spoken(*entry[1:]), "the set holds something that is no client's message.")
    places = [entry[0] for entry in entries]
    require(
        places == sorted(set(places)) and (not places or 0 <= places[0] <= places[-1] < len(terms.cohort)),
        "the set's clients are not in order, each once, or not in the cohort.",
    )
    require(
        len(entries) >= terms.sizes.least,
        f"got a set of {len(entries)} clients, expected at least {terms.sizes.least}.",
    )
    clients = {terms.cohort[place]: Spoken(*rest) for place, *rest in entries}
    require(len({spoken.public for spoken in clients.values()}) == len(clients), "two clients have one key.")
    for name, spoken in clients.items():
        require(
            is_spoken_by(name, spoken, terms, request.credentials),
            f"the message of {name!r} is not signed by the key that is pinned for it.",
        )
    return NamedSet.of(terms, clients)


def _is_spoken(public: object, signature: object) -> bool:
    return isinstance(public, bytes) and len(public) == KEY_BYTES and _is_signature(signature)


def _is_signature(signature: object) -> bool:
    """Return whether it has the form of a signature, or of none, as in a simulation."""
    return isinstance(signature, bytes) and len(signature) in (0, SIGNATURE_BYTES)


def is_spoken_by(name: str, spoken: Spoken, terms: Terms, credentials: PartyKeys | None) -> bool:
    """Return whether the client of this name has signed the message; True in a simulation, without signatures."""
    words = terms.spoken(name, spoken.public)
    return credentials is None or credentials.verifies(name, SPOKEN, words, spoken.signature)


# --- what the coordinator reads -------------------------------------------------------------------------------


def read_spoken(reply: object, terms: Terms) -> tuple[Spoken, Elements] | None:
    """Read a client's message and its corrections; None if it is not exactly of the expected form."""
    shape = (terms.sizes.packing.corrected, terms.columns)
    if (corrections := _read(reply, "corrections", shape, {"public", "signature"})) is None:
        return None
    spoken = Spoken(reply["public"], reply["signature"])  # type: ignore[index]
    return (spoken, corrections) if _is_spoken(*spoken) else None


def read_answer(reply: object, terms: Terms) -> tuple[Elements, bytes] | None:
    """Read a member's answer and its signature; None if it is not exactly of the expected form."""
    if (answer := _read(reply, "answer", (terms.columns,), {"signature"})) is None:
        return None
    signature = reply["signature"]  # type: ignore[index]
    return (answer, signature) if _is_signature(signature) else None


def _read(reply: object, what: str, shape: tuple[int, ...], others: set[str]) -> Elements | None:
    """Read the array in a reply that has it and these other fields."""
    if not isinstance(reply, dict) or reply.keys() != {what, *others}:
        return None
    try:
        return require_reduced(reply[what], shape=shape, what=what)
    except FedassayError:
        return None
