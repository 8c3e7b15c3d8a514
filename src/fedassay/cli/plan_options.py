"""The options of `fedassay plan`: what is expected of data and models, and what is enough."""

from __future__ import annotations

from typing import Annotated, Any

from fedassay.cli.command import Given, Option
from fedassay.planning import Expectation, Size
from fedassay.planning.expectation import MOST_ROWS
from fedassay.planning.typical_classes import ACCURACY, TEMPERATURE

Target = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=WIDTH",
        help="What is short enough, such as roc_auc=0.01 (half an interval); may be repeated. "
        "Also asks for the smallest epsilon and the fewest rows that reach it.",
    ),
]
CalibrationTarget = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=WIDTH",
        help="What is near enough: expected_calibration_error=0.02 or brier_excess=0.002; with --classes "
        "temperature=0.1 (relative) or improvement=0.05 (of the log loss, to be seen). Also asks for the smallest "
        "epsilon and the fewest rows that reach it.",
    ),
]
DistributionTarget = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=WIDTH",
        help="What is short enough: noise=0.01 (what noise adds to the band) or band=0.05 (half of all of it). Also "
        "asks for the smallest epsilon and the fewest rows that reach it.",
    ),
]
CoverageTarget = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=WIDTH",
        help="What is small enough: spread=0.01 (standard deviation of the coverage), excess=0.01 (how far it is above "
        "the level) or shortfall=0.02 (how far below it the coverage is that is reached with the confidence). Also "
        "asks for the smallest epsilon, the fewest clients and the fewest rows per client that reach it.",
    ),
]


def expectation(
    rows: Annotated[float, Option(help="How many rows there will be, in all.")],
    prevalence: Annotated[float, Option(help="The share of positive rows that you expect.")],
    auc: Annotated[float, Option(help="The AUC that you expect.")],
    clients: Annotated[
        int | None, Option(help="How many clients, of equal size. Default: each row is one.")
    ] = None,
) -> Expectation:
    """What the data are expected to be."""
    return Expectation(rows=rows, clients=_clients(rows, clients), prevalence=prevalence, auc=auc)


def size(
    rows: Annotated[float, Option(help="How many rows there will be, in all.")],
    clients: Annotated[
        int | None, Option(help="How many clients, of equal size. Default: each row is one.")
    ] = None,
) -> Size:
    """How many rows are expected, at how many clients."""
    return Size(rows=rows, clients=_clients(rows, clients))


def scores(
    prevalence: Annotated[
        float | None, Option(help="For scores: the share of positive rows that you expect.")
    ] = None,
    auc: Annotated[float | None, Option(help="For scores: the AUC that you expect.")] = None,
) -> Given:
    """What is expected of a model with two classes: what was given of it."""
    return _given(prevalence=prevalence, auc=auc)


def logits(
    classes: Annotated[
        int | None, Option(help="How many classes a model has whose logits are calibrated.")
    ] = None,
    accuracy: Annotated[
        float | None, Option(help=f"With --classes: how often it is right. Default: {ACCURACY}.")
    ] = None,
    temperature: Annotated[
        float | None,
        Option(
            help="With --classes: the best temperature that you expect, above 1 if the model is too sure of itself. "
            f"Default: {TEMPERATURE}."
        ),
    ] = None,
) -> Given:
    """What is expected of a model with several classes: what was given of it."""
    return _given(
        classes=classes,
        accuracy=accuracy,
        temperature=temperature,
    )


def _given(**options: Any) -> Given:
    return {name: value for name, value in options.items() if value is not None}


def _clients(rows: float, given: int | None) -> int:
    if given is not None:
        return given
    return round(rows) if 1 <= rows < MOST_ROWS else 1
