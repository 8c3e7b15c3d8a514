"""`fedassay evaluate`: every standard metric of a classifier over many clients."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from fedassay import api
from fedassay.cli import options, output
from fedassay.simulation import Simulation


class Transform(StrEnum):
    """How score bins are spaced."""

    AUTO = "auto"
    UNIFORM = "uniform"
    LOGIT = "logit"
    MIXED = "mixed"


def evaluation(
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="Decision threshold with exact metrics; may be repeated. Default: 0.5."),
    ] = None,
    height: Annotated[
        int | None,
        typer.Option(
            help="2^HEIGHT score bins. Default: 15, or 10 under noise; for logits 10 or 8, and 0 for no AUC."
        ),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(help="Buckets of the calibration curve and the ECE. Default: 10, or 15 for logits."),
    ] = None,
    transform: Annotated[
        Transform | None, typer.Option(help="Spacing of the score bins. Default: auto.")
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="Confidence level of the intervals. Default: 0.95.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a subgroup with metrics of its own; may be repeated. Others count as one."
        ),
    ] = None,
    per_site: Annotated[
        bool, typer.Option("--per-site", help="Compare the sites: forest table and heterogeneity.")
    ] = False,
) -> dict[str, Any]:
    """The options of an evaluation that were given, as parameters of the task."""
    given = {
        "thresholds": threshold or None,
        "height": height,
        "buckets": buckets,
        "transform": None if transform is None else transform.value,
        "level": level,
        "groups": group or None,
        "per_site": per_site or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def second_model(
    versus: Annotated[
        bool,
        typer.Option("--versus", help="Compare with the second model, whose scores have the role versus."),
    ] = False,
) -> dict[str, Any]:
    """The same for a study, where each site names its own columns: is there a second model?"""
    return {"versus": True} if versus else {}


@options.takes(options.data, options.client, evaluation, options.terms, options.simulation, output.delivery)
def evaluate(
    data: options.Source,
    label: Annotated[
        str, typer.Option(help="Column with the true labels: 0 or 1, or with --logits 0, 1, 2, ..")
    ],
    score: Annotated[
        str | None, typer.Option(help="Column with a binary model's probabilities, in [0, 1].")
    ] = None,
    logits: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="In the place of --score, for several classes: a column of lists, or how numbered columns begin.",
        ),
    ] = None,
    client: options.Client = None,
    versus: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of a second model's scores: paired comparison."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of subgroups, each with its metrics; name them with --group."
        ),
    ] = None,
    *,
    evaluation: dict[str, Any],
    terms: options.Terms,
    simulation: Simulation,
    delivery: output.Delivery,
) -> None:
    """Evaluate a classifier: AUC, calibration, losses, and metrics at thresholds, with intervals."""
    with delivery.progress() as advance:
        result = api.evaluate(
            data,
            score=score,
            logits=logits,
            label=label,
            client=client,
            versus=versus,
            by=by,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            simulation=replace(simulation, progress=advance),
            **evaluation,
        )
    delivery.deliver(result)
