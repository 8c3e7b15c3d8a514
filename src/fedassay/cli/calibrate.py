"""`fedassay calibrate`: a calibrator for a binary classifier's scores, judged on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedassay import api
from fedassay.cli import options, output
from fedassay.cli.artefact import deliver
from fedassay.cli.evaluate import Transform
from fedassay.simulation import Simulation


class Method(StrEnum):
    """How scores become calibrated probabilities."""

    AUTO = "auto"
    HISTOGRAM = "histogram"
    BBQ = "bbq"
    ISOTONIC = "isotonic"
    PLATT = "platt"
    BETA = "beta"


def calibration(
    method: Annotated[
        str | None,
        typer.Option(
            help="calibrate: auto (default), histogram, bbq, isotonic, platt or beta; hosmer-lemeshow: free "
            "(default), corrected or published; conformal: auto (default), qq, pooled or weighted."
        ),
    ] = None,
    bins: Annotated[
        int | None,
        typer.Option(
            help="calibrate: buckets of histogram binning. Default: cube root of the rows. conformal: public points."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="calibrate, conformal: write what `fedassay apply` takes."),
    ] = None,
) -> Calibration:
    """The options of a calibration that were given, for commands that run several tasks."""
    output.check_writable(out)
    given = {"method": method, "bins": bins}
    return Calibration(
        parameters={name: value for name, value in given.items() if value is not None}, out=out
    )


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was given of a calibration: its parameters, and where the calibrator goes."""

    parameters: dict[str, Any]
    out: Path | None


@options.takes(options.data, options.terms, options.simulation, output.delivery)
def calibrate(
    data: options.Source,
    score: Annotated[str, typer.Option(help="Column with the model's probabilities, in [0, 1].")],
    label: Annotated[str, typer.Option(help="Column with the true labels, 0 or 1.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the calibrator, for `fedassay apply`.")
    ] = None,
    client: options.ClientColumn = None,
    method: Annotated[Method, typer.Option(help="auto: the best of them on the fit rows.")] = Method.AUTO,
    holdout: Annotated[float, typer.Option(help="Share of the units kept to judge the calibrator.")] = 0.3,
    bins: Annotated[
        int | None, typer.Option(help="Buckets of histogram binning. Default: the cube root of the rows.")
    ] = None,
    height: Annotated[
        int | None, typer.Option(help="2^HEIGHT score bins. Default: 15; under noise 8 (fit) and 10.")
    ] = None,
    buckets: Annotated[int, typer.Option(help="Buckets of the reliability curve and of the ECE.")] = 10,
    transform: Annotated[Transform, typer.Option(help="Spacing of the score bins.")] = Transform.AUTO,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    *,
    terms: options.Terms,
    simulation: Simulation,
    delivery: output.Delivery,
) -> None:
    """Fit a calibrator to a part of the rows and judge it on the others, with intervals."""
    output.check_writable(out)
    with delivery.progress() as advance:
        result = api.calibrate(
            data,
            score=score,
            label=label,
            client=client,
            method=method.value,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            holdout=holdout,
            bins=bins,
            height=height,
            buckets=buckets,
            transform=transform.value,
            level=level,
            simulation=replace(simulation, progress=advance),
        )
    deliver(result, delivery, out=out)
