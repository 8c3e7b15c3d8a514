"""fedassay: trust a model on data you cannot see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedassay import version

__version__ = version.VERSION

if TYPE_CHECKING:
    from fedassay.api import calibrate, conformal, ecdf, evaluate, hosmer_lemeshow, infer, quantiles
    from fedassay.api.regression import FederatedRegression
    from fedassay.api.study import run_study, verify
    from fedassay.api.terms import run_task
    from fedassay.artefacts.classifier import CalibratedClassifier, FederatedCalibrator
    from fedassay.artefacts.conformal import ConformalPredictor
    from fedassay.artefacts.stored_calibrator import Calibrator, ClassCalibrator, load_calibrator
    from fedassay.data.partition import Partition
    from fedassay.data.sql import Database
    from fedassay.documents.budget_display import BudgetDisplay
    from fedassay.protocol.result import Result
    from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, Unit
    from fedassay.study.simulation import Simulation
    from fedassay.summaries.regression.losses import IndexLoss, SmoothLoss
    from fedassay.tasks.conformal.document_plots import CoverageDisplay
    from fedassay.tasks.distribution.stored import quantile_at, value_at
    from fedassay.tasks.evaluation.displays import (
        ForestDisplay,
        NetBenefitDisplay,
        PrecisionRecallDisplay,
        ReliabilityDisplay,
        RocCurveDisplay,
        ScoreDistributionDisplay,
    )
    from fedassay.tasks.inference.document import CoefficientsDisplay
    from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP, Shuffle, TwoServer

__all__ = [
    "Budget",
    "BudgetDisplay",
    "CalibratedClassifier",
    "Calibrator",
    "ClassCalibrator",
    "CoefficientsDisplay",
    "ConformalPredictor",
    "CoverageDisplay",
    "Database",
    "DistributedDP",
    "FederatedCalibrator",
    "FederatedRegression",
    "ForestDisplay",
    "IndexLoss",
    "LocalDP",
    "Neighbours",
    "NetBenefitDisplay",
    "Partition",
    "Plain",
    "PrecisionRecallDisplay",
    "Protection",
    "ReliabilityDisplay",
    "Result",
    "RocCurveDisplay",
    "ScoreDistributionDisplay",
    "SecureSum",
    "ServerDP",
    "Shuffle",
    "Simulation",
    "SmoothLoss",
    "TwoServer",
    "Unit",
    "__version__",
    "calibrate",
    "conformal",
    "ecdf",
    "evaluate",
    "hosmer_lemeshow",
    "infer",
    "load_calibrator",
    "quantile_at",
    "quantiles",
    "run_study",
    "run_task",
    "value_at",
    "verify",
]

_HOMES = {
    "fedassay.api": ("calibrate", "conformal", "ecdf", "evaluate", "hosmer_lemeshow", "infer", "quantiles"),
    "fedassay.api.regression": ("FederatedRegression",),
    "fedassay.api.study": ("run_study", "verify"),
    "fedassay.api.terms": ("run_task",),
    "fedassay.artefacts.classifier": ("CalibratedClassifier", "FederatedCalibrator"),
    "fedassay.artefacts.conformal": ("ConformalPredictor",),
    "fedassay.artefacts.stored_calibrator": ("Calibrator", "ClassCalibrator", "load_calibrator"),
    "fedassay.data.partition": ("Partition",),
    "fedassay.data.sql": ("Database",),
    "fedassay.documents.budget_display": ("BudgetDisplay",),
    "fedassay.protocol.result": ("Result",),
    "fedassay.protocol.vocabulary": ("Budget", "Neighbours", "Protection", "Unit"),
    "fedassay.study.simulation": ("Simulation",),
    "fedassay.summaries.regression.losses": ("IndexLoss", "SmoothLoss"),
    "fedassay.tasks.conformal.document_plots": ("CoverageDisplay",),
    "fedassay.tasks.distribution.stored": ("quantile_at", "value_at"),
    "fedassay.tasks.evaluation.displays": (
        "ForestDisplay",
        "NetBenefitDisplay",
        "PrecisionRecallDisplay",
        "ReliabilityDisplay",
        "RocCurveDisplay",
        "ScoreDistributionDisplay",
    ),
    "fedassay.tasks.inference.document": ("CoefficientsDisplay",),
    "fedassay.trust": ("DistributedDP", "LocalDP", "Plain", "SecureSum", "ServerDP", "Shuffle", "TwoServer"),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import fedassay` costs nothing."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'fedassay' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, those included that are loaded when they are used."""
    return sorted(__all__)
