"""Planner: is there enough data? Errors, shares of the budget and what would be enough, before any row is read.

Reading order: `tasks.expectation` (what is assumed), `tasks.forecast` (what a kind of task predicts of itself, in its
own package), then here `planner`, `plan`, `shares` (how to split the budget) and `other_terms` (what would be enough,
and the same study under each trust model). A single task is a study of one.
Trust models are asked for their noise only (`Setting.noise`): whatever they are, the rest is the same.
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
