"""`fedassay conformal`: prediction sets with guaranteed coverage, from one message of each client."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedassay import api
from fedassay.cli import options, output
from fedassay.cli.artefact import deliver
from fedassay.errors import UsageError
from fedassay.simulation import Simulation


class Guarantee(StrEnum):
    """Over what the coverage is promised."""

    MARGINAL = "marginal"
    CONDITIONAL = "training-conditional"


class Condition(StrEnum):
    """What has a threshold of its own."""

    CLASS = "class"
    GROUP = "group"


class Sets(StrEnum):
    """How classes are scored."""

    LAC = "lac"
    APS = "aps"
    RAPS = "raps"


PANEL = "Prediction sets (conformal)"


def prediction_sets(
    guarantee: Annotated[
        Guarantee | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="marginal (default): on average over calibration rows; training-conditional: with --confidence.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(rich_help_panel=PANEL, help="For training-conditional: how sure. Default: 0.9."),
    ] = None,
    score_range: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            rich_help_panel=PANEL,
            help="Between which numbers scores lie; public. Known for scores of classes.",
        ),
    ] = None,
    conditional: Annotated[
        Condition | None,
        typer.Option(rich_help_panel=PANEL, help="A threshold, and a guarantee, for each class or group."),
    ] = None,
    score_parameters: Annotated[
        str | None,
        typer.Option(metavar="LAMBDA,K", rich_help_panel=PANEL, help="Of raps. Default: 0.01,5."),
    ] = None,
) -> dict[str, Any]:
    """The options of prediction sets that were given, as parameters of the entry point."""
    given = {
        "guarantee": None if guarantee is None else guarantee.value,
        "confidence": confidence,
        "score_range": None if score_range is None else numbers("--score-range", score_range),
        "conditional": None if conditional is None else conditional.value,
        "parameters": None if score_parameters is None else numbers("--score-parameters", score_parameters),
    }
    if confidence is not None and guarantee is not Guarantee.CONDITIONAL:
        raise UsageError("--confidence: it belongs to --guarantee training-conditional; give both, or none.")
    return {name: value for name, value in given.items() if value is not None}


def declared(
    quantity: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="The score: conformity (default), absolute, normalised, cqr, lac, aps, raps or binary.",
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(rich_help_panel=PANEL, help="How many classes the model has, for their scores."),
    ] = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out", rich_help_panel=PANEL, help="Measure coverage on rows that sites keep apart."
        ),
    ] = False,
) -> dict[str, Any]:
    """The same for a study, where each site names its own columns: what is public about rows has to be declared."""
    given = {"quantity": quantity, "classes": classes, "held_out": held_out or None}
    return {name: value for name, value in given.items() if value is not None}


def as_task(given: dict[str, Any]) -> dict[str, Any]:
    """Options of a study as parameters of the task.

    Examples
    --------
    >>> as_task({"conditional": "class", "classes": 3})
    {'classes': 3, 'by': 'class', 'groups': ['0', '1', '2']}
    >>> as_task({"conditional": "class", "quantity": "binary"})
    {'quantity': 'binary', 'by': 'class', 'groups': ['0', '1']}
    """
    named = {name: value for name, value in given.items() if name != "conditional"}
    by = given.get("conditional")
    if by is None:
        return named
    classes = 2 if given.get("quantity") == "binary" else given.get("classes")
    if by == "class" and classes is None:
        raise UsageError("--conditional class: how many classes there are must be declared; give --classes.")
    if by == "group" and "groups" not in given:
        raise UsageError("--conditional group: the groups must be declared; give --group NAME for each.")
    groups = [str(place) for place in range(classes or 0)] if by == "class" else given["groups"]
    return {**named, "by": by, "groups": groups}


def numbers(option: str, text: str) -> list[float]:
    """Numbers separated by commas.

    Examples
    --------
    >>> numbers("--score-range", "0, 2.5")
    [0.0, 2.5]
    """
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{option}: got {text!r}, expected numbers separated by commas, such as 0,10."
        ) from None


@options.takes(
    options.data, options.client, prediction_sets, options.terms, options.simulation, output.delivery
)
def conformal(
    data: options.Source,
    client: options.Client = None,
    conformity: Annotated[
        str | None, typer.Option(help="Column with a score of your own, large where the prediction is bad.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column with the true values.")] = None,
    prediction: Annotated[
        str | None, typer.Option(help="Column with predictions: |target - prediction|.")
    ] = None,
    scale: Annotated[str | None, typer.Option(help="Column to divide that by, above 0.")] = None,
    lower: Annotated[str | None, typer.Option(help="Column with a lower quantile (CQR).")] = None,
    upper: Annotated[str | None, typer.Option(help="Column with an upper quantile (CQR).")] = None,
    label: Annotated[str | None, typer.Option(help="Column with the true class, 0, 1, ..")] = None,
    score: Annotated[
        str | None, typer.Option(help="Column with a binary classifier's probabilities of the label 1.")
    ] = None,
    logits: Annotated[
        str | None,
        typer.Option(help="The model's logits: a list column, a prefix of numbered columns, or an array."),
    ] = None,
    sets: Annotated[
        Sets | None,
        typer.Option(
            help="How classes are scored. lac (default): by their own probability; aps: by that of more probable "
            "ones; raps: aps with a penalty on late ranks."
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="The share of new rows that sets shall cover.")] = 0.9,
    method: Annotated[
        str,
        typer.Option(help="auto, qq, qq-paper, average, pooled, weighted or local."),
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the predictor, for `fedassay apply`.")
    ] = None,
    bins: Annotated[int | None, typer.Option(help="Public points, where single scores are not seen.")] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of groups, for --conditional group.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Name of a group; may be repeated. Others count as one.")
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of the rows kept to measure coverage and compare methods.")
    ] = 0.0,
    *,
    prediction_sets: dict[str, Any],
    terms: options.Terms,
    simulation: Simulation,
    delivery: output.Delivery,
) -> None:
    """Find the threshold of prediction sets that cover new rows with the wanted probability."""
    if prediction is None and (lower is None) != (upper is None):
        one, other = ("--lower", "--upper") if upper is None else ("--upper", "--lower")
        raise UsageError(f"{one} needs {other} (CQR); give both.")
    if score is not None and "parameters" in prediction_sets:
        raise UsageError(
            "--score-parameters: they belong to --sets raps, and --score has none; leave them out."
        )
    output.check_writable(out)
    with delivery.progress() as advance:
        result = api.conformal(
            data,
            client=client,
            conformity=conformity,
            target=target,
            prediction=prediction,
            scale=scale,
            lower=lower,
            upper=upper,
            label=label,
            logits=logits,
            score=score,
            sets=None if sets is None else sets.value,
            level=level,
            method=method,
            bins=bins,
            by=by,
            groups=group or (),
            holdout=holdout,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            simulation=replace(simulation, progress=advance),
            **prediction_sets,
        )
    deliver(result, delivery, out=out)
