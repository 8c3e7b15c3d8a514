"""A study against its tasks run one after another, and what its artefacts take, at three sizes.

    python benchmarks/study.py [--rows 20000,200000,1000000]

Both ask for the same epsilon in all: the tasks alone get their shares of it by hand, as epsilons that add up (delta is
0, so that they do). What the study gains: tasks that wait share round trips, rows are read once, and what is fitted on
other rows does not add up. The AUC's interval, and how long the page, the certificate and the check take, are printed
too.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from pyarrow import parquet

import fedassay
from fedassay.api.study import run_study
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.cli.demo import hospitals
from fedassay.documents.page import page
from fedassay.protocol.result import Result
from fedassay.study.file import StudyFile
from fedassay.study.folder import prepare, write_folder

EPSILON = 1.0
SHARES = {"evaluate": 0.5, "calibrate": 0.3, "conformal": 0.2}
STUDY = f"""
name = "benchmark"
[data]
path = "scores.parquet"
client = "hospital"
[data.columns]
score = "risk"
label = "outcome"
[privacy]
privacy = "distributed-dp"
epsilon = {EPSILON}
""" + "\n".join(f"[tasks.{name}]\nshare = {share}" for name, share in SHARES.items())


def one_by_one(path: Path) -> list[Result]:
    """The three tasks, each with its part of epsilon."""
    common = {"client": "hospital", "score": "risk", "label": "outcome", "privacy": fedassay.DistributedDP()}

    def terms(name: str) -> dict[str, object]:
        return {**common, "budget": fedassay.Budget(epsilon=EPSILON * SHARES[name])}

    return [
        fedassay.evaluate(path, **terms("evaluate")),
        fedassay.calibrate(path, **terms("calibrate")),
        fedassay.conformal(path, **terms("conformal"), holdout=0.3),
    ]


def measure(rows: int, folder: Path) -> None:
    parquet.write_table(pa.table(hospitals(clients=40, patients=rows, seed=1)), folder / "scores.parquet")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    started = perf_counter()
    alone = one_by_one(folder / "scores.parquet")
    apart = perf_counter() - started
    started = perf_counter()
    file = StudyFile.read(folder / "study.toml")
    result = run_study(file)
    together = perf_counter() - started
    rounds = sum(one.runtime["rounds"] for one in alone), result.runtime["rounds"]
    sent = sum(one.runtime["bytes_per_client"] for one in alone), result.runtime["bytes_per_client"]
    print(
        f"{rows:>10,} rows  apart {apart:6.2f} s, {rounds[0]:2d} rounds, {sent[0]:>8,} bytes"
        f"   study {together:6.2f} s, {rounds[1]:2d} rounds, {sent[1]:>8,} bytes"
        f"   ratios {apart / together:.2f}, {rounds[0] / rounds[1]:.2f}, {sent[0] / sent[1]:.2f}"
    )
    started = perf_counter()
    drawn = page(result.to_dict())
    seen = perf_counter() - started
    out = folder / "out"
    prepare(out)
    started = perf_counter()
    write_folder(out, result, file)
    written = perf_counter() - started
    started = perf_counter()
    found = check(out, key=ANY_KEY)
    verified = perf_counter() - started
    assert found.holds
    print(
        f"{'':>10}       page {seen:.2f} s ({len(drawn) / 1000:.0f} kB), "
        f"all artefacts {written:.2f} s, verify {verified:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="20000,200000,1000000")
    sizes = [int(text) for text in parser.parse_args().rows.split(",")]
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        measure(2_000, Path(folder))  # what is loaded when it is first used is not the study's
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(rows, Path(folder))


if __name__ == "__main__":
    main()
