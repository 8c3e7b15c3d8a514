"""Every client of a simulation computes, noises and hides its own message, and everything passes through bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from fedassay.crypto.keys import KeyPair
from fedassay.kernel.client import Client
from fedassay.kernel.helper import Helper
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.vocabulary import Party
from fedassay.runtimes.in_process.aggregate import Aggregate
from fedassay.runtimes.in_process.card import InProcess
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.simulated import Progress, SimulatedFederation, silent


class Faithful(MessagingRuntime):
    """Every client computes its own message; `drops(client, leg)` says who is lost at which leg.

    `asker` is the public key that clients are to believe has signed the requests: nobody signs in a simulation.
    """

    name = "in-process"
    mode = "faithful"
    simulated = True

    def __init__(
        self,
        clients: Iterable[Client],
        *,
        helpers: Iterable[Helper] = (),
        drops: Callable[[str, int], bool] = lambda name, leg: False,
        progress: Progress = silent,
        asker: str | None = None,
    ) -> None:
        super().__init__(reply_pair=KeyPair.draw(SecureRandomness()), asker=asker or "")
        self._reasons: dict[str, str] = {}
        self._clients = {client.name: client for client in clients}
        self._helpers = {helper.name: helper for helper in helpers}
        self.clients, self.helpers = list(self._clients), list(self._helpers)
        self._drops = drops
        self._progress = progress

    @property
    def truncated(self) -> int:
        """Rows that clients left out to keep to their bound."""
        return sum(client.truncated for client in self._clients.values())

    @property
    def reasons(self) -> dict[str, str]:
        """Why the clients that refused did so, which only they know outside of a simulation."""
        return {name: self._reasons[name] for name in self.refusals if name in self._reasons}

    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Iterator[tuple[str, bytes]]:
        """Hand each request to its client and bring back the replies of those that are not lost."""
        endpoints: Mapping[str, Client | Helper] = self._clients if to is Party.CLIENTS else self._helpers
        for done, (name, request) in enumerate(requests.items()):
            if name in endpoints and not self._drops(name, leg):
                reply = endpoints[name].answer(request, asker=self.asker or None)
                if (reason := endpoints[name].reason) is not None:
                    self._reasons[name] = str(reason)
                yield name, reply
            self._progress(leg, done + 1, len(requests))

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Fresh ones, from the clients themselves."""
        found = {n: self._clients[n].offer(1, asker=self.asker)[0] for n in names if n in self._clients}
        self._handed_out.update(found.values())
        return found

    def keep(self, name: str, prekeys: Sequence[bytes]) -> None:
        """Fresh ones can be had at any time."""


# --- the clients of a simulation in this process ------------------------------------------------------------


def start(
    parameters: InProcess, federation: SimulatedFederation
) -> AbstractContextManager[Faithful | Aggregate]:
    """See `RuntimeCard`. Nothing has to be closed."""
    single = federation.single and parameters.mode == "auto"
    passes = parameters.passes_messages(federation.rows.client_count, policy=federation.policy is not None)
    if single or passes:
        return nullcontext(
            Faithful(
                federation.clients(),
                helpers=federation.servers(),
                progress=federation.progress,
                asker=federation.asker,
            )
        )
    return nullcontext(
        Aggregate(
            federation.rows,
            randomness=federation.randomness.child("limit"),
            split_key=federation.split_key,
            holdout=federation.holdout,
        )
    )
