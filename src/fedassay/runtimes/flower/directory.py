"""Which node is which site: every node is asked once who it is, and believed if its signature says so."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from fedassay.errors import ProtocolError
from fedassay.protocol import wire
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import Message, PartyKeys, Randomness
from fedassay.runtimes.flower.post import HELLO, Frame, NodeLetter, Out, Post, opened_reply

log = SafeLogger("fedassay.flower")

NONCE_BYTES = 32
LARGEST_HELLO = 4096


def answer_hello(body: bytes, *, name: str, node: int, prekeys: Sequence[bytes] = ()) -> bytes:
    """A node's answer to "who are you": its name, the node id under which Flower knows it, and prekeys.

    The node id is signed with the name, so that the answer is worth nothing to a node that had it made by
    somebody else.
    """
    nonce = wire.decode(body, largest=1024).get("nonce")
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise ProtocolError("hello: the nonce is missing.")
    return wire.encode({"name": name, "node": str(node), "prekeys": list(prekeys)})


@dataclass(kw_only=True)
class Directory:
    """Finds the nodes of the expected sites (and helpers).

    Guarantee: with credentials, a node stands for a site only if it signed a fresh nonce with the key that
    the roster has for the site. If two nodes can, the first counts.

    A node works on one message after the other, whichever study it is from: a hello may have to wait for
    another study's leg. So a node is asked once, and its answer is awaited to the end; asking again every few
    seconds would only lengthen the queue. It is asked again if Flower says that the question was lost.

    Parameters
    ----------
    wait : seconds to wait for sites that are not connected yet; those that do not come count as dropouts.
    timeout : seconds beyond `wait` for nodes that are connected and have not answered yet.
    """

    post: Post
    expected: Collection[str]
    randomness: Randomness = field(repr=False)
    wait: float = 60.0
    timeout: float = 120.0
    credentials: PartyKeys | None = None
    nodes: dict[str, int] = field(default_factory=dict)
    prekeys: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """What the sites have offered with their answers."""

    def find(self) -> dict[str, int]:
        """Name to node id of everyone who could be found; whoever has been found is not looked for again."""
        deadline = time.monotonic() + self.wait
        out: Out = {}
        settled: set[int] = set()
        late = False
        while True:
            connected = set(self.post.grid.get_node_ids())
            new = connected - settled - _recipients(out)
            if new and not late:
                out |= self._ask(new)
            settled |= self._hear(out)
            now = time.monotonic()
            late = now >= deadline
            pending = _recipients(out) & connected if now < deadline + self.timeout else set()
            if set(self.expected) <= set(self.nodes) or (late and not pending):
                return dict(self.nodes)
            time.sleep(self.post.interval)

    def _ask(self, nodes: Collection[int]) -> Out:
        """Ask these nodes who they are."""
        body = wire.encode({"nonce": self.randomness.bytes(NONCE_BYTES)})
        letters = {str(node): NodeLetter(node=node, kind=HELLO, body=body) for node in sorted(nodes)}
        return self.post.send(letters, timeout=self.wait + self.timeout)

    def _hear(self, out: Out) -> set[int]:
        """Take the answers that have come; those who gave one, believed or not, need not be asked again."""
        answered = set()
        for _, letter, frame in self.post.look(out):
            if frame is not None:
                answered.add(letter.node)
                name = self._believed(frame, node=letter.node, request=letter.body)
                if name is not None:
                    self.nodes.setdefault(name, letter.node)
        return answered

    def _believed(self, frame: Frame, *, node: int, request: bytes) -> str | None:
        try:
            claim: Message = wire.decode(frame.body, largest=LARGEST_HELLO)
            name, prekeys = claim.get("name"), claim.get("prekeys")
            if claim.get("node") != str(node) or not isinstance(name, str) or name not in self.expected:
                raise ProtocolError("hello: it is from nobody who is expected.")
            opened_reply(frame, self.credentials, sender=name, request=request)
            if not isinstance(prekeys, list) or not all(isinstance(one, bytes) for one in prekeys):
                raise ProtocolError("hello: it has no list of prekeys.")
            self.prekeys.setdefault(name, tuple(prekeys))
        except ProtocolError as error:
            log.warning("node %d: %s", node, error)
            return None
        return name


def _recipients(out: Out) -> set[int]:
    return {letter.node for _, letter in out.values()}
