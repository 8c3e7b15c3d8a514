"""Planner: split of the budget over the tasks of a study, predicted errors of each, and sufficient data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedassay.crypto.keys import KeyPair
from fedassay.errors import FedassayError, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.agenda import Agenda, Item
from fedassay.kernel.envelope import Addressee, sealed
from fedassay.kernel.run import rehearse
from fedassay.planning.plan import StudyPlan, TaskPlan
from fedassay.planning.shares import RatioCurve, Uses, best_shares, cheapest_change, equal_shares
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Plan, Request, Task
from fedassay.tasks.card import KINDS
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Forecast

# --- bytes that a client sends and gets for a query ---------------------------------------------------------

_ID = bytes(16)
_TASK = "calibrate"


def bytes_of(plans: Sequence[Plan], study: PlannedStudy) -> int:
    """Return the length of a request with these plans, and of its sealed reply.

    Secure sums add their keys and corrections, which are not counted here.
    """
    source = SimulatedRandomness(0)
    own = KeyPair.draw(source)
    request = Request(
        exchange=_ID,
        plans=tuple(plans),
        cohort=study.expectation.clients,
        leg=0,
        recipient="client",
        message={},
    )
    asked = envelope.pack_request(
        study=_TASK, trust=study.trust, tasks=(_TASK,) * len(plans), request=request, reply_key=own.public
    )
    vectors = {"vectors": [np.zeros(plan.measured.length, dtype=np.int64) for plan in plans]}
    reply = envelope.pack_reply(sender="client", exchange=_ID, leg=0, message=vectors)
    answered = sealed(
        reply, Addressee(own.public, asked), sender="client", credentials=None, randomness=source
    )
    return len(asked) + len(answered)


# --- planner ------------------------------------------------------------------------------------------------

Targets = Mapping[str, Mapping[str, float]]
"""Sufficiently small error of each metric, by task."""


def plan_study(
    agenda: Agenda,
    study: PlannedStudy,
    *,
    shares: Mapping[str, float] | None = None,
    targets: Mapping[str, float] | None = None,
) -> StudyPlan:
    """Predict every task of a study from what is public and assumed, and recommend shares of the budget; no data.

    A single task (`Agenda.of`) is planned as a study; `StudyPlan.details` has the additions of its forecast.
    Searches and comparisons are made when they are read: `StudyPlan.inverse`, `trust_models`, `details`.

    Assumptions: those of the forecasts of the tasks; rows are in the parts of a study with their probabilities.

    Parameters
    ----------
    agenda : its tasks; their shares are ignored.
    study : the expected data, and the terms.
    shares : the given shares, by task; by default the recommended ones.
    targets : sufficiently small errors, such as ``{"evaluate.roc_auc": 0.01}``, or ``{"roc_auc": 0.01}`` for a single
        task. The split is chosen for the targets of a task if it has some, and for its usual targets otherwise. The
        inverse question is answered for them, at the planned shares.

    Examples
    --------
    >>> from fedassay.kernel.agenda import Agenda, Item
    >>> from fedassay.protocol.vocabulary import Budget
    >>> from fedassay.tasks.expectation import Expectation
    >>> from fedassay.trust import ServerDP
    >>> agenda = Agenda(items=tuple(Item(name=n, task=n, parameters={}, share=0.5) for n in ("evaluate", "calibrate")))
    >>> expected = Expectation(rows=20_000, clients=10, prevalence=0.2, auc=0.8)
    >>> study = PlannedStudy(expectation=expected, trust=ServerDP(), budget=Budget(epsilon=1))
    >>> plan = plan_study(agenda, study)
    >>> sum(plan.shares.values()), str(plan.outcome)
    (1.0, 'enough data')
    >>> alone = plan_study(Agenda.of("evaluate", {}), study)
    >>> f"{alone.tasks['evaluate'].metrics['roc_auc'].width:.4f}"
    '0.0088'
    """
    planner = Planner(agenda=agenda, study=study, targets=_by_task(agenda, targets or {}))
    recommended = planner.recommended
    planned = recommended if shares is None else planner.checked(shares)
    tasks = planner.tasks(planned, recommended)
    return StudyPlan(study=study, tasks=tasks, given=shares is not None, planner=planner)


def predict_tasks(
    agenda: Agenda,
    study: PlannedStudy,
    *,
    shares: Mapping[str, float],
    targets: Mapping[str, float] | None = None,
) -> dict[str, TaskPlan]:
    """Predict each task with these shares, as `plan_study` does, without recommending any."""
    planner = Planner(agenda=agenda, study=study, targets=_by_task(agenda, targets or {}))
    return planner.tasks(planner.checked(shares), shares)


def recommended_shares(agenda: Agenda, study: PlannedStudy) -> dict[str, float]:
    """Recommend the shares that `plan_study` would, without the rest of the plan."""
    return Planner(agenda=agenda, study=study, targets={}).recommended


@dataclass(frozen=True, kw_only=True, eq=False)
class Planner:
    """Forecasts of the tasks of an agenda, for shares of a study."""

    agenda: Agenda
    study: PlannedStudy
    targets: Targets

    @cached_property
    def forecasts(self) -> dict[str, Forecast[Any]]:
        """Forecasts by task."""
        return {item.name: forecast_of(item) for item in self.agenda.items}

    @property
    def uses(self) -> Uses:
        """Atoms of the rows that each task queries."""
        return {
            item.name: {atom for part in self.agenda.parts(item) for atom in part.atoms}
            for item in self.agenda.items
        }

    def given(self, name: str) -> Mapping[str, float]:
        """Return the targets of a task."""
        return self.targets.get(name, {})

    def share_of(self, item: Item, share: float) -> PlannedStudy:
        """Return the study with the share of this task."""
        return replace(self.study, share=share, fits_on=self.agenda.fits_on(item), traffic=bytes_of)

    @cached_property
    def recommended(self) -> dict[str, float]:
        """Shares with the smallest worst ratio of an error to its target."""
        if len(self.agenda.items) == 1 or not self.study.trust.private:
            return equal_shares(self.uses)
        return best_shares({item.name: self._curve(item) for item in self.agenda.items}, self.uses)

    def _curve(self, item: Item) -> RatioCurve:
        forecast, given = self.forecasts[item.name], self.given(item.name)

        def ratio(share: float) -> float:
            try:
                return forecast.ratio(self.share_of(item, share), given)
            except FedassayError:
                if share == 1:  # refused with any share
                    raise
                return float("inf")

        return RatioCurve.of(ratio)

    def checked(self, shares: Mapping[str, float]) -> Mapping[str, float]:
        """Return the shares, one of each task; refuse others, or those that do not fit into the budget."""
        if set(shares) != set(self.uses):
            raise UsageError(
                f"shares: got those of {', '.join(shares)}, expected one of each task: {', '.join(self.uses)}."
            )
        change = cheapest_change(shares, self.uses)
        if change:
            raise UsageError(f"shares: they add up to more than the budget; {change}.")
        return shares

    def tasks(self, shares: Mapping[str, float], recommended: Mapping[str, float]) -> dict[str, TaskPlan]:
        """Predict each task with its share."""
        return {
            item.name: self._task(item, shares[item.name], recommended[item.name])
            for item in self.agenda.items
        }

    def _task(self, item: Item, share: float, recommended: float) -> TaskPlan:
        forecast, given, gets = self.forecasts[item.name], self.given(item.name), self.share_of(item, share)
        return TaskPlan(
            name=item.name,
            kind=item.task,
            share=share,
            recommended=recommended,
            rows=gets.rows * gets.part_of(self.agenda.parts(item)[0]),
            metrics=forecast.predictions(gets, given),
            decisive=tuple(forecast.decisive(given)),
            refused=_refusal(forecast.informed(gets), gets),
        )


def forecast_of(item: Item) -> Forecast[Any]:
    """Return the forecast of a task, by its card."""
    forecast: Forecast[Any] = KINDS[item.task].forecast.load()(name=item.name, task=item.made)
    return forecast


def _refusal(task: Task[Any], gets: PlannedStudy) -> str | None:
    try:
        rehearse(task, gets.setting)
    except FedassayError as problem:
        return str(problem)
    return None


def _by_task(agenda: Agenda, targets: Mapping[str, float]) -> Targets:
    """Return the targets of each task; refuse unknown ones, and those not above zero."""
    known = {item.name: KINDS[item.task].forecast.load().targets for item in agenda.items}
    found: dict[str, dict[str, float]] = {}
    for key, width in targets.items():
        task, _, metric = key.partition(".") if agenda.study else (agenda.items[0].name, ".", key)
        prefix = f"{task}." if agenda.study else ""
        if task not in known or not metric:
            name, metrics = next(iter(known.items()))
            raise UsageError(
                f"target: got {key!r}, expected TASK.METRIC, such as {name}.{next(iter(metrics))}; the tasks are "
                f"{', '.join(known)}."
            )
        if metric not in known[task]:
            names = ", ".join(f"{prefix}{one}" for one in known[task])
            raise UsageError(f"target: got {key!r}, expected one of {names}.")
        if not 0 < width < math.inf:
            raise UsageError(f"target {key}: got {width:g}, expected a number above 0.")
        found.setdefault(task, {})[metric] = width
    return found
