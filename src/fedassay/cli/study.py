"""The options of all tasks together, for commands that run any of them between sites."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fedassay.cli import output
from fedassay.cli.command import GivenOptions, Option, OptionsOf, takes
from fedassay.cli.output import deliver
from fedassay.errors import ParameterError
from fedassay.protocol.result import Result
from fedassay.tasks.card import KINDS, PARAMETERS
from fedassay.tasks.command import ARTEFACT_FILE
from fedassay.tasks.shared_parameters import HOLDOUT


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What was given: the parameters of the task, and where its artefact goes."""

    parameters: GivenOptions
    out: Path | None

    def of(self, task: str) -> dict[str, Any]:
        """The parameters for this task, with what is public knowledge that somebody has to state."""
        if task in KINDS:  # else the task is refused where it is made
            KINDS[task].study_rules.require_public(self.parameters)
        if self.parameters.get("holdout", 0) not in (0, HOLDOUT):
            raise ParameterError(
                "holdout",
                f"got {self.parameters['holdout']:g}, but sites hold out {HOLDOUT:g} of their units; give that, or "
                "leave it out.",
            )
        return self.parameters

    def deliver(self, result: Result, delivery: output.Delivery) -> None:
        """Deliver the result, and write its artefact if there should be one."""
        deliver(result, delivery, out=self.out)


@takes(
    OptionsOf(
        "parameters",
        PARAMETERS,
        panels={name: f"Only for {name}" for name in PARAMETERS},
        without=("target",),
    )
)
def wanted(
    out: Annotated[Path | None, Option(metavar=ARTEFACT_FILE.metavar, help=ARTEFACT_FILE.sentence)] = None,
    *,
    parameters: GivenOptions,
) -> Wanted:
    """What is asked of a study; parameters that its task does not have are refused where the task is made."""
    output.check_writable(out)
    return Wanted(parameters=parameters, out=out)
