"""Study under other terms: sufficient epsilon, rows and clients, and the error under each trust model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import FedassayError
from fedassay.kernel.run import rehearse
from fedassay.protocol.vocabulary import Budget, Protection, Sum, TrustModel, Unit
from fedassay.summaries import CATALOGUE
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.expectation import MOST_ROWS, PlannedStudy
from fedassay.tasks.forecast import Forecast
from fedassay.trust.card import TRUST_CARDS, TrustCard

# --- sufficient terms ---------------------------------------------------------------------------------------

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-4, 64.0
FEWEST_ROWS = 10.0

_Width = Callable[[PlannedStudy], float]
"""Error of a study that has to become small, such as the half-width of an interval; it may be infinite."""

_CLOSE, _STRIDE = 1.02, 4.0
"""Factor to which answers are right, and factor of the search for a bracket."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Smallest `value` that is enough, or the reason why there is none.

    Guarantee: with `value` the predicted width is at most the target; with two percent less it is above, unless
    `value` is the smallest that was tried. Both were predicted, so this holds even if the width does not
    fall monotonically.
    """

    value: float | None
    reason: str | None = None
    clients: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        clients = {} if self.clients is None else {"clients": self.clients}
        reason = {} if self.reason is None else {"reason": self.reason}
        return {"value": self.value, **clients, **reason}


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """Sufficient epsilon, rows and clients for a target, each alone and all else as planned, shares too.

    Parameters
    ----------
    metric : its name, with the name of its task in a study of several.
    epsilon : that of the whole study.
    rows : the number in all, at the planned clients.
    clients : the number of clients of the planned size.
    wish : the target in words, with a place for the number; empty if it has only its name.
    """

    metric: str
    target: float
    epsilon: Answer
    rows: Answer
    clients: Answer
    wish: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        answers = {name: getattr(self, name).to_dict() for name in ("epsilon", "rows", "clients")}
        wish = self.wish.format(self.target) or f"{self.metric} within {self.target:g}"
        return {"metric": self.metric, "target": self.target, "wish": wish, **answers}


def inverse_of(
    forecast: Forecast[Any], study: PlannedStudy, name: str, target: float, *, label: str
) -> Inverse:
    """Answer from predictions for other epsilons, rows and clients; `study` has the share of this task."""

    def width(other: PlannedStudy) -> float:
        found = forecast.at(other, (name,))
        return found[name].width if name in found else math.inf

    most_clients, most_rows = forecast.most_tried(study)
    return Inverse(
        metric=label,
        target=target,
        epsilon=smallest_epsilon(study, width, target),
        rows=fewest_rows(study, width, target, most=most_rows),
        clients=fewest_clients(study, width, target, most=most_clients),
        wish=forecast.wishes.get(name, ""),
    )


def smallest_epsilon(study: PlannedStudy, width: _Width, target: float) -> Answer:
    """Find the smallest epsilon for which the width is at most `target`, all else as planned."""
    if study.budget is None:
        return Answer(value=None, reason=f"{study.trust.name} adds no noise, so epsilon plays no part")

    def enough(epsilon: float) -> bool:
        return _tried(width, study.with_epsilon(epsilon)) <= target

    # The width need not fall monotonically: caution under noise can happen to make up for a bias.
    if not enough(LARGEST_EPSILON) and not enough(study.budget.epsilon):
        rest = _tried(width, study.with_epsilon(LARGEST_EPSILON))
        left = "there is no value even then" if math.isinf(rest) else f"with the largest one it is {rest:.2g}"
        return Answer(value=None, reason=f"no epsilon is enough: {left}")
    value = _smallest(enough, start=study.budget.epsilon, low=SMALLEST_EPSILON, high=LARGEST_EPSILON)
    assert value is not None
    return Answer(value=_rounded_up(value))


def fewest_clients(study: PlannedStudy, width: _Width, target: float, *, most: float = MOST_ROWS) -> Answer:
    """Find the fewest clients of the planned size, all of them whole, for which the width is at most `target`.

    `most` is the largest number that is tried; more if more are planned.
    """
    planned = study.expectation
    most = min(max(most, 4.0 * planned.clients), MOST_ROWS * planned.clients / planned.rows)

    def enough(clients: float) -> bool:
        return _tried(width, study.with_clients(math.ceil(clients))) <= target

    found = _smallest(enough, start=planned.clients, low=1.0, high=math.floor(most))
    if found is None:
        return Answer(value=None, reason=f"no number of such clients up to {most:,.0f} is enough")
    return Answer(value=float(math.ceil(found)))


def fewest_rows(study: PlannedStudy, width: _Width, target: float, *, most: float = MOST_ROWS) -> Answer:
    """Find the fewest rows in all, at the planned clients, for which the width is at most `target`.

    A bound on the rows of a client moves along. `most` is the largest number that is tried at each client.
    """
    planned = study.expectation
    high = min(MOST_ROWS, max(most, 4 * planned.rows / planned.clients) * planned.clients)

    def enough(rows: float) -> bool:
        return _tried(lambda other: width(other.with_rows(rows)), study) <= target

    found = _smallest(enough, start=planned.rows, low=max(FEWEST_ROWS, float(planned.clients)), high=high)
    if found is None:
        reason = f"no number of rows at {planned.clients:,} clients up to {high:.3g} is enough"
        return Answer(value=None, reason=reason)
    return Answer(value=_rounded_up(found, whole=True), clients=planned.clients)


def _tried(width: _Width, study: PlannedStudy) -> float:
    """Return the width; infinite if the trust model refuses (too few clients, sums that could wrap)."""
    try:
        return width(study)
    except FedassayError:
        return math.inf


def _smallest(enough: Callable[[float], bool], *, start: float, low: float, high: float) -> float | None:
    """Find the smallest x in [low, high] that is enough, to a factor of `_CLOSE`; None if `high` is not.

    The search goes up or down from `start` until the answer changes, then bisects on the logarithmic scale.
    """
    below = above = min(max(start, low), high)
    if enough(above):
        while below > low and enough(below):
            above, below = below, max(low, below / _STRIDE)
        if enough(below):
            return below
    else:
        while above < high and not enough(above):
            below, above = above, min(high, above * _STRIDE)
        if not enough(above):
            return None
    while above > below * _CLOSE:
        middle = math.sqrt(above * below)
        below, above = (below, middle) if enough(middle) else (middle, above)
    return above


def _rounded_up(value: float, *, whole: bool = False) -> float:
    """Round up to three significant digits: the result is still enough."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    rounded = math.ceil(value / step - 1e-9) * step
    return float(math.ceil(rounded - 1e-9)) if whole else float(f"{rounded:.3g}")


