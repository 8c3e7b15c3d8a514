"""`fedassay evaluate`: every standard metric of a classifier over many clients."""

from __future__ import annotations

from typing import Annotated

from fedassay.cli import options
from fedassay.cli.columns import ClassifierLabel, Logits, Score
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.tasks.evaluation.parameters import EvaluateMulticlassParameters, EvaluateParameters

evaluation = OptionsOf(
    "evaluation",
    {"scores": EvaluateParameters, "logits": EvaluateMulticlassParameters},
    without=("versus", "classes"),
)


@takes(options.run, evaluation)
def evaluate(
    label: ClassifierLabel,
    score: Score = None,
    logits: Logits = None,
    versus: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Column of a second model's scores: paired comparison."),
    ] = None,
    by: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Column of subgroups, each with its metrics; name them with --group."),
    ] = None,
    *,
    evaluation: Given,
    run: options.Run,
) -> None:
    """Evaluate a classifier: AUC, calibration, losses, and metrics at thresholds, with intervals."""
    result = run.ask("evaluate", label=label, score=score, logits=logits, versus=versus, by=by, **evaluation)
    run.delivery.deliver(result)
