"""`fedassay infer`: coefficients of a regression over many clients, with intervals."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedassay import api
from fedassay.cli import options, output
from fedassay.errors import UsageError
from fedassay.files import write_atomically
from fedassay.result import Result
from fedassay.simulation import Simulation
from fedassay.version import VERSION


class Model(StrEnum):
    """What is fitted."""

    LINEAR = "linear"
    LOGISTIC = "logistic"


class Method(StrEnum):
    """How coefficients and intervals are found."""

    ROUND = "round-plug-in"
    SEPARATED = "separated-plug-in"
    CORRECTED = "separated-plug-in-corrected"
    SCALING = "random-scaling"
    NEWTON = "newton"


class Local(StrEnum):
    """What is done about what local steps bend."""

    CORRECTED = "corrected"
    FIXED = "fixed"
    PUBLISHED = "published"


class Weights(StrEnum):
    """What weighs the same."""

    ROWS = "rows"
    CLIENTS = "clients"


class Errors(StrEnum):
    """Standard errors of the pooled fit."""

    ROBUST = "robust"
    MODEL = "model"
    CLIENTS = "clients"


PANEL = "Regression (infer)"
KIND = "fedassay regression state"


def regression(
    model: Annotated[
        Model | None, typer.Option(rich_help_panel=PANEL, help="linear (default) or logistic.")
    ] = None,
    local_steps: Annotated[
        int | None,
        typer.Option(rich_help_panel=PANEL, help="The most local steps of a client in a round. Default: 1."),
    ] = None,
    local: Annotated[
        Local | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="Local steps bend what they measure. corrected (default): estimated and put right; fixed: all "
            "gradients at the point where the round began; published: nothing is done.",
        ),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PANEL, help="B of the step sizes B/t^A. Default: by model and number of features."
        ),
    ] = None,
    decay: Annotated[
        float | None,
        typer.Option(rich_help_panel=PANEL, help="A of the step sizes, between 0.5 and 1. Default: 0.505."),
    ] = None,
    weights: Annotated[
        Weights | None,
        typer.Option(
            rich_help_panel=PANEL, help="rows (default): as if they were pooled; clients: each counts alike."
        ),
    ] = None,
    errors: Annotated[
        Errors | None,
        typer.Option(
            rich_help_panel=PANEL,
            help="Of newton: robust (default, a sandwich), model, or clients (clusters).",
        ),
    ] = None,
    no_intercept: Annotated[
        bool, typer.Option("--no-intercept", rich_help_panel=PANEL, help="Fit without an intercept.")
    ] = False,
    no_standardise: Annotated[
        bool,
        typer.Option(
            "--no-standardise",
            rich_help_panel=PANEL,
            help="Do not bring features to a common scale first. Results are in the data's units either way.",
        ),
    ] = False,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MEAN:SPREAD",
            rich_help_panel=PANEL,
            help="Public mean and spread of a feature (or target, for linear), used instead of measured ones; may be "
            "repeated. Under noise nothing is measured for it.",
        ),
    ] = None,
    contrast: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=PANEL, help="Coefficients to compare, such as 'a - 2*b = 0'; may be repeated."
        ),
    ] = None,
) -> dict[str, Any]:
    """The options of a regression that were given, as parameters of the task."""
    given = {
        "model": model,
        "local_steps": local_steps,
        "local": local,
        "step": step,
        "decay": decay,
        "weights": weights,
        "errors": errors,
        "intercept": False if no_intercept else None,
        "standardise": False if no_standardise else None,
        "scales": scale or None,
        "contrasts": contrast or None,
    }
    return {
        name: value.value if isinstance(value, StrEnum) else value
        for name, value in given.items()
        if value is not None
    }


def coefficients(
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,..",
            rich_help_panel=PANEL,
            help="Names of the coefficients, in the order in which every site names its features.",
        ),
    ] = None,
    with_offset: Annotated[
        bool, typer.Option("--with-offset", rich_help_panel=PANEL, help="Rows have an offset.")
    ] = False,
) -> dict[str, Any]:
    """The same for a study, where each site names its own columns."""
    names = None if features is None else [name.strip() for name in features.split(",")]
    given = {"features": names, "offset": with_offset or None}
    return {name: value for name, value in given.items() if value is not None}


@options.takes(options.data, options.client, regression, options.terms, options.simulation, output.delivery)
def infer(
    data: options.Source,
    target: Annotated[str, typer.Option(help="Column with the target: a number, or 0 and 1 for logistic.")],
    features: Annotated[
        str,
        typer.Option(
            metavar="A,B,..",
            help="Columns of the features; or one name: a column of lists, or how numbered columns begin.",
        ),
    ],
    client: options.Client = None,
    method: Annotated[
        Method,
        typer.Option(
            help="round-plug-in, separated-plug-in (as published), separated-plug-in-corrected, random-scaling: by "
            "rounds of federated averaging; newton: the pooled fit, by a handful of sums."
        ),
    ] = Method.ROUND,
    rounds: Annotated[
        int | None,
        typer.Option(help="Of federated averaging. Default: 200, or as many as have fresh rows."),
    ] = None,
    participation: Annotated[
        float, typer.Option(help="The part of the clients that is drawn in each round.")
    ] = 1.0,
    clip: Annotated[
        float | None,
        typer.Option(help="Under noise: the norm of a client's mean gradient that counts in full."),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    offset: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with a known part of the linear predictor.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on from what this file holds, if it is there, with the (new) rows of DATA; written afterwards.",
        ),
    ] = None,
    *,
    regression: dict[str, Any],
    terms: options.Terms,
    simulation: Simulation,
    delivery: output.Delivery,
) -> None:
    """Fit a linear or logistic regression, with a confidence interval for every coefficient."""
    output.check_writable(state)
    if state is not None and method is Method.NEWTON:
        raise UsageError("--state: newton keeps none, it looks at all rows at once; leave one of them out.")
    if state is not None and terms.trust.private:
        raise UsageError(f"--state: rounds under {terms.trust.name} cannot be taken up again; leave it out.")
    kept = None if state is None else read_state(state)
    with delivery.rounds() as advance:
        result = api.infer(
            data,
            client=client,
            target=target,
            features=features,
            method=method.value,
            rounds=rounds,
            participation=participation,
            clip=clip,
            level=level,
            offset=offset,
            state=kept,
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            simulation=replace(simulation, progress=advance),
            **regression,
        )
    if state is not None:
        write_state(state, result)
    delivery.deliver(result, also=[] if state is None else [state])


def read_state(path: Path) -> dict[str, Any] | None:
    """What an earlier run wrote, None if there is no such file; anything else is refused, and kept."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise UsageError(
            f"--state {path}: got a file that is not the state of a regression, and would be overwritten; expected "
            "one that an earlier run wrote, or a new name."
        )
    return found


def write_state(path: Path, result: Result) -> None:
    """Write what is needed to go on."""
    document = {"kind": KIND, "fedassay": VERSION, **result["state"]}
    write_atomically(path, json.dumps(document, allow_nan=False) + "\n")
