"""The same study under each trust model: who learns what, what it takes, and how sure one will be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import FedassayError
from fedassay.kernel.run import rehearse
from fedassay.protocol.vocabulary import Budget, Protection, Sum, TrustModel, Unit
from fedassay.summaries import CATALOGUE
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Forecast
from fedassay.trust.card import TRUST_CARDS, TrustCard

USUAL = Budget(epsilon=1.0, delta=1e-6)
"""What trust models with noise are shown with, where the study has no budget."""

_MOST_TRIED = 64


@dataclass(frozen=True, kw_only=True)
class TrustRow:
    """One trust model.

    Parameters
    ----------
    chosen : whether it is the one of the study.
    clients, servers : the fewest clients, and how many servers it needs.
    instead : what would have to be changed in the protection of the study; None if nothing.
    width : of the study's main number under it, with `budget`; infinite where it will have no value.
    reason : why the study cannot be run under it with its terms; None if it can.
    """

    chosen: bool
    card: TrustCard
    clients: int
    servers: int
    budget: Budget | None
    metric: str
    width: float = math.inf
    instead: str | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "trust_model": self.card.name,
            "chosen": self.chosen,
            "server_learns": self.card.server_learns,
            "readers_learn": self.card.readers_learn,
            "rests_on": self.card.rests_on,
            "needs": {"clients": self.clients, "servers": self.servers, "rounds": self.card.rounds},
            "epsilon": None if self.budget is None else self.budget.epsilon,
            "delta": None if self.budget is None else self.budget.delta,
            "possible": self.reason is None,
            "instead": self.instead,
            "metric": self.metric,
            "width": self.width if math.isfinite(self.width) else None,
            **({} if self.reason is None else {"reason": self.reason}),
        }


_Tasks = Sequence[tuple[Forecast[Any], PlannedStudy]]
"""Each task of a study with what it gets of it, the one that is shown first."""


def trust_table(tasks: _Tasks, metric: str, *, label: str) -> tuple[TrustRow, ...]:
    """This number of the first task under each trust model, all else as planned; `label` is what it is called.

    A trust model that refuses one of the tasks cannot carry the study. Of others than the chosen one it is tried
    whether it could with a bound on the rows of a client, or with the unit client, and then said.
    """
    return tuple(_row(card, tasks, metric, label) for card in TRUST_CARDS.values())


def _row(card: TrustCard, tasks: _Tasks, metric: str, label: str) -> TrustRow:
    main, planned = tasks[0]
    chosen = planned.trust.name == card.name
    trust = planned.trust if chosen else card.model.load()()
    budget = (planned.budget or USUAL) if trust.private else None
    row = TrustRow(
        chosen=chosen,
        card=card,
        clients=fewest_clients_of(trust, planned, budget),
        servers=max(1, trust.helpers_needed),
        budget=budget,
        metric=label,
    )
    problems = []
    for protection, instead in _protections(planned, chosen=chosen):
        who = main.name
        try:
            for forecast, study in tasks:
                who = forecast.name
                rehearse(forecast.informed(study), under(study, trust, budget, protection).setting)
            found = main.at(under(planned, trust, budget, protection), (metric,))
        except FedassayError as problem:
            problems.append(f"{who}: {_plainly(problem)}")
            continue
        return replace(row, instead=instead, width=found[metric].width if metric in found else math.inf)
    return replace(row, reason=problems[0])


def _plainly(problem: FedassayError) -> str:
    """What stands against a trust model, without words that only its code knows."""
    text = str(problem)
    if "two-server encodes each row" in text:
        return (
            "the two servers can only count rows that fall into places known beforehand, and this task needs other "
            "sums; use server-dp or distributed-dp."
        )
    summary, _, rest = text.partition(": ")
    return rest if summary in CATALOGUE else text


def under(
    study: PlannedStudy, trust: TrustModel, budget: Budget | None, protection: Protection
) -> PlannedStudy:
    """The same study under other terms."""
    return replace(study, trust=trust, budget=budget, protection=protection)


def _protections(planned: PlannedStudy, *, chosen: bool) -> list[tuple[Protection, str | None]]:
    """The protection of the study, and those that ask for more, with what to change."""
    own, each = planned.protection, math.ceil(planned.expectation.rows / planned.expectation.clients)
    tried: list[tuple[Protection, str | None]] = [(own, None)]
    if not chosen and own.rows_per_client is None:
        tried.append((replace(own, rows_per_client=each), f"rows_per_client = {each}"))
    if not chosen and own.unit is not Unit.CLIENT:
        bound = own.rows_per_client or each
        changed = 'unit = "client"' + (f", rows_per_client = {each}" if own.rows_per_client is None else "")
        tried.append((replace(own, unit=Unit.CLIENT, rows_per_client=bound), changed))
    return tried


def fewest_clients_of(trust: TrustModel, planned: PlannedStudy, budget: Budget | None) -> int:
    """With how many clients a trust model begins to answer a simple sum; 1 where other terms stand against it."""
    probe = Sum(of=ScoreHistogram(transform="uniform", height=2))
    setting = replace(planned, trust=trust, budget=budget).setting.whole
    for clients in range(1, _MOST_TRIED):
        try:
            replace(setting, clients=clients).plan(probe)
        except FedassayError:
            continue
        return clients
    return 1
