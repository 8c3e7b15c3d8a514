"""The two modes of a simulation in this process.

*Faithful*: every client computes, noises and hides its own message, and everything passes through bytes. *Aggregate*:
totals are drawn from the law that the protocol gives them, for millions of one-row clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fedassay.crypto.keys import KeyPair
from fedassay.data.federation import Federation
from fedassay.data.selection import limit_pooled, measured_rows, select_pooled_part
from fedassay.errors import UnsupportedQuery
from fedassay.kernel.client import Client, EmptyRows, bounded, takes_part
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.helper import Helper
from fedassay.kernel.run import Errand
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.vocabulary import (
    Draw,
    Exchange,
    Memory,
    Part,
    Party,
    Plan,
    Query,
    Randomness,
    Released,
    Sample,
    Sum,
    Vector,
)
from fedassay.runtimes.in_process.card import InProcess
from fedassay.runtimes.messaging import MessagingRuntime, Traffic
from fedassay.runtimes.simulated import SERVERS, Progress, SimulatedFederation, silent

# --- totals drawn from the law that the protocol gives them -------------------------------------------------


class Aggregate:
    """Runtime that draws the same totals from the same law, without simulating single messages."""

    name = "in-process"
    mode = "aggregate"
    simulated = True
    helpers: Sequence[str] = SERVERS

    def __init__(
        self, federation: Federation, *, randomness: Randomness, split_key: bytes, holdout: float = 0.3
    ) -> None:
        self._federation = federation
        self.clients = federation.clients
        self._randomness = randomness
        self._split_key = split_key
        self._holdout = holdout
        self.traffic = Traffic()
        self.refusals: Mapping[str, Refusal] = {}
        self.reasons: Mapping[str, str] = {}
        self._left_out: dict[Part, int] = {}
        self._memories: dict[tuple[str, Part, str], Memory] = {}

    @property
    def truncated(self) -> int:
        """Rows that clients left out to keep to their bound, in the latest measurement."""
        return sum(self._left_out.values())

    def prekeys(self, names: Sequence[str]) -> None:
        """Return None: no message passes."""

    def renewed(self, prekeys: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the prekeys unchanged: there are none."""
        return prekeys

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Measure all rows at once, then let the trust model draw what its protocol would have released."""
        exchange = errand.exchange
        for plan in exchange.plans:
            require_sum(plan.query)
        self._left_out = {}
        totals = []
        for plan, task in zip(exchange.plans, exchange.tasks, strict=True):
            total, left_out = self._total(plan, exchange, task)
            # Of several questions about one part the last one counts, as it does at a client.
            self._left_out[plan.query.part] = left_out
            totals.append(total)
        drawn = [plan for plan in exchange.plans if isinstance(plan.query.cohort, Sample | Draw)]
        answered = len(exchange.cohort) if drawn else self._federation.client_count
        return errand.trust.aggregate(exchange.plans, totals, answered, errand.randomness)

    def _total(self, plan: Plan, exchange: Exchange, task: str) -> tuple[Vector, int]:
        """Return the exact total, and how many rows clients left out of it."""
        if not plan.query.of.additive or isinstance(plan.query.cohort, Sample | Draw):
            return self._sum_of_each(plan, exchange, task)
        protection, left_out = plan.setting.protection, 0
        rows = select_pooled_part(
            self._federation,
            plan.query.part,
            key=self._split_key,
            unit=protection.unit,
            holdout=self._holdout,
        )
        if protection.rows_per_client is not None:
            rows, left_out = limit_pooled(rows, protection.rows_per_client, self._randomness)
        total, _ = plan.query.of.measure(rows, {})
        return total, left_out

    def _sum_of_each(self, plan: Plan, exchange: Exchange, task: str) -> tuple[Vector, int]:
        """Add up what clients measure one by one; what each remembers is kept, as clients do."""
        of, measured = plan.query.of, plan.measured
        total, left_out = np.zeros(measured.length, dtype=np.int64), 0
        for name in exchange.cohort:
            key = (task, plan.query.part, name)
            if takes_part(plan, self._randomness):
                rows, more = measured_rows(
                    self._federation.rows_of(name),
                    plan,
                    key=self._split_key,
                    client=name,
                    holdout=self._holdout,
                    randomness=self._randomness,
                )
                vector, self._memories[key] = measured.measure(rows, self._memories.get(key, {}))
                left_out += more
            else:
                vector, _ = measured.measure(EmptyRows(), {})
            total = total + bounded(vector, plan)
        return total if measured is of else of.from_leaves(total), left_out


def require_sum(query: Query[Any]) -> None:
    """Refuse what cannot be drawn in aggregate."""
    if not isinstance(query, Sum):
        raise UnsupportedQuery(
            f"{type(query).__name__} of {query.of.name}: only sums can be drawn in aggregate; use the faithful mode."
        )


# --- messages of every client -------------------------------------------------------------------------------


class Faithful(MessagingRuntime):
    """Runtime in which every client computes its own message; `drops(client, leg)` gives who is lost at which leg.

    `asker` is the public key that clients take for the signer of the requests: a simulation has no signatures.
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
        """Reasons of the clients that refused, which only they know outside of a simulation."""
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
        """Return fresh prekeys, from the clients themselves."""
        found = {n: self._clients[n].offer(1, asker=self.asker)[0] for n in names if n in self._clients}
        self._handed_out.update(found.values())
        return found

    def keep(self, name: str, prekeys: Sequence[bytes]) -> None:
        """Keep nothing: fresh prekeys are available at any time."""


# --- the clients of a simulation in this process ------------------------------------------------------------


def start(
    parameters: InProcess, federation: SimulatedFederation
) -> AbstractContextManager[Faithful | Aggregate]:
    """Start the simulation; see `RuntimeCard`. Nothing has to be closed."""
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
