"""`fedassay demo`: a whole study over forty simulated hospitals, and the same model under other trust models."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pyarrow import parquet
from rich.console import Console
from rich.rule import Rule

from fedassay import api
from fedassay.api.study import run_study
from fedassay.cli import options, output
from fedassay.cli.command import Option, command
from fedassay.cli.side_by_side import print_side_by_side
from fedassay.data.hospitals import hospitals
from fedassay.documents.curves import save_overview
from fedassay.documents.terminal import render
from fedassay.files import replacement, write_atomically
from fedassay.protocol import Budget, Neighbours, Protection, TrustModel
from fedassay.simulation import Simulation
from fedassay.study.file import StudyFile
from fedassay.study.folder import prepare
from fedassay.trust import TRUST_MODELS, Shuffle, TwoServer

EPSILON = 1.0
SHOWN = {name: kind for name, kind in TRUST_MODELS.items() if kind is not Shuffle}
"""For hospitals with many rows each, shuffled messages have to be as noisy as those of local-dp."""

SCORES = "scores.parquet"

STUDY = f"""\
# What `fedassay demo` runs. Change it and run it again: fedassay run hospitals.toml
name = "hospitals"
title = "A risk model in 40 hospitals"
model = "risk-model 1.0 (simulated)"

[data]
path = "{SCORES}"
client = "hospital"

[data.columns]
score = "risk"
label = "outcome"

[privacy]
privacy = "distributed-dp" # noise that the hospitals add together, under the pads of a secure sum
epsilon = {EPSILON}
delta = 1e-6

[runtime]
seed = {{seed}} # a simulation may be repeated; a release takes no seed

[expected] # from this the planner shares the budget among the tasks, before a row is read
rows = 200000
clients = 40
prevalence = 0.25
auc = 0.8

[tasks.evaluate] # every metric with its interval
thresholds = [0.2, 0.5]

[tasks.calibrate] # does it need a calibrator? judged on rows that the calibrator has not seen

[tasks.conformal] # sets that hold the truth with probability 0.9, from rows that neither has seen
level = 0.9
"""


@command
def demo(
    out: Annotated[Path, Option(help="Folder for the study and what it leaves.")] = Path("demo-output"),
    seed: Annotated[int, Option(help="Makes the demo repeatable.")] = 1,
    quiet: options.Quiet = False,
) -> None:
    """Assay a miscalibrated model in 40 simulated hospitals, 200,000 patients: one study, then six trust models."""
    prepare(out)
    console = Console(quiet=quiet)
    data = hospitals(seed=seed)
    with replacement(out / SCORES) as partial:
        parquet.write_table(pa.table(data), partial)
    write_atomically(out / "hospitals.toml", STUDY.format(seed=seed))
    console.print(f"40 hospitals, {len(data['risk']):,} patients, one model, no row leaves its hospital.")
    console.print(Rule("One study: evaluate, calibrate, conformalise and judge, for ε = 1"))
    folder = _study(out, console, quiet=quiet)
    console.print(Rule("The same model under other trust models (evaluation only)"))
    documents = _side_by_side(data, out, seed=seed, quiet=quiet)
    print_side_by_side(documents, console)
    for text in (
        "",
        f"The study:   {out / 'hospitals.toml'}",
        f"Its folder:  {folder} (fedassay verify {shlex.quote(str(folder))} --any-key checks it)",
        f"Read this:   {(folder / 'report.html').absolute().as_uri()}",
    ):
        console.print(text, highlight=False, soft_wrap=True, markup=False)


def _study(out: Path, console: Console, *, quiet: bool) -> Path:
    """Run the study as `fedassay run` does; the folder that it leaves."""
    file = StudyFile.read(out / "hospitals.toml")
    folder = out / file.name
    prepare(folder, fresh=True)
    with output.progress(quiet=quiet) as advance:
        result = run_study(file, folder=folder, progress=advance)
    render(result.to_dict(), console)
    return folder


def _side_by_side(data: Any, out: Path, *, seed: int, quiet: bool) -> dict[str, dict[str, Any]]:
    """The evaluation under each trust model, as documents; each is written too."""
    documents: dict[str, dict[str, Any]] = {}
    for name, kind in SHOWN.items():
        with output.progress(quiet=quiet) as advance:
            result = api.evaluate(
                data,
                client="hospital",
                score="risk",
                label="outcome",
                thresholds=(0.2, 0.5),
                privacy=kind(),
                budget=Budget(epsilon=EPSILON) if kind.private else None,
                **_terms(kind, Simulation(seed=seed, progress=advance)),
            )
        result.save(out / f"{name}.json")
        documents[name] = result.to_dict()
    save_overview(documents["secure-sum"], out / "result.svg")
    return documents


def _terms(kind: type[TrustModel], simulation: Simulation) -> dict[str, Any]:
    """Servers that check every row take minutes for 200,000, and see how many rows a hospital sends."""
    if kind is not TwoServer:
        return {"simulation": simulation}
    return {
        "simulation": replace(simulation, mode="aggregate"),
        "protection": Protection(neighbours=Neighbours.REPLACE_ONE),
    }
