"""Planner: errors, shares of the budget and sufficient data, predicted before any row is read.

Reading order: `tasks.expectation` (assumptions), `tasks.forecast` (the predictions of a kind of task, in its own
package), then here `planner`, `plan`, `shares` (the split of the budget) and `other_terms` (sufficient epsilons, rows
and clients, and the same study under each trust model). A task alone is planned as a study with a single task.
Only the noise of a trust model is used (`Setting.noise`): the rest is the same for all.
"""

from __future__ import annotations

from fedassay.planning.plan import StudyPlan, TaskPlan
from fedassay.planning.planner import plan_study, predict_tasks, recommended_shares
from fedassay.planning.shares import cheapest_change
from fedassay.tasks.expectation import Expectation, PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction, Sufficiency

__all__ = [
    "DetailTable",
    "Details",
    "Expectation",
    "Forecast",
    "PlannedStudy",
    "Prediction",
    "StudyPlan",
    "Sufficiency",
    "TaskPlan",
    "cheapest_change",
    "plan_study",
    "predict_tasks",
    "recommended_shares",
]
