"""Parameters of regressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fedassay.errors import ParameterError
from fedassay.parameters import INTERNAL, Interval, Listed
from fedassay.protocol import Setting
from fedassay.tasks.shared_parameters import Intervals, Participation

Model = Literal["linear", "logistic"]
Method = Literal[
    "round-plug-in", "separated-plug-in", "separated-plug-in-corrected", "random-scaling", "newton"
]
Local = Literal["corrected", "fixed", "published"]
Weighting = Literal["rows", "clients"]
Variance = Literal["row", "site", "model"]

FEWEST_ROUNDS, MOST_ROUNDS = 8, 100_000
MOST_LOCAL_STEPS = 1024
DECAY = 0.505
"""As published; slower decay means larger steps, and the one-step estimate does not mind."""


@dataclass(frozen=True, kw_only=True)
class InferParameters(Participation, Intervals):
    """Parameters of `Infer`."""

    model: Model = "linear"
    """Regression model."""
    features: Annotated[tuple[str, ...], Listed("A,B,..")] = ()
    """Names of the coefficients, in the order in which every site names its features."""
    target: str = ""
    """Name of the target. A state is continued with the same one."""
    method: Method = "round-plug-in"
    """Method of fit and intervals: rounds of federated averaging, or newton, the pooled fit through sums."""
    rounds: Annotated[int, Interval(ge=FEWEST_ROUNDS, le=MOST_ROUNDS)] | None = None
    """Rounds of federated averaging. Default: 200, or as many as have fresh rows."""
    local_steps: Annotated[int, Interval(ge=1, le=MOST_LOCAL_STEPS)] = 1
    """Largest number of local steps of a client in a round."""
    local: Local = "corrected"
    """Bias of local steps: estimated and removed (corrected), avoided (fixed gradients), or kept (published)."""
    step: Annotated[float, Interval(gt=0, lt=1e6)] | None = None
    """First step size B of B/t^A. Default: by model and number of features."""
    decay: Annotated[float, Interval(gt=0.5, lt=1)] = DECAY
    """Decay A of the step sizes B/t^A."""
    weighting: Weighting = "rows"
    """What counts alike: rows, as if they were pooled, or clients."""
    variance: Variance = "row"
    """Standard errors of newton: a sandwich over rows (row), clusters of sites (site), or the model's (model)."""
    intercept: bool = True
    """Fit an intercept."""
    standardise: bool = True
    """Bring features to a common scale first. Results are in the data's units either way."""
    scales: tuple[str, ...] = ()
    """Public mean and spread of a feature, or of a linear target, in place of measured ones: NAME=MEAN:SPREAD."""
    clip: Annotated[float, Interval(gt=0, le=1 << 20)] | None = None
    """Norm of a client's mean gradient that counts in full, under noise."""
    offset: bool = False
    """Add an offset: a known part of the linear predictor, from the column with this role."""
    contrasts: tuple[str, ...] = ()
    """Weighted sums of coefficients to test, such as 'a - 2*b = 0'."""
    seed: int | None = field(default=0, metadata=INTERNAL)
    """Seed of the order in which clients go through their rows, which is public."""
    state: Mapping[str, Any] | None = field(default=None, repr=False, metadata=INTERNAL)


def check_state(given: Mapping[str, Any], setting: Setting) -> None:
    """Refuse a state where nothing can be taken up again."""
    if "state" not in given:
        return
    if given.get("method") == "newton":
        raise ParameterError(
            "state", "newton keeps none, it looks at all rows at once; leave one of them out."
        )
    if setting.trust.private:
        raise ParameterError(
            "state", f"rounds under {setting.trust.name} cannot be taken up again; leave it out."
        )
