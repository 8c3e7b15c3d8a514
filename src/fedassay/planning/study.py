"""Plans studies: how to split the budget over the tasks, what each will know, and what would be enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedassay.agenda import Agenda, Item
from fedassay.errors import FedassayError, UsageError
from fedassay.planning.evaluation import unused_rows
from fedassay.planning.study_expectation import PlannedStudy
from fedassay.planning.study_forecast import Forecast
from fedassay.planning.study_inverse import StudyInverse, inverse_of
from fedassay.planning.study_plan import StudyPlan, TaskPlan
from fedassay.planning.study_shares import Curve, Uses, best_shares, cheapest_change, equal_shares
from fedassay.planning.trust_table import TrustRow, trust_table
from fedassay.run import rehearse
from fedassay.tasks.card import KINDS

Targets = Mapping[str, Mapping[str, float]]
"""By task, what is small enough by metric."""


def plan_study(
    agenda: Agenda,
    study: PlannedStudy,
    *,
    shares: Mapping[str, float] | None = None,
    targets: Mapping[str, float] | None = None,
) -> StudyPlan:
    """Predict every task of a study from what is public and assumed, and recommend shares of the budget; no data.

    Assumed: what the plans of single tasks assume; rows are in the parts of a study with their probabilities.

    Parameters
    ----------
    agenda : its tasks; their shares are not looked at.
    study : what is expected of the data, and the terms.
    shares : those that are given, by task; without them, what is recommended is planned with.
    targets : what is small enough, such as ``{"evaluate.roc_auc": 0.01}``. The split is chosen for the targets of a
        task where there are some, and for what most would ask of it otherwise. The inverse question is answered for
        them, at the planned shares.

    Examples
    --------
    >>> from fedassay.agenda import Agenda, Item
    >>> from fedassay.planning.study_expectation import StudyExpectation
    >>> from fedassay.protocol import Budget
    >>> from fedassay.trust import ServerDP
    >>> agenda = Agenda(items=tuple(Item(name=n, task=n, parameters={}, share=0.5) for n in ("evaluate", "calibrate")))
    >>> expected = StudyExpectation(rows=20_000, clients=10, prevalence=0.2, auc=0.8)
    >>> plan = plan_study(agenda, PlannedStudy(expectation=expected, trust=ServerDP(), budget=Budget(epsilon=1)))
    >>> sum(plan.shares.values()), str(plan.outcome)
    (1.0, 'enough data')
    """
    planning = _Planning(agenda=agenda, study=study, targets=_by_task(agenda, targets or {}))
    recommended = planning.recommended
    planned = recommended if shares is None else planning.checked(shares)
    tasks = {
        item.name: planning.task(item, planned[item.name], recommended[item.name]) for item in agenda.items
    }
    return StudyPlan(
        study=study,
        tasks=tasks,
        given=shares is not None,
        inverse=planning.inverse(planned),
        trust_models=planning.trust_models(planned),
        warnings=(*unused_rows(study), *planning.warnings(tasks)),
    )


def predict_tasks(
    agenda: Agenda,
    study: PlannedStudy,
    *,
    shares: Mapping[str, float],
    targets: Mapping[str, float] | None = None,
) -> dict[str, TaskPlan]:
    """What `plan_study` predicts of each task with these shares, without recommending any."""
    planning = _Planning(agenda=agenda, study=study, targets=_by_task(agenda, targets or {}))
    planned = planning.checked(shares)
    return {item.name: planning.task(item, planned[item.name], planned[item.name]) for item in agenda.items}


def recommended_shares(agenda: Agenda, study: PlannedStudy) -> dict[str, float]:
    """The shares that `plan_study` would recommend, without the rest of the plan."""
    return _Planning(agenda=agenda, study=study, targets={}).recommended


@dataclass(frozen=True, kw_only=True, eq=False)
class _Planning:
    agenda: Agenda
    study: PlannedStudy
    targets: Targets

    @cached_property
    def forecasts(self) -> dict[str, Forecast[Any]]:
        return {
            item.name: KINDS[item.task].forecast.load()(name=item.name, task=item.made)
            for item in self.agenda.items
        }

    @property
    def uses(self) -> Uses:
        return {
            item.name: {atom for part in self.agenda.parts(item) for atom in part.atoms}
            for item in self.agenda.items
        }

    def given(self, name: str) -> Mapping[str, float]:
        return self.targets.get(name, {})

    def share_of(self, item: Item, share: float) -> PlannedStudy:
        """What this task gets of the study."""
        return replace(self.study, share=share, fits_on=self.agenda.fits_on(item))

    @cached_property
    def recommended(self) -> dict[str, float]:
        if len(self.agenda.items) == 1 or not self.study.trust.private:
            return equal_shares(self.uses)
        return best_shares({item.name: self._curve(item) for item in self.agenda.items}, self.uses)

    def _curve(self, item: Item) -> Curve:
        forecast, given = self.forecasts[item.name], self.given(item.name)

        def ratio(share: float) -> float:
            try:
                return forecast.ratio(self.share_of(item, share), given)
            except FedassayError:
                if share == 1:  # refused whatever the share
                    raise
                return float("inf")

        return Curve.of(ratio)

    def checked(self, shares: Mapping[str, float]) -> Mapping[str, float]:
        if set(shares) != set(self.uses):
            raise UsageError(
                f"shares: got those of {', '.join(shares)}, expected one of each task: {', '.join(self.uses)}."
            )
        change = cheapest_change(shares, self.uses)
        if change:
            raise UsageError(f"shares: they add up to more than the budget; {change}.")
        return shares

    def task(self, item: Item, share: float, recommended: float) -> TaskPlan:
        forecast, given, gets = self.forecasts[item.name], self.given(item.name), self.share_of(item, share)
        return TaskPlan(
            name=item.name,
            kind=item.task,
            share=share,
            recommended=recommended,
            rows=gets.rows * gets.part_of(self.agenda.parts(item)[0]),
            metrics=forecast.foreseen(gets, given),
            decisive=tuple(forecast.decisive(given)),
            refused=_refusal(item, gets),
        )

    def _first(self) -> tuple[Item, str, float]:
        """What a study is mostly about: the first that decides of its first task."""
        item = self.agenda.items[0]
        name, target = next(iter(self.forecasts[item.name].decisive(self.given(item.name)).items()))
        return item, name, target

    def inverse(self, shares: Mapping[str, float]) -> tuple[StudyInverse, ...]:
        wanted = [
            (item, name, target)
            for item in self.agenda.items
            for name, target in self.given(item.name).items()
        ] or [self._first()]
        return tuple(
            inverse_of(self.forecasts[item.name], self.share_of(item, shares[item.name]), name, target)
            for item, name, target in wanted
        )

    def trust_models(self, shares: Mapping[str, float]) -> tuple[TrustRow, ...]:
        _, metric, _ = self._first()
        tasks = [
            (self.forecasts[item.name], self.share_of(item, shares[item.name])) for item in self.agenda.items
        ]
        return trust_table(tasks, metric)

    def warnings(self, tasks: Mapping[str, TaskPlan]) -> tuple[str, ...]:
        found = [note for item in self.agenda.items for note in self.forecasts[item.name].notes(self.study)]
        if not self.study.trust.private and len(tasks) > 1:
            found.append(
                f"{self.study.trust.name} adds no noise and spends no budget: shares are equal, and do not matter."
            )
        for name, one in tasks.items():
            if one.refused is not None:
                found.append(f"A run would refuse {name}: {one.refused}")
            reasons = {m.reason for key, m in one.metrics.items() if key in one.decisive and m.reason}
            found += [f"{name}: {reason.rstrip('.')}." for reason in sorted(reasons)]
        return tuple(found)


def _refusal(item: Item, gets: PlannedStudy) -> str | None:
    try:
        rehearse(item.made, gets.setting)
    except FedassayError as problem:
        return str(problem)
    return None


def _by_task(agenda: Agenda, targets: Mapping[str, float]) -> Targets:
    names = [item.name for item in agenda.items]
    found: dict[str, dict[str, float]] = {}
    for key, width in targets.items():
        task, _, metric = key.partition(".")
        if task not in names or not metric:
            first = KINDS[agenda.items[0].task].forecast.load().main[0]
            raise UsageError(
                f"target: got {key!r}, expected TASK.METRIC, such as {names[0]}.{first}; the tasks are "
                f"{', '.join(names)}."
            )
        found.setdefault(task, {})[metric] = width
    return found
