"""Introduction of two servers to clients and to each other: common part of trust models with a second server.

In the first leg both servers draw a key for this exchange alone, and sign it if they have an identity. All other
parties get names, keys and signatures from the relay, which is not trusted: a party with a roster believes only what
is signed.
The relay asks both servers, or one, and ends the exchange if one does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedassay.crypto.keys import KeyPair, Secret, context, is_usable
from fedassay.errors import FederationError, ProtocolError, UsageError
from fedassay.protocol.vocabulary import (
    SECOND_SERVER,
    Exchange,
    Message,
    Party,
    PartyKeys,
    Randomness,
    Replies,
    Request,
    Round,
)

SIGNATURE_BYTES = 64
INTRODUCTION = frozenset({"servers", "keys", "signatures"})
"""Fields of an introduction, in every message that has one."""


class Pair(NamedTuple):
    """Pair of things, one for, or of, each server."""

    first: bytes
    second: bytes


class Introduced(NamedTuple):
    """Both servers: their names, the public keys that they use in this exchange, and their signatures."""

    names: tuple[str, str]
    keys: Pair
    signatures: Pair


@dataclass(frozen=True)
class Introductions:
    """Introductions of one trust model; a signature for one is worth nothing under another.

    Each `told_` function returns the checked content of a request or raises `ProtocolError`: the party stays silent.
    """

    trust: str

    @property
    def purpose(self) -> str:
        """The purpose for which servers sign their public keys."""
        return f"{self.trust} key"

    def require(self, holds: bool, sentence: str) -> None:  # noqa: FBT001
        """Refuse a message."""
        if not holds:
            raise ProtocolError(f"{self.trust}: {sentence}")

    def fields(self, message: object, names: set[str], *, who: str = "the relay") -> dict[str, object]:
        """Return the message, if it is a mapping with these fields and no others."""
        if not isinstance(message, dict) or message.keys() != names:
            raise ProtocolError(
                f"{self.trust}: got a message of {who} without its fields {', '.join(sorted(names))}."
            )
        return message

    # --- what a server says of itself -------------------------------------------------------------------------

    def hello(
        self, request: Request, session_of: Callable[[tuple[str, str]], bytes], randomness: Randomness
    ) -> tuple[Message, Message]:
        """Return a server's reply to the first leg, and what it keeps: its place, the session, and its private half."""
        servers = self._names(self.fields(request.message, {"servers"})["servers"])
        name, credentials = request.recipient, request.credentials
        self.require(name in servers, f"got the servers {servers}, expected this one to be among them.")
        party, session, own = servers.index(name), session_of(servers), KeyPair.draw(randomness)
        words = self.signed_words(session, party, own.public)
        signature = b"" if credentials is None else credentials.sign(self.purpose, words)
        return {"public": own.public, "signature": signature}, {
            "servers": list(servers),
            "party": party,
            "session": session,
            "private": own.private.data,
        }

    def signed_words(self, session: bytes, party: int, public: bytes) -> bytes:
        """Return the words that a server signs: this is my key, in this session, as this party."""
        return context(self.purpose, session, party, public)

    def read_key(self, reply: object, *, server: str) -> tuple[bytes, bytes]:
        """Return what the relay reads: a server's public key and its signature (empty if it has no identity)."""
        found = self.fields(reply, {"public", "signature"}, who=server)
        public, signature = found["public"], found["signature"]
        if not (isinstance(public, bytes) and is_usable(public) and is_signature(signature)):
            raise ProtocolError(f"{self.trust}: got no usable key from {server}.")
        assert isinstance(signature, bytes)
        return public, signature

    # --- what others receive --------------------------------------------------------------------------------------

    def told_servers(self, message: object) -> Introduced:
        """Read both servers' names, keys and signatures; they must differ."""
        told = self.fields(message, set(INTRODUCTION))
        names = self._names(told["servers"])
        keys, signatures = told["keys"], told["signatures"]
        if not (isinstance(keys, list) and len(keys) == 2 and all(is_usable(key) for key in keys)):
            raise ProtocolError(f"{self.trust}: got no usable key of each server.")
        self.require(keys[0] != keys[1], "both servers have the same key: they are one.")
        if not (isinstance(signatures, list) and len(signatures) == 2 and all(map(is_signature, signatures))):
            raise ProtocolError(f"{self.trust}: got no signature of each server.")
        return Introduced(names, Pair(*keys), Pair(*signatures))

    def check_servers(self, servers: Introduced, session: bytes, credentials: PartyKeys | None) -> None:
        """Check that the second server is the one that is pinned as such, and that its key is signed.

        Under another name the coordinator, which runs the first server, could appoint any site that works with it.
        The first server belongs to the asker, who asks through a transport that identifies it. If the roster has a key
        for the first server, that key must have signed too.
        """
        if credentials is None:
            return
        second = servers.names[1]
        self.require(
            second == SECOND_SERVER and credentials.knows(second),
            f"got {second!r} as the second server, expected the one that the roster lists as {SECOND_SERVER!r}.",
        )
        for party, name in enumerate(servers.names):
            if credentials.knows(name):
                self._check_signed(servers, party, session, credentials)

    def told_later(
        self, request: Request, state: Message, *also: str
    ) -> tuple[KeyPair, Introduced, dict[str, Any]]:
        """Read a server's own pair, both servers, and the other fields of a message in which these are introduced.

        It believes that the other server is the one of the first leg, that its key stays, and that it has signed it.
        `state` is that of `hello` and, once known, has the `keys`.
        """
        told = self.fields(request.message, {*INTRODUCTION, *also})
        servers = self.told_servers({name: told[name] for name in INTRODUCTION})
        own, party = KeyPair.of(Secret(state["private"])), state["party"]
        self.require(
            list(servers.names) == state["servers"] and servers.keys[party] == own.public,
            "got other servers than in the first leg.",
        )
        known = state.get("keys", list(servers.keys))
        self.require(known == list(servers.keys), "the key of the other server has changed.")
        if request.credentials is not None:
            self._check_signed(servers, 1 - party, state["session"], request.credentials)
        return own, servers, told

    def _check_signed(self, servers: Introduced, party: int, session: bytes, credentials: PartyKeys) -> None:
        name, signature = servers.names[party], servers.signatures[party]
        words = self.signed_words(session, party, servers.keys[party])
        self.require(
            credentials.verifies(name, self.purpose, words, signature),
            f"the key of {name!r} is not signed by the key that is pinned for it.",
        )

    def _names(self, value: object) -> tuple[str, str]:
        if not (isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value)):
            raise ProtocolError(f"{self.trust}: got no names of two servers.")
        self.require(value[0] != value[1], f"both servers are {value[0]!r}, expected two.")
        return value[0], value[1]

    # --- the relay --------------------------------------------------------------------------------------------

    def servers(self, exchange: Exchange) -> tuple[str, str]:
        """Return the names of the two servers."""
        names = exchange.helpers
        if len(names) != 2 or names[0] == names[1]:
            raise UsageError(
                f"{self.trust}: got {len(set(names))} servers, expected two; name the second one."
            )
        return names[0], names[1]

    def ask(self, requests: Mapping[str, Message]) -> Generator[Round, Replies, tuple[Any, ...]]:
        """Carry out a leg to one server or both; without any of their replies there is no release."""
        replies = yield Round(to=Party.HELPER, requests=requests)
        for server in requests:
            if server not in replies:
                raise FederationError(
                    f"{self.trust}: {server} did not answer, or refused; both servers are needed. See its log, and run "
                    "again."
                )
        return tuple(replies[server] for server in requests)

    def introduced(self, servers: tuple[str, str]) -> Generator[Round, Replies, Message]:
        """Carry out the first leg: return both servers' names, keys and signatures, as all others receive them."""
        replies = yield from self.ask({server: {"servers": list(servers)} for server in servers})
        read = [self.read_key(reply, server=name) for reply, name in zip(replies, servers, strict=True)]
        return {
            "servers": list(servers),
            "keys": [public for public, _ in read],
            "signatures": [signature for _, signature in read],
        }


def is_signature(value: object) -> bool:
    """Return whether this can be a signature: the right length, or empty where signatures are not used."""
    return isinstance(value, bytes) and len(value) in (0, SIGNATURE_BYTES)
