"""`fedassay ecdf`: the distribution function of any scalar over many clients, and its quantiles."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from fedassay import api
from fedassay.cli import options, output
from fedassay.errors import UsageError
from fedassay.protocol import Neighbours
from fedassay.simulation import Simulation


class Mechanism(StrEnum):
    """How noise is put into a distribution function."""

    AUTO = "auto"
    TREE = "tree"
    PATH = "path"
    FACTORISED = "factorised"


class Smoothing(StrEnum):
    """How a noisy distribution function is made to rise from 0 to 1."""

    NONE = "none"
    ISOTONIC = "isotonic"
    L1 = "l1"
    L2 = "l2"


PANEL = "Distribution (ecdf)"
SEARCHED = 4096
SPACINGS = ("uniform", "logarithmic", "quantile")


def distribution(
    lower: Annotated[
        float | None,
        typer.Option(rich_help_panel=PANEL, help="The smallest value; what is below counts here."),
    ] = None,
    upper: Annotated[
        float | None,
        typer.Option(rich_help_panel=PANEL, help="The largest value; what is above counts here."),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=PANEL, help="How many points, a power of two (rounded up). Default: 1024."
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="SPACING",
            rich_help_panel=PANEL,
            help="Spacing: uniform, logarithmic, quantile (dense where rows are), or the points: 1,2,5,10.",
        ),
    ] = None,
    quantile: Annotated[
        list[float] | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="A quantile to read off, between 0 and 1; may be repeated. It costs nothing.",
        ),
    ] = None,
    mechanism: Annotated[
        Mechanism | None,
        typer.Option(rich_help_panel=PANEL, help="Where noise is put. Default: auto, the least noise."),
    ] = None,
    smoothing: Annotated[
        Smoothing | None, typer.Option(rich_help_panel=PANEL, help="How the noisy curve is made monotone.")
    ] = None,
    smoothed_points: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="Smooth and show so many of the points only, evenly spread. Default: all.",
        ),
    ] = None,
    public_labels: Annotated[
        bool,
        typer.Option(
            "--public-labels", rich_help_panel=PANEL, help="Labels are no secret (replace-one only)."
        ),
    ] = False,
    precision: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="Refuse, before anything is spent, if the noise will be larger than this.",
        ),
    ] = None,
    rows: Annotated[
        float | None, typer.Option(rich_help_panel=PANEL, help="How many rows you expect, for --precision.")
    ] = None,
) -> dict[str, Any]:
    """The options of a distribution that were given, as parameters of the task."""
    given = {
        "lower": lower,
        "upper": upper,
        "points": points,
        "quantiles": quantile or None,
        "mechanism": None if mechanism is None else mechanism.value,
        "smoothing": None if smoothing is None else smoothing.value,
        "smoothed_points": smoothed_points,
        "public_labels": public_labels or None,
        "precision": precision,
        "expected_rows": rows,
        **({} if grid is None else spacing(grid)),
    }
    if "given" in given and points is not None:
        raise UsageError(
            f"--points: got {points} beside the points of --grid, expected one of them; leave it out."
        )
    return {name: value for name, value in given.items() if value is not None}


def spacing(text: str) -> dict[str, Any]:
    """What ``--grid`` means: a spacing by name, or the points themselves.

    Examples
    --------
    >>> spacing("logarithmic"), spacing("1, 2.5,10")
    ({'grid': 'logarithmic'}, {'given': [1.0, 2.5, 10.0]})
    """
    if text in SPACINGS:
        return {"grid": text}
    try:
        return {"given": [float(number) for number in text.split(",")]}
    except ValueError:
        raise UsageError(
            f"--grid: got {text!r}, expected {', '.join(SPACINGS)}, or increasing numbers such as 1,2,5,10."
        ) from None


def labels(
    labelled: Annotated[
        bool,
        typer.Option(
            "--labelled", rich_help_panel=PANEL, help="One curve for each label, and the ROC curve."
        ),
    ] = False,
) -> dict[str, Any]:
    """The same for a study, where each site names its own columns: are rows labelled?"""
    return {"labelled": True} if labelled else {}


@options.takes(options.data, options.client, distribution, options.terms, options.simulation, output.delivery)
def ecdf(
    data: options.Source,
    value: Annotated[str, typer.Option(help="Column with the numbers.")],
    label: Annotated[
        str | None,
        typer.Option(
            help="Column with labels, 0 or 1: both distributions, ROC curve and AUC in one release."
        ),
    ] = None,
    client: options.Client = None,
    level: Annotated[float, typer.Option(help="Confidence level of band and intervals.")] = 0.95,
    *,
    distribution: dict[str, Any],
    terms: options.Terms,
    simulation: Simulation,
    delivery: output.Delivery,
) -> None:
    """Release the distribution function of a scalar: a curve with its band, and any quantile."""
    changes_nothing = label is not None and terms.protection.neighbours is Neighbours.ADD_REMOVE
    if "public_labels" in distribution and changes_nothing:
        raise UsageError(
            "--public-labels: a row that is added or removed takes its label with it, so that this changes nothing; "
            "leave it out, or give --neighbours replace-one."
        )
    with delivery.progress() as advance:
        result = api.ecdf(
            data,
            value=value,
            label=label,
            client=client,
            level=level,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            simulation=replace(simulation, progress=advance),
            **distribution,
        )
    delivery.deliver(result)


@options.takes(options.data, options.client, options.terms, options.simulation, output.delivery)
def quantiles(
    data: options.Source,
    value: Annotated[str, typer.Option(help="Column with the numbers.")],
    quantile: Annotated[list[float], typer.Option(help="Which one, between 0 and 1; may be repeated.")],
    lower: Annotated[float, typer.Option(help="The smallest value; what is below counts here.")],
    upper: Annotated[float, typer.Option(help="The largest value; what is above counts here.")],
    points: Annotated[int, typer.Option(help="How many points are searched (rounded up).")] = SEARCHED,
    grid: Annotated[str, typer.Option(help="Spacing of the points: uniform or logarithmic.")] = "uniform",
    client: options.Client = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    *,
    terms: options.Terms,
    simulation: Simulation,
    delivery: output.Delivery,
) -> None:
    """Search quantiles point by point, on servers that keep what clients sent: --privacy two-server."""
    with delivery.progress() as advance:
        result = api.quantiles(
            data,
            value=value,
            quantiles=quantile,
            lower=lower,
            upper=upper,
            points=points,
            grid=grid,
            client=client,
            level=level,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            simulation=replace(simulation, progress=advance),
        )
    delivery.deliver(result)
