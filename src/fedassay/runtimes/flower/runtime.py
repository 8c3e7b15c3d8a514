"""The Flower runtime: what `fedassay.kernel.run` drives, over any Flower grid."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from fedassay.crypto.keys import KeyPair
from fedassay.errors import FederationError
from fedassay.kernel.endpoint import Endpoint
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import Party
from fedassay.runtimes.flower.directory import Directory
from fedassay.runtimes.flower.post import REQUEST, NodeLetter
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.simulated import Progress, silent

log = SafeLogger("fedassay.flower")

LEG_TIMEOUT = 120.0
"""Seconds that a site has for one leg before it counts as a dropout."""


Warn = Callable[[str], None]
"""Called with a sentence about something that went wrong and did not end the run."""


def _log(message: str) -> None:
    log.warning("%s", message)


class FlowerRuntime(MessagingRuntime):
    """Asks clients, and helpers, by messages over a Flower grid.

    Guarantee: what `Post` promises about replies; a client that is not there is a dropout, never a crash, and
    `warn` hears of it.
    Nodes are looked for when the first message is due: a run whose answers are all in its journal
    needs no nodes.

    Parameters
    ----------
    clients : the names of all clients, whether or not their nodes are there.
    directory : finds the nodes of clients and helpers.
    local : the server on this machine, for trust models that have two, and `helpers`, those at nodes.
    simulated : whether one machine holds all rows.
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
        timeout: float = LEG_TIMEOUT,
        progress: Progress = silent,
        warn: Warn = _log,
        truncated: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(reply_pair=reply_pair, credentials=directory.credentials, asker=asker)
        self.mode = "simulation" if simulated else "deployment"
        self._clients = list(clients)
        self._directory = directory
        self._simulated = simulated
        self._local = local
        self._remote = list(helpers)
        self._timeout = timeout
        self._progress = progress
        self._warn = warn
        self._truncated = truncated
        self._nodes: dict[str, int] | None = None

    @property
    def simulated(self) -> bool:
        """Whether one machine holds all rows."""
        return self._simulated

    @property
    def clients(self) -> Sequence[str]:
        """The names of all clients."""
        return list(self._clients)

    @property
    def helpers(self) -> Sequence[str]:
        """The server on this machine, and those at nodes."""
        return [] if self._local is None else [self._local.name, *self._remote]

    @property
    def truncated(self) -> int | None:
        """Rows that clients left out to keep to their bound, in their latest measurements."""
        return None if self._truncated is None else self._truncated()

    def connect(self) -> Mapping[str, int]:
        """Name to node id of everyone who is there; looked for once.

        That nobody is there at all is an error, not a dropout of all, which would end the run for good.
        """
        if self._nodes is None:
            found = self._directory.find()
            if not set(found) & set(self._clients):
                raise FederationError("flower: no site is connected; start the SuperNodes and submit again.")
            self._nodes = found
            for name, prekeys in self._directory.prekeys.items():
                self.keep(name, prekeys)
        return self._nodes

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """See `MessagingRuntime`: what sites offered when they said who they are, and with their replies."""
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
            timeout=self._timeout,
            arrived=lambda done, total: self._progress(leg, done, len(requests)),
        )
        self._tell_losses(leg, missing=requests.keys() - nodes, mute=letters.keys() - replies)
        return [(name, frame.body) for name, frame in replies.items()]

    def _tell_losses(self, leg: int, *, missing: Collection[str], mute: Collection[str]) -> None:
        if missing:
            self._warn(f"leg {leg + 1}: no connected node answers for {', '.join(sorted(missing))}.")
        if mute:
            self._warn(
                f"leg {leg + 1}: no valid answer within {self._timeout:g} seconds from "
                f"{', '.join(sorted(mute))}."
            )
