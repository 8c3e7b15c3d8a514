"""Parameters of regressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from fedassay.errors import ParameterError
from fedassay.protocol.parameters import INTERNAL, Interval, Listed
from fedassay.protocol.vocabulary import Setting
from fedassay.tasks.shared_parameters import Intervals, Participation
from fedassay.tasks.study_rules import Given, StudyRules

Model = Literal["linear", "logistic"]
RegressionMethod = Literal[
    "round-plug-in", "separated-plug-in", "separated-plug-in-corrected", "random-scaling", "newton"
]
Local = Literal["corrected", "fixed", "published"]
Weighting = Literal["rows", "clients"]
Variance = Literal["row", "site", "model"]

FEWEST_ROUNDS, MOST_ROUNDS = 8, 100_000
MOST_LOCAL_STEPS = 1024
DECAY = 0.505
"""Published decay; slower decay means larger steps, which the one-step estimate tolerates."""


@dataclass(frozen=True, kw_only=True)
class InferParameters(Participation, Intervals):
    """Parameters of `Infer`."""

    model: Model = "linear"
    """Regression model."""
    features: Annotated[tuple[str, ...], Listed("A,B,..")] = ()
    """Names of the coefficients, in the order in which every site names its features."""
    target: str = ""
    """Name of the target. A state is continued with the same one."""
    method: RegressionMethod = "round-plug-in"
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


# --- what a study file implies for regressions --------------------------------------------------------------


class RegressionRules(StudyRules):
    """Features, target and offset are the columns of the study."""

    implied_names: ClassVar[tuple[str, ...]] = ("features", "target", "offset")

    def roles(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return (*self.columns, "offset") if parameters.get("offset") else self.columns

    def implied(self, given: Given, columns: Mapping[str, str] | None, holdout: float) -> dict[str, Any]:
        """See `StudyRules`."""
        if columns is None:
            return {}
        names = [name.strip() for name in columns.get("features", "").split(",") if name.strip()]
        known = {"features": names, "target": columns.get("target", "")}
        for entry, column in known.items():
            if entry in given and given[entry] != column:
                raise ParameterError(entry, "[data.columns] says which they are; leave it out here.")
        implied: dict[str, Any] = {"target": known["target"], "offset": "offset" in columns}
        # A single name may stand for a column of lists, or for numbered columns.
        return implied if len(names) < 2 else {**implied, "features": names}

    def rows(self, results: Given) -> float | None:
        """See `StudyRules`."""
        rows: float | None = results["fit"]["rows"]
        return rows

    def looked_up(self, parameters: Given) -> tuple[str, ...]:
        """See `StudyRules`."""
        return () if "features" in parameters else ("features",)

    def stand_in(self, parameters: Given) -> dict[str, Any]:
        """See `StudyRules`; while features are not known, nothing can be said of them."""
        unknown = () if "features" in parameters else ("scales", "contrasts")
        return {name: value for name, value in parameters.items() if name not in unknown}

    def require_public(self, parameters: Given) -> None:
        """See `StudyRules`."""
        if "features" not in parameters:
            raise ParameterError("features", "missing, expected the name of each coefficient: A,B,..")
