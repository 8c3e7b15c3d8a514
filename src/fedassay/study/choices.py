"""The texts that entries may have, where only some are known: for the JSON Schema, and so for editors.

Whoever takes the entry refuses others by itself; a test holds both to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fedassay.protocol import Neighbours, Unit
from fedassay.study.runtimes import MODES, RUNTIMES
from fedassay.summaries.locate import TRANSFORMS
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.regression.local_work import LOCAL
from fedassay.summaries.regression.losses import LogLoss, SquaredError
from fedassay.summaries.regression.rounds import WEIGHTS
from fedassay.summaries.scored import CONDITIONS
from fedassay.tasks.calibration.methods import METHODS as CALIBRATORS
from fedassay.tasks.calibration.multiclass import choice
from fedassay.tasks.calibration.multiclass.binned_flow import WEIGHTINGS
from fedassay.tasks.conformal.conformal import GUARANTEES
from fedassay.tasks.conformal.ways import METHODS as WAYS
from fedassay.tasks.distribution.ecdf import GRIDS
from fedassay.tasks.distribution.hosmer_lemeshow import DEGREES
from fedassay.tasks.distribution.hosmer_lemeshow import METHODS as TESTS
from fedassay.tasks.distribution.mechanisms import MECHANISMS
from fedassay.tasks.distribution.search import SPACINGS
from fedassay.tasks.distribution.shown import SMOOTHINGS
from fedassay.tasks.inference.infer import METHODS as INFERENCES
from fedassay.tasks.inference.newton import ERRORS
from fedassay.trust import TRUST_MODELS
from fedassay.trust.local_dp import ENCODINGS

_TRANSFORMS = ("auto", *TRANSFORMS)

TASK_CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "evaluate": {"transform": _TRANSFORMS},
        "evaluate-classes": {},
        "calibrate": {"method": CALIBRATORS, "transform": _TRANSFORMS},
        "calibrate-classes": {
            "method": choice.METHODS,
            "solver": choice.SOLVERS,
            "clipping": ("joint", "separate"),
            "weighting": WEIGHTINGS,
            "averaging": ("clients", "rows"),
        },
        "ecdf": {"grid": GRIDS, "mechanism": ("auto", *MECHANISMS), "smoothing": SMOOTHINGS},
        "hosmer-lemeshow": {
            "method": TESTS,
            "degrees": DEGREES,
            "transform": _TRANSFORMS,
        },
        "quantiles": {"grid": SPACINGS},
        "conformal": {
            "method": WAYS,
            "quantity": tuple(QUANTITIES),
            "guarantee": GUARANTEES,
            "by": CONDITIONS,
        },
        "infer": {
            "model": (SquaredError.name, LogLoss.name),
            "method": INFERENCES,
            "local": LOCAL,
            "weights": WEIGHTS,
            "errors": ERRORS,
        },
    }
)
"""Of the parameters of tasks."""

SECTION_CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "privacy": {"trust": tuple(TRUST_MODELS), "unit": tuple(Unit), "neighbours": tuple(Neighbours)},
        "privacy.parameters": {"encoding": ENCODINGS},
        "runtime": {"name": tuple(RUNTIMES), "mode": MODES},
    }
)
"""Of the sections."""
