"""`fedassay demo`: forty simulated hospitals, evaluated under the trust models that make a difference to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedassay import api
from fedassay.cli import options, output
from fedassay.data.hospitals import hospitals
from fedassay.errors import UsageError
from fedassay.files import write_atomically
from fedassay.protocol import Budget, Neighbours, Protection, TrustModel
from fedassay.reports.curves import save_overview
from fedassay.reports.page import page
from fedassay.reports.side_by_side import print_side_by_side
from fedassay.simulation import Simulation
from fedassay.trust import TRUST_MODELS, Shuffle, TwoServer

EPSILON = 1.0
SHOWN = {name: kind for name, kind in TRUST_MODELS.items() if kind is not Shuffle}
"""For hospitals with many rows each, shuffled messages have to be as noisy as those of local-dp."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results, the picture and the page.")] = Path(
        "demo-output"
    ),
    seed: Annotated[int, typer.Option(help="Makes the demo repeatable.")] = 1,
    quiet: options.Quiet = False,
) -> None:
    """Evaluate a miscalibrated model on 40 simulated hospitals, 200,000 patients, six trust models."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--out {out}: cannot be created ({error.strerror}); give another folder."
        ) from error
    console = Console()
    data = hospitals(seed=seed)
    if not quiet:
        console.print(
            f"40 hospitals, {len(data['risk']):,} patients, one model, no row leaves its hospital.\n"
        )
    documents: dict[str, dict[str, Any]] = {}
    for name, kind in SHOWN.items():
        with output.progress(quiet=quiet) as advance:
            result = api.evaluate(
                data,
                client="hospital",
                score="risk",
                label="outcome",
                thresholds=(0.2, 0.5),
                trust=kind(),
                budget=Budget(epsilon=EPSILON) if kind.private else None,
                **_terms(kind, Simulation(seed=seed, progress=advance)),
            )
        result.save(out / f"{name}.json")
        documents[name] = result.to_dict()
    shown = documents["secure-sum"]
    save_overview(shown, out / "result.svg")
    write_atomically(out / "report.html", page(shown))
    if not quiet:
        print_side_by_side(documents, console)
        console.print(
            f"\nPlots and tables: {out / 'report.html'}. Every number: {out}/*.json.", highlight=False
        )


def _terms(kind: type[TrustModel], simulation: Simulation) -> dict[str, Any]:
    """Servers that check every row take minutes for 200,000, and see how many rows a hospital sends."""
    if kind is not TwoServer:
        return {"simulation": simulation}
    return {
        "simulation": replace(simulation, mode="aggregate"),
        "protection": Protection(neighbours=Neighbours.REPLACE_ONE),
    }
