"""The only code that sees rows: policy, ledger, bounds, measurement, then the trust model's client half."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from fedassay.data.bounds import limit_rows
from fedassay.data.split import select_part
from fedassay.endpoint import Endpoint, Memories, Store
from fedassay.envelope import Envelope, Summaries, TrustModels
from fedassay.errors import DataError, ProtocolError
from fedassay.privacy.ledger import Charge, Ledger
from fedassay.privacy.policy import Policy, PolicyRequest
from fedassay.protocol import Batch, Credentials, Message, Part, Plan, Randomness, Rows, Sample, Vector
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a client brings: its rows and its own rules. Nothing in here ever leaves.

    `rows` opens the validated rows (called only when a measurement is due); `split_key` decides which rows
    are held out, the same ones in every run.
    """

    name: str
    dataset: str
    rows: Callable[[], Rows] = field(repr=False)
    policy: Policy
    ledger: Ledger
    randomness: Randomness = field(repr=False)
    split_key: bytes = field(repr=False)
    held_out: float = 0.3
    roles: frozenset[str] | None = None
    """The columns that the site has named, by role; None if whatever there is may be asked for."""
    credentials: Credentials | None = field(default=None, repr=False)


class Client(Endpoint):
    """One client of a federation.

    Guarantee: before the first byte of an exchange leaves, the site's policy has allowed every query of it
    and the site's ledger has been charged for all of them.
    """

    def __init__(
        self,
        site: Site,
        *,
        store: Store | None = None,
        summaries: Summaries = CATALOGUE,
        trust_models: TrustModels = TRUST_MODELS,
    ) -> None:
        super().__init__(
            site.name,
            store=store if store is not None else Store(),
            summaries=summaries,
            trust_models=trust_models,
        )
        self.site = site
        self._left_out: dict[Part, int] = {}

    @property
    def truncated(self) -> int:
        """Rows left out by the bound on rows per client, in the latest measurement. Stays at the site."""
        return sum(self._left_out.values())

    def begins(self, opened: Envelope) -> bool:
        """At the leg at which the trust model asks clients first."""
        return opened.request.leg == opened.trust.first_client_leg

    def agree(self, opened: Envelope) -> None:
        """Ask the site's policy, then charge its ledger; either may refuse, and then nothing is sent."""
        plans, exchange = opened.request.plans, opened.request.exchange
        for plan in plans:
            self._require_roles(plan)
            self.site.policy.check(PolicyRequest.of(plan, study=opened.study, cohort=opened.request.cohort))
        charges = [
            Charge.of(plan, id=f"{exchange.hex()}/{index}", dataset=self.site.dataset, study=opened.study)
            for index, plan in enumerate(plans)
        ]
        # A charge that is known belongs to an answer that this client has lost: another one is not paid for.
        if any(self.site.ledger.has(charge.id) for charge in charges):
            raise ProtocolError("request: it was charged before, and what was answered then is lost.")
        self.site.ledger.charge(charges)

    def _require_roles(self, plan: Plan) -> None:
        """Refuse, before rows are looked at, what needs columns that the site has not named: with or without rows."""
        missing = [] if self.site.roles is None else sorted(set(plan.measured.columns) - self.site.roles)
        if missing:
            raise DataError(
                f"{plan.measured.name}: it needs the column {missing[0]}, which this site has not named; name it too."
            )

    def reply(self, opened: Envelope, state: Message) -> tuple[Message, Message]:
        """The trust model's client half; rows are read only if it asks for the measurement."""
        learned: Memories = {}
        request = replace(opened.request, credentials=self.site.credentials)
        answered = opened.trust.respond(
            request, lambda: self._measure(opened, learned), state, self.site.randomness
        )
        self.store.memories.update(learned)
        return answered

    def _measure(self, opened: Envelope, learned: Memories) -> tuple[Vector, ...]:
        vectors = []
        self._left_out = {}
        for plan, task in zip(opened.request.plans, opened.tasks, strict=True):
            # What was learned from some rows must not speak in an answer about others, which are paid for apart.
            key = (opened.study, task, plan.query.part)
            memory = learned.get(key, self.store.memories.get(key, {}))
            if takes_part(plan, self.site.randomness):
                vector, learned[key] = plan.measured.measure(self._bounded_rows(plan), memory)
            else:  # nor must what it remembers speak
                vector, _ = plan.measured.measure(NoRows(), {})
            vectors.append(bounded(vector, plan))
        return tuple(vectors)

    def _bounded_rows(self, plan: Plan) -> Rows:
        protection = plan.setting.protection
        rows = select_part(
            self.site.rows(),
            plan.query.part,
            key=self.site.split_key,
            unit=protection.unit,
            client=self.site.name,
            held_out=self.site.held_out,
        )
        if protection.rows_per_client is None:
            return rows
        part = plan.query.part
        rows, self._left_out[part] = limit_rows(rows, protection.rows_per_client, self.site.randomness)
        return rows


class NoRows:
    """The rows of a client that has none, or does not take part."""

    def batches(self) -> Iterator[Batch]:
        """Nothing."""
        return iter(())


def takes_part(plan: Plan, randomness: Randomness) -> bool:
    """The secret coin of a client, where it decides for itself; true elsewhere.

    It comes up with a probability that is the stated one rounded down to a multiple of 2^-64.
    """
    cohort = plan.query.cohort
    if not (plan.setting.trust.clients_sample and isinstance(cohort, Sample)):
        return True
    return int(randomness.words(1)[0]) < int(Fraction(cohort.rate) * 2**64)


def bounded(vector: Vector, plan: Plan) -> Vector:
    """The vector as the plan's proofs (no wrap, sensitivity) assume it: entries beyond the bound are cut.

    Cut, not refused: whether a client refuses is seen by the server, and a bound that the server chose would
    then tell it what was measured. Cutting each entry moves no two vectors further apart, entry by entry; summaries
    that spread their noise see to it themselves that nothing is cut.
    """
    summary = plan.measured
    if vector.dtype != np.int64 or vector.shape != (summary.length,):
        raise DataError(f"{summary.name}: the measured vector is not {summary.length} whole numbers.")
    return np.clip(vector, -summary.largest, summary.largest)