# --- trust models side by side ------------------------------------------------------------------------------

USUAL = Budget(epsilon=1.0, delta=1e-6)
"""Budget at which trust models with noise are shown, if the study has none."""

_MOST_TRIED = 64


@dataclass(frozen=True, kw_only=True)
class TrustRow:
    """Row of the table of trust models.

    Parameters
    ----------
    chosen : True if it is the trust model of the study.
    clients, servers : the fewest clients, and the number of servers that it needs.
    instead : the necessary change in the protection of the study; None if there is none.
    width : that of the study's main number under it, with `budget`; infinite if it will have no value.
    reason : the reason why the study cannot be run under it with its terms; None if it can.
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
        """Return plain values."""
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
"""Each task of a study with the study at its share; the first task is shown."""


def trust_table(tasks: _Tasks, metric: str, *, label: str) -> tuple[TrustRow, ...]:
    """Return a metric of the first task under each trust model, all else as planned; `label` is its title.

    A trust model that refuses one of the tasks cannot carry the study. A trust model other than the chosen one is also
    tried with a bound on the rows of a client, and with the unit client; the row then states this change.
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
    """Return the objection to a trust model, without internal words of its code."""
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
    """Return the same study under other terms."""
    return replace(study, trust=trust, budget=budget, protection=protection)


def _protections(planned: PlannedStudy, *, chosen: bool) -> list[tuple[Protection, str | None]]:
    """Return the protection of the study, and stricter ones with the change that they need."""
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
    """Return the fewest clients for which a trust model answers a simple sum; 1 if other terms prevent it."""
    probe = Sum(of=ScoreHistogram(transform="uniform", height=2))
    setting = replace(planned, trust=trust, budget=budget).setting.whole
    for clients in range(1, _MOST_TRIED):
        try:
            replace(setting, clients=clients).plan(probe)
        except FedassayError:
            continue
        return clients
    return 1
