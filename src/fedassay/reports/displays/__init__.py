"""Plots of a result from Python, as scikit-learn has them: ``RocCurveDisplay.from_result(result).save("roc.png")``."""

from fedassay.reports.displays.base import Display
from fedassay.reports.displays.budget import BudgetDisplay
from fedassay.reports.displays.curves import NetBenefitDisplay, PrecisionRecallDisplay, RocCurveDisplay
from fedassay.reports.displays.estimates import CoefficientsDisplay, ForestDisplay
from fedassay.reports.displays.scores import ReliabilityDisplay, ScoreDistributionDisplay
from fedassay.reports.displays.sets import CoverageDisplay

__all__ = [
    "BudgetDisplay",
    "CoefficientsDisplay",
    "CoverageDisplay",
    "Display",
    "ForestDisplay",
    "NetBenefitDisplay",
    "PrecisionRecallDisplay",
    "ReliabilityDisplay",
    "RocCurveDisplay",
    "ScoreDistributionDisplay",
]
