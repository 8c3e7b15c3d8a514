"""Local differential privacy: every message is private before it leaves its client. No party is trusted.

Two encodings of what is summed or collected:

* `unary`: a client says in which cell of one public partition of the summary it is, by randomised bits (see
  `unary_encoding`). For clients with one row, or none.
* `noise`: a client adds noise to its own vector. For clients with many rows.

Where clients choose among public candidates (`Select`), each draws its choice (`privacy.choices`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedassay.errors import UnsupportedQuery
from fedassay.privacy import accounting
from fedassay.privacy.accounting import UNARY
from fedassay.protocol.vocabulary import (
    Budget,
    Collect,
    Exchange,
    Measure,
    Message,
    Neighbours,
    Noise,
    Part,
    Plan,
    Protection,
    Query,
    Randomness,
    Released,
    Replies,
    Request,
    Round,
    Select,
    Sensitivity,
    Setting,
    Sum,
    TrustModel,
    Unit,
    Vector,
)
from fedassay.trust import plain
from fedassay.trust.card import LocalParameters, budget_of, exactly, protected, refuse_points, require_sum
from fedassay.trust.local_reports import (
    LIMIT,
    SMALLEST_SCALE,
    Question,
    Report,
    UnaryEncoding,
    assigned,
    estimated,
    largest_report,
    reported,
    several,
    simulated_partition,
    spread,
    sum_of_draws,
)

_ONE = Sensitivity(l1=1.0, l2=1.0)
"""Sensitivity of randomised response: ε is charged like a discrete Laplace draw of scale 1/ε for a change of one."""


@dataclass(frozen=True, kw_only=True)
class LocalDP(LocalParameters, TrustModel):
    """Messages that are differentially private by themselves, whoever reads them.

    Guarantee: everything that a client sends in answer to the queries of one task is, together, (epsilon,
    delta)-differentially private. With the encoding `unary` the unit is everything that the client holds,
    whatever it is compared with, and delta is 0: it reports on one of its rows, chosen at random, and the report
    is as private for one row as for another, or for none. With `noise` the unit is that of the protection.

    Assumption: a client draws its coins from a secure source. Nothing is assumed of the server, of other
    clients or of the network.

    What counts as public: who is in the cohort, who answered, which partition each client reports on. Clients
    without a row answer like any other, so that silence reveals nothing.

    Edge cases: all queries of a task spend parts of epsilon if any of them may be answered by `unary`, because
    those parts cannot be added to parts of a zCDP budget; delta then is not used. A malformed reply is a dropout.
    A partition without reports ends the exchange.
    """

    name: ClassVar[str] = "local-dp"
    private: ClassVar[bool] = True
    shows_measurements: ClassVar[bool] = False

    def with_one_row_each(self, protection: Protection) -> Protection:
        """Return the unit client, of one row, so that unary encoding serves; unless something else was asked for."""
        if self.encoding == "noise" or protection.rows_per_client not in (None, 1):
            return protection
        return Protection(unit=Unit.CLIENT, neighbours=protection.neighbours, rows_per_client=1)

    # --- plan -----------------------------------------------------------------------------------------------

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """Choose the encoding and its noise; refuse what single private messages cannot answer."""
        refuse_points(query)
        budget = budget_of(setting, self.name)
        if not isinstance(query, Sum | Collect | Select):
            raise UnsupportedQuery(f"{type(query).__name__}: local-dp answers Sum, Collect and Select.")
        if self._may_be_unary(setting):
            check_parts_are_clients(query, setting)
            _check_choice(query, setting)
        if self._is_unary(query, setting):
            noise = _unary_noise(query, budget, setting.clients)
            return Plan(query=query, setting=setting, sensitivity=_ONE, noise=noise)
        protection = setting.protection
        if self._may_be_unary(setting):
            # So that the promise is the same for all queries: whatever rows the client has, and pure.
            protection = replace(protection, neighbours=Neighbours.REPLACE_ONE)
            budget = Budget(epsilon=budget.epsilon)
        if isinstance(query, Select):
            moved = query.of.loss_range(protection)
            noise = accounting.calibrate_choice(budget, moved, query.share)
            return Plan(
                query=query, setting=setting, sensitivity=Sensitivity(l1=moved, l2=moved), noise=noise
            )
        sensitivity = query.of.sensitivity(protection)
        one = accounting.calibrate(budget, sensitivity, query.share)
        messages = setting.clients if isinstance(query, Sum) else 1
        if messages * largest_report(query.of, one) >= LIMIT:
            raise UnsupportedQuery(
                f"{query.of.name}: {messages:,} clients with entries of up to {query.of.largest:,} and noise of "
                f"scale {one.scale:.3g} could reach {LIMIT:.3g}, where sums wrap; expected smaller entries, a "
                "larger epsilon, or fewer clients."
            )
        noise = several(one, max(1, messages))
        return Plan(query=query, setting=setting, sensitivity=sensitivity, noise=noise)

    def _may_be_unary(self, setting: Setting) -> bool:
        if self.encoding == "auto":
            return setting.protection.rows_per_client == 1
        return self.encoding == "unary"

    def _is_unary(self, query: Query[Any], setting: Setting) -> bool:
        if not self._may_be_unary(setting):
            return False
        if isinstance(query, Select):
            return False
        partitions = query.of.partitions if isinstance(query, Sum) else ()
        cells = np.sort(np.concatenate(partitions)) if partitions else np.empty(0, dtype=np.int64)
        possible = bool(partitions) and np.array_equal(cells, np.arange(query.of.length))
        if self.encoding == "unary" and not possible:
            raise UnsupportedQuery(
                f"{type(query).__name__} of {query.of.name}: unary encoding answers sums of counts in which each "
                "row falls into one cell of each partition; use the encoding noise or auto."
            )
        return possible

    # --- the two halves -------------------------------------------------------------------------------------

    def exchange(
        self, exchange: Exchange, randomness: Randomness
    ) -> Generator[Round, Replies, tuple[Released[Any], ...]]:
        """Run the server half: one round, then count the ones of each partition, or add the noisy vectors."""
        questions = [Question.of(plan) for plan in exchange.plans]

        def fits(name: str, contents: list[Any]) -> list[Any] | None:
            partitions = _assigned(questions, exchange.id, name)
            reports = [Report(*pair) for pair in zip(contents, partitions, strict=True)]
            fit = all(question.fits(report) for question, report in zip(questions, reports, strict=True))
            return reports if fit else None

        answers = yield from plain.ask(exchange, "reports", fits)
        return tuple(
            question.release(reports)
            for question, reports in zip(questions, zip(*answers, strict=True), strict=True)
        )

    def respond(
        self, request: Request, measure: Measure, state: Message, randomness: Randomness
    ) -> tuple[Message, Message]:
        """Run the client half: make a private report per plan; always one, whatever was measured."""
        plain.require_first_leg(request)
        questions = [Question.of(plan) for plan in request.plans]
        partitions = _assigned(questions, request.exchange, request.recipient)
        reports = [
            question.report(vector, partition, randomness)
            for question, vector, partition in zip(questions, measure(), partitions, strict=True)
        ]
        return {"reports": reports}, {}

    # --- simulation and words -------------------------------------------------------------------------------

    def aggregate(
        self, plans: Sequence[Plan], totals: Sequence[Vector], clients: int, randomness: Randomness
    ) -> tuple[Released[Any], ...]:
        """Simulate sums only; unary reports only of clients with one row: totals do not show who has which rows."""
        return tuple(
            _simulated(plan, total, clients, randomness) for plan, total in zip(plans, totals, strict=True)
        )

    def statement(self, setting: Setting) -> str:
        """State what holds, against whom, for which unit, and what is public."""
        budget = budget_of(setting, self.name)
        epsilon, delta = exactly(budget.epsilon), exactly(budget.delta)
        if self._may_be_unary(setting):
            whom = (
                "everything that the client holds: it is nearly as likely whatever rows the client has, and if it "
                "has none"
            )
            otherwise = "; where a summary does not allow that, it adds noise to it" * (
                self.encoding == "auto"
            )
            how = (
                "Each client reports on one of its rows, or on none, by bits that it randomises one by one "
                f"(optimized unary encoding){otherwise}. Clients without rows answer like any other. Which part of "
                "the summary a client reports on, and which clients took part, is public."
            )
        else:
            whom = protected(setting.protection)
            how = (
                "Each client adds noise to its own summary, drawn exactly, before it leaves. Clients without "
                "rows answer like any other. Which clients took part is public."
            )
        return (
            "Every message is differentially private by itself, against everyone who reads it, the server "
            "included: no server has to be trusted. What one client sends for this task is differentially private for "
            f"{whom}, with epsilon = {epsilon} and delta = {delta}. {how} Where clients are asked to choose one of "
            "several public candidates, each draws its choice, the better ones with a higher probability (exponential "
            "mechanism)."
        )


def _assigned(questions: Sequence[Question], exchange: bytes, client: str) -> list[int]:
    """Return which partition this client reports on, for each question: public."""
    return [
        assigned(exchange, index, client, len(question.partitions)) if question.partitions else 0
        for index, question in enumerate(questions)
    ]


def _check_choice(query: Query[Any], setting: Setting) -> None:
    """Check the bound on rows: a choice protects one row, where all else protects all that the client holds."""
    if isinstance(query, Select) and setting.protection.rows_per_client != 1:
        raise UnsupportedQuery(
            f"Select of {query.of.name}: with the encoding unary all that a client holds is protected, and a choice "
            "protects one of its rows; give `rows_per_client=1`, or use the encoding auto."
        )


def check_parts_are_clients(query: Query[Any], setting: Setting) -> None:
    """Check the parts: a client with rows in both would report twice, and each report is about all that it holds."""
    if query.part is not Part.ALL and setting.protection.unit is not Unit.CLIENT:
        raise UnsupportedQuery(
            f"{query.of.name} of the {query.part} rows: a client with several rows would report on both parts, "
            "twice for one budget; give `unit='client'`, so that each client is in one part."
        )


def _unary_noise(query: Query[Any], budget: Budget, clients: int) -> Noise:
    """Return the law for this share of epsilon, if clients spread evenly over the partitions."""
    scale = accounting.calibrate(Budget(epsilon=budget.epsilon), _ONE, query.share).scale
    parts = len(query.of.partitions)
    return reported(max(scale, SMALLEST_SCALE), [max(1, clients) / parts] * parts)


def _simulated(plan: Plan, total: Vector, clients: int, randomness: Randomness) -> Released[Any]:
    """Draw a release from the law of the protocol."""
    require_sum(plan.query)
    if plan.noise.law != UNARY:
        noise = several(plan.noise, clients)
        drawn = sum_of_draws(noise, plan.query.of.draws, randomness)
        return Released(value=total + spread(plan.query.of, drawn), noise=noise, clients=clients)
    if total[plan.query.of.partitions[0]].sum() > clients:
        # Where there are not more rows than clients, no client is taken to have two.
        raise UnsupportedQuery(
            f"{plan.query.of.name}: totals do not show which rows belong to one client; give `rows_per_client=1` "
            "or use the faithful mode."
        )
    rng = np.random.default_rng(randomness.words(4).tolist())
    encoding = UnaryEncoding(scale=plan.noise.scale)
    parts = simulated_partition(total, plan.query.of.partitions, clients, rng)
    ones = [encoding.simulated_ones(counts, reports, rng) for counts, reports in parts]
    return estimated(plan, ones, [reports for _, reports in parts])
