"""Which node is which site: every node is asked once who it is, and believed if its signature says so."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from fedassay import wire
from fedassay.errors import ProtocolError
from fedassay.protocol import Credentials, Message, Randomness
from fedassay.runtimes.flower.frames import HELLO, Frame, opened_reply
from fedassay.runtimes.flower.post import Letter, Post

log = logging.getLogger("fedassay.flower")

NONCE_BYTES = 32
_HELLO_TIMEOUT = 20.0


def answer_hello(body: bytes, *, name: str, node: int) -> bytes:
    """A node's answer to "who are you": its name, and the node id under which Flower knows it.

    The node id is signed with the name, so that the answer is worth nothing to a node that had it made by
    somebody else.
    """
    nonce = wire.decode(body, largest=1024).get("nonce")
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise ProtocolError("hello: the nonce is missing.")
    return wire.encode({"name": name, "node": str(node)})


@dataclass(kw_only=True)
class Directory:
    """Finds the nodes of the expected sites (and helpers).

    Guarantee: with credentials, a node stands for a site only if it signed a fresh nonce with the key that
    the roster has for the site. If two nodes can, the first counts.

    Parameters
    ----------
    wait : seconds to wait for sites that are not there yet; those that do not come count as dropouts.
    """

    post: Post
    expected: Collection[str]
    randomness: Randomness = field(repr=False)
    wait: float = 60.0
    credentials: Credentials | None = None
    nodes: dict[str, int] = field(default_factory=dict)

    def find(self) -> dict[str, int]:
        """Name to node id of everyone who could be found."""
        deadline = time.monotonic() + self.wait
        settled: set[int] = set()
        while len(self.nodes) < len(self.expected):
            new = [node for node in self.post.grid.get_node_ids() if node not in settled]
            if new:
                settled.update(self._greet(new, timeout=min(_HELLO_TIMEOUT, self.wait)))
            if time.monotonic() >= deadline:
                break
            if len(self.nodes) < len(self.expected):
                time.sleep(self.post.interval)
        missing = sorted(set(self.expected) - set(self.nodes))
        if missing:
            log.warning("not found within %g seconds: %s", self.wait, ", ".join(missing))
        return dict(self.nodes)

    def _greet(self, nodes: Collection[int], *, timeout: float) -> set[int]:
        """Ask these nodes who they are; those that answered need not be asked again."""
        body = wire.encode({"nonce": self.randomness.bytes(NONCE_BYTES)})
        letters = {str(node): Letter(node=node, kind=HELLO, body=body) for node in nodes}
        settled = set()
        for text, frame in self.post.deliver(letters, timeout=timeout).items():
            node = int(text)
            settled.add(node)
            name = self._believed(frame, node=node, request=body)
            if name is not None:
                self.nodes.setdefault(name, node)
        return settled

    def _believed(self, frame: Frame, *, node: int, request: bytes) -> str | None:
        try:
            claim: Message = wire.decode(frame.body, largest=1024)
            name = claim.get("name")
            if claim.get("node") != str(node) or not isinstance(name, str) or name not in self.expected:
                raise ProtocolError("hello: it is from nobody who is expected.")
            opened_reply(frame, self.credentials, sender=name, request=request)
        except ProtocolError as error:
            log.warning("node %d: %s", node, error)
            return None
        return name
