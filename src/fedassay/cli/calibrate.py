"""`fedassay calibrate`: a calibrator for a classifier's scores or logits, judged on held-out rows."""

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
    """How scores or logits become calibrated probabilities."""

    AUTO = "auto"
    HISTOGRAM = "histogram"
    BBQ = "bbq"
    ISOTONIC = "isotonic"
    PLATT = "platt"
    BETA = "beta"
    TEMPERATURE = "temperature"
    VECTOR = "vector"
    MATRIX = "matrix"
    ORDER_PRESERVING = "order-preserving"
    FEDCAL = "fedcal"


class Solver(StrEnum):
    """How a scaling of logits is found."""

    AUTO = "auto"
    EXACT = "exact"
    FEDAVG = "fedavg"
    ONE_SHOT = "one-shot"


class Weighting(StrEnum):
    """For which rows a binning is mixed with the model's own probabilities."""

    NONE = "none"
    ALL = "all"
    CHANGED = "changed"


class Clipping(StrEnum):
    """Whether a client's histograms are clipped together or one by one."""

    JOINT = "joint"
    SEPARATE = "separate"


class Averaging(StrEnum):
    """What weighs the same in federated averaging."""

    CLIENTS = "clients"
    ROWS = "rows"


PANEL = "Calibration of logits"


def scaling(
    solver: Annotated[
        Solver | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="exact: the pooled optimum, through sums; fedavg: the mean of the clients' own fits; one-shot: a "
            "temperature from one release. Default: exact; under noise one-shot for a temperature, else fedavg.",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="Of fedavg (default: 12, under noise what the budget bears) and of binnings (1).",
        ),
    ] = None,
    participation: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PANEL, help="Probability that a client takes part in a round. Default: 1."
        ),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="fedavg: largest norm of a client's update (under noise 0.5); binnings under noise: of its positives "
            "(10).",
        ),
    ] = None,
    negative_clip: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PANEL, help="Binnings under noise: largest norm of a client's negatives (50)."
        ),
    ] = None,
    clipping: Annotated[
        Clipping | None,
        typer.Option(rich_help_panel=PANEL, help="Binnings: clip a client's histograms together, or each."),
    ] = None,
    weighting: Annotated[
        Weighting | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="Binnings: mix with the model's own probabilities where rows are few; changed: only where the most "
            "probable class would change.",
        ),
    ] = None,
    averaging: Annotated[
        Averaging | None,
        typer.Option(rich_help_panel=PANEL, help="fedavg: clients weigh the same, or rows."),
    ] = None,
) -> dict[str, Any]:
    """How a calibrator of logits is found: what was given of it."""
    given = {
        "solver": solver,
        "rounds": rounds,
        "participation": participation,
        "clip": clip,
        "negative_clip": negative_clip,
        "clipping": clipping,
        "weighting": weighting,
        "averaging": averaging,
    }
    return {
        name: value.value if isinstance(value, StrEnum) else value
        for name, value in given.items()
        if value is not None
    }


def calibration(
    method: Annotated[
        str | None,
        typer.Option(
            help="calibrate: auto (default), histogram, bbq, isotonic, platt or beta; calibrate-classes: auto "
            "(default), temperature, vector, matrix, order-preserving, fedcal, histogram, bbq or isotonic; "
            "hosmer-lemeshow: free (default), corrected or published; conformal: auto (default), qq, pooled, weighted; "
            "infer: round-plug-in (default), newton, separated-plug-in, separated-plug-in-corrected or random-scaling."
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


@options.takes(options.data, options.client, scaling, options.terms, options.simulation, output.delivery)
def calibrate(
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
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the calibrator, for `fedassay apply`.")
    ] = None,
    client: options.Client = None,
    method: Annotated[
        Method,
        typer.Option(
            help="For scores histogram, bbq, isotonic, platt, beta, or auto: the best of them on the fit rows. For "
            "logits all but platt and beta, or auto: isotonic; under noise temperature, "
            "for whole clients with shifts of classes."
        ),
    ] = Method.AUTO,
    holdout: Annotated[float, typer.Option(help="Share of the units kept to judge the calibrator.")] = 0.3,
    bins: Annotated[
        int | None, typer.Option(help="Buckets of histogram binning. Default: the cube root of the rows.")
    ] = None,
    height: Annotated[
        int | None,
        typer.Option(help="2^HEIGHT score bins. Default: 15; under noise 8 (fit) and 10; for logits 7."),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(help="Buckets of the reliability curve and of the ECE. Default: 10, or 15 for logits."),
    ] = None,
    transform: Annotated[Transform, typer.Option(help="Spacing of the score bins.")] = Transform.AUTO,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    *,
    scaling: dict[str, Any],
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
            logits=logits,
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
            **scaling,
        )
    deliver(result, delivery, out=out)
