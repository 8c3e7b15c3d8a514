"""`fedassay demo`: a whole study over forty simulated hospitals, and the same model under other trust models."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from rich.console import Console
from rich.rule import Rule
from scipy.special import expit, logit

from fedassay import api
from fedassay.api.study import run_study
from fedassay.cli import options, output
from fedassay.cli.command import Option, command
from fedassay.documents import figures
from fedassay.documents.blocks import Cell, Document, TableBlock, metric_cell, reasons, table
from fedassay.documents.curves import save_overview
from fedassay.documents.terminal import print_table, render
from fedassay.protocol.files import replacement, write_atomically
from fedassay.protocol.metrics import of_part
from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, TrustModel
from fedassay.study.file import StudyFile
from fedassay.study.folder import prepare
from fedassay.study.simulation import Simulation
from fedassay.trust import TRUST_MODELS, Shuffle, TwoServer
from fedassay.trust.card import TRUST_CARDS

# --- one evaluation under several trust models --------------------------------------------------------------

_NARROW = 9
"""Width of a column in characters: seven trust models fit 90."""


def print_side_by_side(documents: Mapping[str, Document], console: Console) -> None:
    """Print the same evaluation under several trust models."""
    print_table(comparison(documents), console)
    for document in documents.values():
        name = document["privacy"]["trust_model"]
        drawn = "; totals drawn from their law" if document["runtime"]["mode"] == "aggregate" else ""
        console.print(f"[bold]{name}[/]: {TRUST_CARDS[name].learnt}{drawn}", highlight=False)


def comparison(documents: Mapping[str, Document]) -> TableBlock:
    """Return a table of all metrics, a test, and the cost of each run."""
    every = list(documents.values())
    first = every[0]["results"]["thresholds"][0]["threshold"]
    shown = {record.name: record.title for record in of_part("rows") if not record.test}
    shown |= {record.name: f"{record.short} at {first:g}" for record in of_part("threshold")}
    rows: list[tuple[str | Cell, ...]] = [
        (title, *(metric_cell(d["results"][name]) for d in every)) for name, title in shown.items()
    ]
    tests = [figures.p_value(d["results"]["hosmer_lemeshow"].get("p_value")) for d in every]
    last = [
        ("HL test, p", *tests),
        ("rounds", *(_sent(d, "rounds") for d in every)),
        ("bytes per client", *(_sent(d, "bytes_per_client") for d in every)),
        ("seconds", *(_seconds(d["runtime"]["seconds"]) for d in every)),
    ]
    return table(
        "One model, one federation, every trust model",
        ("metric", *(_head(d["privacy"]) for d in every)),
        (*rows, *last),
        notes=reasons(
            (f"{title} under {document['privacy']['trust_model']}", document["results"][name])
            for document in every
            for name, title in shown.items()
        ),
    )


def _sent(document: Document, what: str) -> str:
    """Return the amount that was sent; nothing was sent where totals were drawn from their law."""
    runtime = document["runtime"]
    return "-" if runtime["mode"] == "aggregate" else f"{runtime[what]:,}"


def _head(privacy: Mapping[str, Any]) -> str:
    name = str(privacy["trust_model"])
    if len(name) > _NARROW:
        name = name.replace("-", "- ")  # a line may end here
    return name if privacy["epsilon"] is None else f"{name} ε={privacy['epsilon']:g}"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f}"


# --- forty simulated hospitals and a model that is good at ranking and bad ----------------------------------


def hospitals(*, clients: int = 40, patients: int = 200_000, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Make columns `hospital`, `risk` (the model's probability) and `outcome` (0 or 1).

    Hospitals differ in size (log-normal) and in prevalence (around a quarter). The true log-odds are known to
    the simulation; the model sees them with noise, and is overconfident and too high: its calibration slope
    is below 1 and its intercept below 0.

    Examples
    --------
    >>> data = hospitals(clients=3, patients=1000)
    >>> sorted(data), len(data["risk"]) == 1000
    (['hospital', 'outcome', 'risk'], True)
    """
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(0.0, 0.7, clients)
    sizes = rng.multinomial(patients, weights / weights.sum())
    site = np.repeat(np.arange(clients), sizes)
    local_level = rng.normal(logit(0.2), 0.5, clients)
    severity = rng.normal(0.0, 1.5, patients)
    true_logit = local_level[site] + severity
    outcome = (rng.random(patients) < expit(true_logit)).astype(np.int8)
    seen = true_logit + rng.normal(0.0, 0.5, patients)
    risk = expit(0.5 + 1.4 * seen)
    return {
        "hospital": np.array([f"hospital-{i + 1:02d}" for i in range(clients)])[site],
        "risk": risk,
        "outcome": outcome,
    }


# --- `fedassay demo` ----------------------------------------------------------------------------------------

EPSILON = 1.0
SHOWN = {name: kind for name, kind in TRUST_MODELS.items() if kind is not Shuffle}
"""Trust models but shuffle: with many rows per hospital its messages have to be as noisy as those of local-dp."""

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
    output.say(
        console,
        "",
        f"The study:   {out / 'hospitals.toml'}",
        f"Its folder:  {folder} (fedassay verify {shlex.quote(str(folder))} --any-key checks it)",
        f"Read this:   {(folder / 'report.html').absolute().as_uri()}",
    )


def _study(out: Path, console: Console, *, quiet: bool) -> Path:
    """Run the study as `fedassay run` does; return its folder."""
    file = StudyFile.read(out / "hospitals.toml")
    folder = out / file.name
    prepare(folder, fresh=True)
    with output.progress(quiet=quiet) as advance:
        result = run_study(file, folder=folder, progress=advance)
    render(result.to_dict(), console)
    return folder


def _side_by_side(data: Any, out: Path, *, seed: int, quiet: bool) -> dict[str, dict[str, Any]]:
    """Evaluate under each trust model and return the documents; each is written too."""
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
    """Return the terms of a run; servers that check every row take minutes for 200,000, and see row counts."""
    if kind is not TwoServer:
        return {"simulation": simulation}
    return {
        "simulation": replace(simulation, mode="aggregate"),
        "protection": Protection(neighbours=Neighbours.REPLACE_ONE),
    }
