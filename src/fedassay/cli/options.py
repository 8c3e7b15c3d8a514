"""The options that every data command takes, and what they mean as objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedassay.errors import UsageError
from fedassay.protocol import Budget, Neighbours, Protection, TrustModel, Unit
from fedassay.simulation import Simulation
from fedassay.trust import TRUST_MODELS

LATER = ("distributed-dp", "local-dp", "two-server", "shuffle")
"""Trust models of the contract that this version does not have yet."""


class Mode(StrEnum):
    """How the in-process runtime simulates clients."""

    AUTO = "auto"
    FAITHFUL = "faithful"
    AGGREGATE = "aggregate"


Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A .parquet, .csv or .npz file, or a folder with one file per site."),
]
ClientColumn = Annotated[
    str | None,
    typer.Option("--client", help="Column that names the client. Without it every row is its own client."),
]
Privacy = Annotated[str, typer.Option(help="Trust model: " + ", ".join(TRUST_MODELS) + ".")]
Epsilon = Annotated[
    float | None, typer.Option(help="Privacy budget; required by trust models that add noise.")
]
Delta = Annotated[float, typer.Option(help="Failure probability of the privacy guarantee; 0 is pure.")]
UnitOption = Annotated[Unit, typer.Option(help="What privacy protects: one example, or one client.")]
NeighboursOption = Annotated[Neighbours, typer.Option(help="Which data sets must look alike.")]
RowsPerClient = Annotated[
    int | None,
    typer.Option(
        help="Bound on the rows of one client (required for unit client); excess rows are left out."
    ),
]
RuntimeOption = Annotated[
    str, typer.Option("--runtime", help="What carries the messages: in-process or flower.")
]
ModeOption = Annotated[Mode, typer.Option(help="In-process: real messages, or totals drawn from their law.")]
Seed = Annotated[int | None, typer.Option(help="Makes a simulation repeatable.")]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output."),
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page with tables and plots.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The trust model, the budget and the protection that the options ask for."""

    trust: TrustModel
    budget: Budget | None
    protection: Protection


def terms(
    *,
    privacy: str,
    epsilon: float | None,
    delta: float,
    unit: Unit,
    neighbours: Neighbours,
    rows_per_client: int | None,
) -> Terms:
    """Make sense of the privacy options, or say what is wrong with them."""
    if privacy not in TRUST_MODELS:
        available = ", ".join(TRUST_MODELS)
        problem = "is not part of this version yet" if privacy in LATER else "is not a trust model"
        raise UsageError(f"--privacy: {privacy!r} {problem}; expected one of {available}.")
    trust = TRUST_MODELS[privacy]()
    if trust.private and epsilon is None:
        raise UsageError(
            f"--privacy {privacy}: it adds noise, so it needs a budget; give --epsilon (1, say)."
        )
    if not trust.private and (epsilon is not None or delta):
        raise UsageError(
            f"--privacy {privacy}: it adds no noise, so --epsilon and --delta would promise nothing; "
            "leave them out or choose --privacy server-dp."
        )
    budget = None if epsilon is None else Budget(epsilon=epsilon, delta=delta)
    protection = Protection(unit=unit, neighbours=neighbours, rows_per_client=rows_per_client)
    return Terms(trust=trust, budget=budget, protection=protection)


def simulation(*, runtime: str, mode: Mode, seed: int | None) -> Simulation:
    """How to simulate."""
    if runtime not in ("in-process", "flower"):
        raise UsageError(f"--runtime: got {runtime!r}, expected in-process or flower.")
    return Simulation(seed=seed, mode=mode.value, carrier="flower" if runtime == "flower" else "in-process")
