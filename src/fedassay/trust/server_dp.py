"""Server-side differential privacy: a trusted server adds exact integer noise to the exact total."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedassay.errors import ProtocolError, UnsupportedQuery
from fedassay.privacy import accounting
from fedassay.privacy.amplification import amplifies, calibrate_sampled
from fedassay.protocol.vocabulary import (
    Budget,
    Exchange,
    Measure,
    Message,
    Noise,
    Plan,
    Query,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Sample,
    Sensitivity,
    Setting,
    Sum,
    TrustModel,
    Vector,
)
from fedassay.trust import plain
from fedassay.trust.card import budget_of, exactly, protected, refuse_points
from fedassay.trust.local_reports import room_beside, spread


@dataclass(frozen=True, kw_only=True)
class ServerDP(TrustModel):
    """Vectors in the clear to a trusted server, which publishes noisy totals only.

    Guarantee: what is published is (epsilon, delta)-differentially private for the stated unit and
    neighbours, for all queries of a task together (`accounting.calibrate`). Assumption: the server is trusted
    with every client's exact summary, adds the noise, keeps exact totals to itself and draws from a secure
    source.

    What counts as public: who is in the cohort, and who answered. With unit client, "without the client"
    therefore means a client that takes part but has no rows: it still answers, with the summary of no rows.
    A client must not decide by its data whether to answer.

    All clients of a sampled cohort are asked, and each decides by a secret coin whether it takes part; otherwise
    it answers as a client without rows. Readers of what is published do not learn who did, so that releases of equal
    shares need less noise where whole clients are protected (`privacy.sampling`); elsewhere every release is charged
    as if all clients took part. Against the server, which is trusted, none of this counts.
    """

    name: ClassVar[str] = "server-dp"
    private: ClassVar[bool] = True
    clients_sample: ClassVar[bool] = True

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Choose the noise from the budget, the summary's sensitivity and the query's share; sums only."""
        refuse_points(query)
        budget = budget_of(setting, self.name)
        if not isinstance(query, Sum):
            raise UnsupportedQuery(
                f"{type(query).__name__}: under server-dp only totals get noise, the message of a single "
                "client carries none of its own; use local-dp."
            )
        sensitivity = query.of.sensitivity(setting.protection)
        noise, sampled = _noise(query, setting, budget, sensitivity)
        plain.check_no_wrap(query, setting, limit=room_beside(noise, query.of))
        return Plan(query=query, setting=setting, sensitivity=sensitivity, noise=noise, sampled=sampled)

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Run the server half: one round, add up, add noise."""
        answers = yield from plain.ask_for_vectors(exchange)
        columns = zip(*answers, strict=True)
        totals = [
            plain.total(column, plan, limit=room_beside(plan.noise, plan.query.of))
            for plan, column in zip(exchange.plans, columns, strict=True)
        ]
        return self.aggregate(exchange.plans, totals, len(answers), randomness)

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Run the client half: return the exact vectors; the server is trusted with them."""
        return plain.answer(request, measure), {}

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Add noise to exact totals, as the real exchange does in the end."""
        return tuple(
            Released(value=_noisy(total, plan, randomness), noise=plan.noise, clients=clients)
            for plan, total in zip(plans, totals, strict=True)
        )

    def statement(self, setting: Setting) -> str:
        """State who is protected, how well, against whom, and who must be trusted."""
        budget = budget_of(setting, self.name)
        mechanism = (
            "discrete Laplace noise" if budget.delta == 0 else "discrete Laplace or discrete Gaussian noise"
        )
        return (
            f"What is published is differentially private for {protected(setting.protection)}, with epsilon = "
            f"{exactly(budget.epsilon)} and delta = {exactly(budget.delta)}. "
            "The server must be trusted: it sees every client's exact summary and adds the noise. Published "
            f"are noisy totals ({mechanism}, drawn exactly), what is computed from them, and which clients "
            "answered. Where clients take part in a release by chance, each decides for itself, and neither who did "
            "nor how many is published: that counts against readers of what is published, not against the server."
        )


def _noise(
    query: Sum[Any], setting: Setting, budget: Budget, sensitivity: Sensitivity
) -> tuple[Noise, float]:
    """Return the noise, and the probability of taking part as far as it counts for the guarantee."""
    cohort = query.cohort
    if isinstance(cohort, Sample) and amplifies(budget, setting.protection, cohort, query.share):
        noise = calibrate_sampled(
            budget, sensitivity, rate=cohort.rate, share=query.share, length=query.of.draws
        )
        if noise is not None:
            return noise, cohort.rate
    return accounting.calibrate(budget, sensitivity, query.share), 1.0


def _noisy(total: Vector, plan: Plan, randomness: Randomness) -> Vector:
    # Exact totals leave here only through this sum; the bounds make it exact in 64 bits.
    summary = plan.query.of
    if total.size and max(int(total.max()), -int(total.min())) >= room_beside(plan.noise, summary):
        raise ProtocolError(f"{summary.name}: the total exceeds the bound of its plan.")
    return total + spread(summary, accounting.draw(plan.noise, summary.draws, randomness))
