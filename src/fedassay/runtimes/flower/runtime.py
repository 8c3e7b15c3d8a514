"""The Flower runtime: driven by `fedassay.kernel.run` over any Flower grid; it knows which node is which site."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fedassay.crypto.keys import KeyPair
from fedassay.errors import FederationError, ProtocolError
from fedassay.kernel.endpoint import Endpoint
from fedassay.protocol import wire
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import Message, Party, Randomness
from fedassay.runtimes.flower.post import HELLO, REQUEST, Frame, NodeLetter, Out, Post, opened_reply
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.simulated import Progress, silent

log = SafeLogger("fedassay.flower")

LEG_TIMEOUT = 120.0
NONCE_BYTES = 32
LARGEST_HELLO = 4096


def answer_hello(body: bytes, *, name: str, node: int, prekeys: Sequence[bytes] = ()) -> bytes:
    """Return a node's answer to "who are you": its name, the node id under which Flower knows it, and prekeys.

    The node id is signed with the name, so that the answer is worth nothing to a node that had it made by
    another party.
    """
    nonce = wire.decode(body, largest=1024).get("nonce")
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise ProtocolError("hello: the nonce is missing.")
    return wire.encode({"name": name, "node": str(node), "prekeys": list(prekeys)})


@dataclass(kw_only=True)
class Directory:
    """Search for the nodes of the expected sites (and helpers).

    Guarantee: with credentials, a node stands for a site only if it signed a fresh nonce with the key that
    the roster has for the site. If two nodes can, the first counts.

    A node works on one message after the other, whichever study it is from: a hello may have to wait for
    another study's leg. So a node is asked once, and its answer is awaited to the end; asking again every few
    seconds would only lengthen the queue. It is asked again if Flower reports that the question was lost.

    Parameters
    ----------
    wait : seconds to wait for sites that are not connected yet; those that do not come count as dropouts.
    timeout : seconds that a site has for one leg before it counts as a dropout, and beyond `wait` for nodes that are
        connected and have not identified themselves yet.
    """

    post: Post
    expected: Collection[str]
    randomness: Randomness = field(repr=False)
    wait: float = 60.0
    timeout: float = LEG_TIMEOUT
    nodes: dict[str, int] = field(default_factory=dict)
    prekeys: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """Prekeys that the sites have offered with their answers."""

    def find(self) -> dict[str, int]:
        """Return name to node id of every party found; a party that has been found is not looked for again."""
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
                raise ProtocolError("hello: its sender is not expected.")
            opened_reply(frame, self.post.credentials, sender=name, request=request)
            if not isinstance(prekeys, list) or not all(isinstance(one, bytes) for one in prekeys):
                raise ProtocolError("hello: it has no list of prekeys.")
            self.prekeys.setdefault(name, tuple(prekeys))
        except ProtocolError as error:
            log.warning("node %d: %s", node, error)
            return None
        return name


def _recipients(out: Out) -> set[int]:
    return {letter.node for _, letter in out.values()}


# --- the runtime --------------------------------------------------------------------------------------------


Warn = Callable[[str], None]
"""Function that is called with a sentence about something that went wrong and did not end the run."""

_LOGGED = partial(log.warning, "%s")


class FlowerRuntime(MessagingRuntime):
    """Runtime that asks clients, and helpers, by messages over a Flower grid.

    Guarantee: what `Post` promises about replies; a client that is not there is a dropout, never a crash, and
    `warn` hears of it.
    Nodes are looked for when the first message is due: a run whose answers are all in its journal
    needs no nodes.

    Parameters
    ----------
    clients : the names of all clients, whether or not their nodes are there.
    directory : finds the nodes of clients and helpers.
    local : the server on this machine, for trust models that have two, and `helpers`, those at nodes.
    simulated : True if one machine holds all rows.
    truncated : in a simulation, counts the rows that clients left out to keep to their bound; a release never knows.
    """

    name = "flower"

    def __init__(
        self,
        *,
        clients: Sequence[str],
        directory: Directory,
        reply_pair: KeyPair,
        asker: str = "",
        simulated: bool,
        local: Endpoint | None = None,
        helpers: Sequence[str] = (),
        progress: Progress = silent,
        warn: Warn = _LOGGED,
        truncated: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(reply_pair=reply_pair, credentials=directory.post.credentials, asker=asker)
        self.mode = "simulation" if simulated else "deployment"
        self.clients, self.simulated = list(clients), simulated
        self.helpers = [] if local is None else [local.name, *helpers]
        self._directory = directory
        self._local = local
        self._progress = progress
        self._warn = warn
        self._truncated = truncated
        self._nodes: dict[str, int] | None = None

    @property
    def truncated(self) -> int | None:
        """Rows that clients left out to keep to their bound, in their latest measurements."""
        return None if self._truncated is None else self._truncated()

    def connect(self) -> Mapping[str, int]:
        """Return name to node id of every party that is there; looked for once.

        A run with no connected site is an error, not a dropout of all, which would end the run for good.
        """
        if self._nodes is None:
            found = self._directory.find()
            if not set(found) & set(self.clients):
                raise FederationError("flower: no site is connected; start the SuperNodes and submit again.")
            self._nodes = found
            for name, prekeys in self._directory.prekeys.items():
                self.keep(name, prekeys)
        return self._nodes

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """See `MessagingRuntime`: what sites offered when they identified themselves, and with their replies."""
        if names:
            self.connect()
        found = super().prekeys(names)
        missing = sorted(set(names) - set(found))
        if missing:
            self._warn(f"no connected node with a valid prekey answers for {', '.join(missing)}: left out.")
        return found

    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Iterable[tuple[str, bytes]]:
        """Send each request to its node and collect what comes back in time."""
        if to is Party.HELPER and self._local is not None and self._local.name in requests:
            others = {name: body for name, body in requests.items() if name != self._local.name}
            return [
                (self._local.name, self._local.answer(requests[self._local.name])),
                *(self.ask(to, others, leg) if others else ()),
            ]
        nodes = self.connect()
        letters = {
            name: NodeLetter(node=nodes[name], kind=REQUEST, body=body, sender_of_reply=name)
            for name, body in requests.items()
            if name in nodes
        }
        replies = self._directory.post.deliver(
            letters,
            timeout=self._directory.timeout,
            arrived=lambda done, total: self._progress(leg, done, len(requests)),
        )
        self._tell_losses(leg, missing=requests.keys() - nodes, mute=letters.keys() - replies)
        return [(name, frame.body) for name, frame in replies.items()]

    def _tell_losses(self, leg: int, *, missing: Collection[str], mute: Collection[str]) -> None:
        if missing:
            self._warn(f"leg {leg + 1}: no connected node answers for {', '.join(sorted(missing))}.")
        if mute:
            self._warn(
                f"leg {leg + 1}: no valid answer within {self._directory.timeout:g} seconds from "
                f"{', '.join(sorted(mute))}."
            )
