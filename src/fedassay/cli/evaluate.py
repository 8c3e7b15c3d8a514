"""`fedassay evaluate`: every standard metric of a binary classifier over many clients."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from fedassay import api
from fedassay.cli import options, output
from fedassay.protocol import Neighbours, Unit


class Transform(StrEnum):
    """How score bins are spaced."""

    AUTO = "auto"
    UNIFORM = "uniform"
    LOGIT = "logit"
    MIXED = "mixed"


def evaluate(
    data: options.Data,
    score: Annotated[str, typer.Option(help="Column with the model's probabilities, in [0, 1].")],
    label: Annotated[str, typer.Option(help="Column with the true labels, 0 or 1.")],
    client: options.ClientColumn = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="Decision threshold with exact metrics; may be repeated. Default: 0.5."),
    ] = None,
    height: Annotated[
        int | None, typer.Option(help="2^HEIGHT score bins. Default: 15, or 10 under noise.")
    ] = None,
    buckets: Annotated[int, typer.Option(help="Buckets of the calibration curve and of the ECE.")] = 10,
    transform: Annotated[Transform, typer.Option(help="Spacing of the score bins.")] = Transform.AUTO,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    privacy: options.Privacy = "secure-sum",
    epsilon: options.Epsilon = None,
    delta: options.Delta = 0.0,
    unit: options.UnitOption = Unit.EXAMPLE,
    neighbours: options.NeighboursOption = Neighbours.ADD_REMOVE,
    rows_per_client: options.RowsPerClient = None,
    runtime: options.RuntimeOption = "in-process",
    mode: options.ModeOption = options.Mode.AUTO,
    seed: options.Seed = None,
    json: options.JsonFile = None,
    report: options.ReportFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Evaluate a binary classifier: AUC, calibration, and metrics at thresholds, with intervals."""
    terms = options.terms(
        privacy=privacy,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbours=neighbours,
        rows_per_client=rows_per_client,
    )
    simulation = options.simulation(runtime=runtime, mode=mode, seed=seed)
    output.check_writable(json, report)
    with output.progress(quiet=quiet) as advance:
        result = api.evaluate(
            data,
            score=score,
            label=label,
            client=client,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            thresholds=tuple(threshold or [0.5]),
            height=height,
            buckets=buckets,
            transform=transform.value,
            level=level,
            simulation=replace(simulation, progress=advance),
        )
    output.deliver(result, json=json, report=report, quiet=quiet)
