"""Is there enough data? Errors, intervals and parameters to expect of a study, before any row is read.

Reading order: `expectation` (what the data are assumed to be), `evaluation`, `calibration`, `multiclass`,
`distribution`, `conformal` and `inference` (one plan per task, from the task's own formulas), `resolution` (how many
bins), `verdict` (enough, not enough, not decidable), `inverse` (the smallest epsilon or number of rows that is enough),
`published` (Table 1 beside ours). Then studies of several tasks: `study_expectation`, `study_forecast` (every task's
errors for any share of the budget), `study_shares` (how to split it), `trust_table`, `study`.
Trust models are asked for their noise only (`Setting.noise`): whatever they are, the rest is the same.
"""

from __future__ import annotations

from fedassay.planning.calibration import CalibrationPlan, plan_calibration
from fedassay.planning.conformal import ConformalPlan, plan_conformal
from fedassay.planning.distribution import DistributionPlan, Shape, plan_distribution
from fedassay.planning.evaluation import EvaluationPlan, plan_evaluation
from fedassay.planning.expectation import Expectation, PlannedRelease, Size, Study
from fedassay.planning.inference import InferencePlan, plan_inference
from fedassay.planning.multiclass import MulticlassPlan, plan_multiclass
from fedassay.planning.rehearsed_classes import ClassStudy
from fedassay.planning.study import plan_study, recommended_shares
from fedassay.planning.study_expectation import PlannedStudy, StudyExpectation
from fedassay.planning.study_plan import StudyPlan
from fedassay.planning.study_shares import cheapest_change
from fedassay.planning.typical_classes import ClassExpectation
from fedassay.planning.typical_regression import Regression

__all__ = [
    "CalibrationPlan",
    "ClassExpectation",
    "ClassStudy",
    "ConformalPlan",
    "DistributionPlan",
    "EvaluationPlan",
    "Expectation",
    "InferencePlan",
    "MulticlassPlan",
    "PlannedRelease",
    "PlannedStudy",
    "Regression",
    "Shape",
    "Size",
    "Study",
    "StudyExpectation",
    "StudyPlan",
    "cheapest_change",
    "plan_calibration",
    "plan_conformal",
    "plan_distribution",
    "plan_evaluation",
    "plan_inference",
    "plan_multiclass",
    "plan_study",
    "recommended_shares",
]
