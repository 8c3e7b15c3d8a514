"""Parameters that kinds of tasks have in common. Each is declared once, and inherited.

Modules of parameters import nothing else of the library: the command line reads them for its help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedassay.protocol.parameters import Checked, Fraction, Interval

Transform = Literal["auto", "uniform", "logit", "mixed"]

MOST_CLASSES = 1024

HOLDOUT = 0.3
"""Default share of the units that judge the fit to the other units."""


@dataclass(frozen=True, kw_only=True)
class Intervals(Checked):
    """Results with intervals."""

    level: Fraction = 0.95
    """Confidence level of the intervals."""


@dataclass(frozen=True, kw_only=True)
class BucketParameters(Checked):
    """Results with calibration errors."""

    buckets: Annotated[int, Interval(ge=1, le=200)] = 10
    """Buckets of the calibration errors and of the reliability curve."""


@dataclass(frozen=True, kw_only=True)
class ScoreBins(Checked):
    """Histograms of a binary model's scores."""

    height: Annotated[int, Interval(ge=2, le=18)] | None = None
    """2^height score bins. Default: 15; under noise 10, and 8 to fit a calibrator."""
    transform: Transform = "auto"
    """Spacing of the score bins; auto is mixed, the refinement of a uniform and a logit grid."""


@dataclass(frozen=True, kw_only=True)
class Classes(Checked):
    """Models with several classes."""

    classes: Annotated[int, Interval(ge=2, le=MOST_CLASSES)] | None = None
    """Number of classes of the model, which is public."""


@dataclass(frozen=True, kw_only=True)
class Groups(Checked):
    """Results for groups of rows."""

    groups: tuple[str, ...] = ()
    """Names of the groups with results of their own; rows outside them count as one group."""


@dataclass(frozen=True, kw_only=True)
class Participation(Checked):
    """Rounds in which clients take part."""

    participation: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """Share of the clients that take part in a round."""
