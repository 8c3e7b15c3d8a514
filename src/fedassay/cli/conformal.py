"""`fedassay conformal`: prediction sets with guaranteed coverage, from one message of each client."""

from __future__ import annotations

from typing import Annotated

from fedassay.cli import options, output
from fedassay.cli.columns import ArtefactFile
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.tasks.conformal.parameters import ConformalParameters

prediction_sets = OptionsOf("prediction_sets", ConformalParameters, without=("classes",))


@takes(options.run, prediction_sets)
def conformal(
    conformity: Annotated[
        str | None, Option(help="Column with a score of your own, large where the prediction is bad.")
    ] = None,
    target: Annotated[str | None, Option(help="Column with the true values.")] = None,
    prediction: Annotated[str | None, Option(help="Column with predictions: |target - prediction|.")] = None,
    scale: Annotated[str | None, Option(help="Column to divide that by, above 0.")] = None,
    lower: Annotated[str | None, Option(help="Column with a lower quantile (CQR).")] = None,
    upper: Annotated[str | None, Option(help="Column with an upper quantile (CQR).")] = None,
    label: Annotated[str | None, Option(help="Column with the true class, 0, 1, ..")] = None,
    score: Annotated[
        str | None, Option(help="Column with a binary classifier's probabilities of the label 1.")
    ] = None,
    logits: Annotated[
        str | None,
        Option(help="The model's logits: a list column, a prefix of numbered columns, or an array."),
    ] = None,
    out: ArtefactFile = None,
    by: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of groups, for --conditional group.")
    ] = None,
    *,
    prediction_sets: Given,
    run: options.Run,
) -> None:
    """Find the threshold of prediction sets that cover new rows with the wanted probability."""
    from fedassay.cli.artefact import deliver

    output.check_writable(out)
    result = run.ask(
        "conformal",
        conformity=conformity,
        target=target,
        prediction=prediction,
        scale=scale,
        lower=lower,
        upper=upper,
        label=label,
        logits=logits,
        score=score,
        by=by,
        **prediction_sets,
    )
    deliver(result, run.delivery, out=out)
