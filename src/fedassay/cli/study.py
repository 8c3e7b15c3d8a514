"""The options of all tasks together, for commands that run any of them between sites."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.cli import options, output
from fedassay.cli.artefact import deliver
from fedassay.cli.calibrate import Calibration, calibration, scaling
from fedassay.cli.conformal import as_task, declared, prediction_sets
from fedassay.cli.ecdf import SEARCHED, distribution, labels
from fedassay.cli.evaluate import evaluation, second_model
from fedassay.cli.hosmer_lemeshow import goodness
from fedassay.cli.infer import coefficients, regression
from fedassay.errors import UsageError
from fedassay.result import Result


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What was given: the parameters of the task, and where its artefact goes."""

    parameters: dict[str, Any]
    out: Path | None

    def of(self, task: str) -> dict[str, Any]:
        """The parameters for this task; a range is public knowledge that somebody has to state."""
        if task == "infer" and "features" not in self.parameters:
            raise UsageError(
                "infer: got no features, expected the name of each coefficient; give --features A,B,.."
            )
        ranged = task in ("ecdf", "quantiles") and "given" not in self.parameters
        if ranged and not {"lower", "upper"} <= self.parameters.keys():
            raise UsageError(
                f"{task}: got no lower or no upper end, expected both; give --lower and --upper (for ecdf also points "
                "with --grid)."
            )
        # Servers check every row at every point: the default of the task is for small clients.
        return {"points": SEARCHED, **self.parameters} if task == "quantiles" else self.parameters

    def deliver(self, result: Result, delivery: output.Delivery) -> None:
        """Deliver the result, and write its artefact if there should be one."""
        deliver(result, delivery, out=self.out)


@options.takes(
    evaluation,
    second_model,
    calibration,
    scaling,
    distribution,
    labels,
    goodness,
    prediction_sets,
    declared,
    regression,
    coefficients,
)
def wanted(
    evaluation: dict[str, Any],
    second_model: dict[str, Any],
    calibration: Calibration,
    scaling: dict[str, Any],
    distribution: dict[str, Any],
    labels: dict[str, Any],
    goodness: dict[str, Any],
    prediction_sets: dict[str, Any],
    declared: dict[str, Any],
    regression: dict[str, Any],
    coefficients: dict[str, Any],
) -> Wanted:
    """What is asked of a study; parameters that its task does not have are refused where the task is made."""
    if "groups" in evaluation and "groups" in goodness:
        raise UsageError(
            "--group and --groups: the first names subgroups of an evaluation, the second says how many groups "
            "hosmer-lemeshow has; give one of them."
        )
    given = evaluation | second_model | calibration.parameters | scaling | distribution | labels | goodness
    given = as_task(given | prediction_sets | declared | regression | coefficients)
    return Wanted(parameters=given, out=calibration.out)
