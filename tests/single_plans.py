"""Plans of single tasks: studies of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.kernel.agenda import Agenda
from fedassay.planning import Expectation, Forecast, PlannedStudy, Prediction, StudyPlan, plan_study
from fedassay.planning.planner import forecast_of
from fedassay.protocol.vocabulary import Budget, Protection, TrustModel
from fedassay.trust import Plain

KEYS = {
    *(
        "plan",
        "assumptions",
        "assumption",
        "parameters",
        "task",
        "share",
        "recommended_share",
        "rows",
        "metrics",
    ),
    *("decisive", "refused", "verdict", "outcome", "tables", "remarks", "inverse", "warnings"),
}
"""What the JSON of every plan of a single task has, beside the facts of its forecast."""


def planned(
    trust: TrustModel | None = None,
    *,
    rows: float = 20_000,
    clients: int = 20,
    epsilon: float | None = None,
    delta: float = 0.0,
    protection: Protection | None = None,
    holdout: float = 0.3,
    **expected: Any,
) -> PlannedStudy:
    """A study of so many rows at so many clients."""
    return PlannedStudy(
        expectation=Expectation(rows=rows, clients=clients, **expected),
        trust=trust or Plain(),
        budget=None if epsilon is None else Budget(epsilon=epsilon, delta=delta),
        protection=protection or Protection(),
        holdout=holdout,
    )


def plan_alone(
    kind: str, study: PlannedStudy, targets: Mapping[str, float] | None = None, **parameters: Any
) -> StudyPlan:
    """The plan of a single task."""
    return plan_study(Agenda.of(kind, parameters), study, targets=targets)


def metrics_of(plan: StudyPlan) -> Mapping[str, Prediction]:
    """The predictions of the plan of a single task."""
    assert plan.single is not None
    return plan.single.metrics


def forecast(kind: str, **parameters: Any) -> Forecast[Any]:
    """The forecast of a task."""
    return forecast_of(Agenda.of(kind, parameters).items[0])


def rows_of(plan: StudyPlan, table: str) -> dict[str, dict[str, Any]]:
    """The rows of a table of details, by what stands in the first column."""
    found = plan.details.tables[table]
    first = next(iter(found.columns))
    return {row[first]: dict(row) for row in found.rows}
