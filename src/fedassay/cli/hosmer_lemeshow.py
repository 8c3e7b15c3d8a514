"""`fedassay hosmer-lemeshow`: are a model's probabilities right? A test over many clients."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from fedassay import api
from fedassay.cli import options, output
from fedassay.cli.evaluate import Transform
from fedassay.simulation import Simulation


class Method(StrEnum):
    """How the groups and their sums are released."""

    FREE = "free"
    CORRECTED = "corrected"
    PUBLISHED = "published"


class Degrees(StrEnum):
    """The degrees of freedom: for a frozen model, or for the rows it was fitted to."""

    FROZEN = "Q"
    FITTED = "Q-2"


PANEL = "Goodness of fit (hosmer-lemeshow)"


def goodness(
    groups: Annotated[
        int | None, typer.Option(rich_help_panel=PANEL, help="How many groups of rows. Default: 10.")
    ] = None,
    degrees: Annotated[
        Degrees | None,
        typer.Option(
            rich_help_panel=PANEL, help="Q for a frozen model on new rows (default), Q-2 as published."
        ),
    ] = None,
) -> dict[str, Any]:
    """The options of a goodness-of-fit test that were given, as parameters of the task."""
    given = {"groups": groups, "degrees": None if degrees is None else degrees.value}
    return {name: value for name, value in given.items() if value is not None}


@options.takes(options.data, options.client, goodness, options.terms, options.simulation, output.delivery)
def hosmer_lemeshow(
    data: options.Source,
    score: Annotated[str, typer.Option(help="Column with the model's probabilities, in [0, 1].")],
    label: Annotated[str, typer.Option(help="Column with the true labels, 0 or 1.")],
    client: options.Client = None,
    method: Annotated[
        Method,
        typer.Option(help="free: all from one score histogram. Others: groups first, then their sums."),
    ] = Method.FREE,
    points: Annotated[
        int | None, typer.Option(help="Points of the score distribution that groups come from.")
    ] = None,
    height: Annotated[int | None, typer.Option(help="free: 2^HEIGHT score bins.")] = None,
    transform: Annotated[Transform | None, typer.Option(help="free: spacing of the score bins.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of intervals.")] = 0.95,
    *,
    goodness: dict[str, Any],
    terms: options.Terms,
    simulation: Simulation,
    delivery: output.Delivery,
) -> None:
    """Test whether a model's probabilities are right: Hosmer-Lemeshow, with the noise in the p-value."""
    given = {
        "points": points,
        "height": height,
        "transform": None if transform is None else transform.value,
        **goodness,
    }
    with delivery.progress() as advance:
        result = api.hosmer_lemeshow(
            data,
            score=score,
            label=label,
            client=client,
            method=method.value,
            level=level,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            simulation=replace(simulation, progress=advance),
            **{name: value for name, value in given.items() if value is not None},
        )
    delivery.deliver(result)
