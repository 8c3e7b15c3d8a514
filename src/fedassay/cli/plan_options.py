"""The options of `fedassay plan`: what is expected of data and models, and what is enough."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedassay.planning import Expectation, Size
from fedassay.planning.expectation import MOST_ROWS
from fedassay.planning.typical_classes import ACCURACY, TEMPERATURE

Target = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=WIDTH",
        help="What is short enough, such as roc_auc=0.01 (half an interval); may be repeated. "
        "Also asks for the smallest epsilon and the fewest rows that reach it.",
    ),
]
CalibrationTarget = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=WIDTH",
        help="What is near enough: expected_calibration_error=0.02 or brier_excess=0.002; with --classes "
        "temperature=0.1 (relative) or improvement=0.05 (of the log loss, to be seen). Also asks for the smallest "
        "epsilon and the fewest rows that reach it.",
    ),
]
DistributionTarget = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=WIDTH",
        help="What is short enough: noise=0.01 (what noise adds to the band) or band=0.05 (half of all of it). Also "
        "asks for the smallest epsilon and the fewest rows that reach it.",
    ),
]
CoverageTarget = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=WIDTH",
        help="What is small enough: spread=0.01 (standard deviation of the coverage), excess=0.01 (how far it is above "
        "the level) or shortfall=0.02 (how far below it the coverage is that is reached with the confidence). Also "
        "asks for the smallest epsilon, the fewest clients and the fewest rows per client that reach it.",
    ),
]
Height = Annotated[int | None, typer.Option(help="2^HEIGHT score bins. Default: that of the task.")]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]


def expectation(
    rows: Annotated[float, typer.Option(help="How many rows there will be, in all.")],
    prevalence: Annotated[float, typer.Option(help="The share of positive rows that you expect.")],
    auc: Annotated[float, typer.Option(help="The AUC that you expect.")],
    clients: Annotated[
        int | None, typer.Option(help="How many clients, of equal size. Default: each row is one.")
    ] = None,
) -> Expectation:
    """What the data are expected to be."""
    return Expectation(rows=rows, clients=_clients(rows, clients), prevalence=prevalence, auc=auc)


def size(
    rows: Annotated[float, typer.Option(help="How many rows there will be, in all.")],
    clients: Annotated[
        int | None, typer.Option(help="How many clients, of equal size. Default: each row is one.")
    ] = None,
) -> Size:
    """How many rows are expected, at how many clients."""
    return Size(rows=rows, clients=_clients(rows, clients))


Given = dict[str, Any]
"""Options that were given, by name."""


def scores(
    prevalence: Annotated[
        float | None, typer.Option(help="For scores: the share of positive rows that you expect.")
    ] = None,
    auc: Annotated[float | None, typer.Option(help="For scores: the AUC that you expect.")] = None,
    bins: Annotated[
        int | None,
        typer.Option(help="For scores: buckets of histogram binning. Default: that of the task."),
    ] = None,
    height: Annotated[
        int | None, typer.Option(help="For scores: 2^HEIGHT bins. Default: that of the task.")
    ] = None,
) -> Given:
    """What is expected of a model with two classes, and how it is calibrated: what was given of it."""
    return _given(prevalence=prevalence, auc=auc, bins=bins, height=height)


def logits(
    classes: Annotated[
        int | None, typer.Option(help="How many classes a model has whose logits are calibrated.")
    ] = None,
    accuracy: Annotated[
        float | None, typer.Option(help=f"With --classes: how often it is right. Default: {ACCURACY}.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="With --classes: the best temperature that you expect, above 1 if the model is too sure of itself. "
            f"Default: {TEMPERATURE}."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="With --classes: of fedavg and binnings. Default: what the budget bears."),
    ] = None,
    participation: Annotated[
        float | None,
        typer.Option(help="With --classes: probability that a client takes part in a round. Default: 1."),
    ] = None,
) -> Given:
    """What is expected of a model with several classes, and how it is calibrated: what was given of it."""
    return _given(
        classes=classes,
        accuracy=accuracy,
        temperature=temperature,
        rounds=rounds,
        participation=participation,
    )


def _given(**options: Any) -> Given:
    return {name: value for name, value in options.items() if value is not None}


def _clients(rows: float, given: int | None) -> int:
    if given is not None:
        return given
    return round(rows) if 1 <= rows < MOST_ROWS else 1
