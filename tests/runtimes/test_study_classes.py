"""Logits in studies between sites: what one process gives, and what a calibration leaves behind."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest

import fedassay
from fedassay.cli import run_command
from fedassay.documents.report import heading
from file_drop_town import Town, beginning, pooled, simulated_on_flower
from ledgers import recorded
from multiclass_rows import drawn

SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())
KEY = bytes(range(32))
PLAIN = ("--classes", 3, "--privacy", "plain")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Three sites with numbered columns of logits and the same key of the split, so that runs can be compared."""
    town = Town(tmp_path, names=("a", "b", "c"))
    for number, name in enumerate(town.names):
        found = drawn(150 + 30 * number, 3, seed=number)
        frame = pd.DataFrame({f"z_{j}": column for j, column in enumerate(found["logits"].T)})
        town.hold(name, frame.assign(y=found["class"]), 'class = "y"\nlogits = "z_"')
        (town.root / name / "state").mkdir()
        (town.root / name / "state" / "split.key").write_bytes(KEY)
    return town


def finish(town: Town, result: Path, *more: object) -> dict[str, Any]:
    """Sites answer pass after pass, until there is a result."""
    for _ in range(20):
        town.contribute_all()
        assert town.aggregate("-q", "--json", result, *more) == 0
        if result.exists():
            document: dict[str, Any] = json.loads(result.read_text())
            jsonschema.validate(document, SCHEMA)
            return document
    raise AssertionError("no result after 20 passes")


def in_process(town: Town, **options: Any) -> fedassay.Result:
    return fedassay.calibrate(
        pooled(town),
        client="site",
        label="y",
        logits="z_",
        privacy=fedassay.Plain(),
        simulation=fedassay.Simulation(split_key=KEY),
        **options,
    )


@pytest.mark.parametrize(
    ("options", "same"),
    [
        (("--method", "temperature"), {"method": "temperature"}),
        (("--method", "bbq", "--weighting", "none"), {"method": "bbq", "weighting": "none"}),
        ((), {}),
    ],
    ids=["temperature", "bbq", "auto"],
)
def test_a_study_gives_what_one_process_gives(
    town: Town, tmp_path: Path, options: tuple[Any, ...], same: dict[str, Any]
) -> None:
    artefact = tmp_path / "calibrator.json"
    assert beginning(town, "calibrate-classes", *PLAIN, *options) == 0
    document = finish(town, tmp_path / "r.json", "--out", artefact)
    wanted = in_process(town, **same)
    assert document["results"] == json.loads(wanted.to_json())["results"]
    assert "alibration" in heading(document)
    assert document["cohort"]["clients"] == 3
    assert document["privacy"]["simulated"] is False
    made = fedassay.load_calibrator(artefact)
    assert isinstance(made, fedassay.ClassCalibrator)
    assert made.map == fedassay.ClassCalibrator.of(wanted).map
    rows, out = tmp_path / "new.npz", tmp_path / "new.parquet"
    new = drawn(20, 3, seed=9)["logits"]
    np.savez(rows, z=new)
    assert run_command([*map(str, ("apply", artefact, rows, "--logits", "z", "--out", out, "-q"))]) == 0
    assert parquet.read_table(out)["probabilities"].to_pylist() == made.predict_proba(new).tolist()


def test_an_evaluation_gives_what_one_process_gives(town: Town, tmp_path: Path) -> None:
    assert beginning(town, "evaluate-classes", *PLAIN, "--height", 6) == 0
    document = finish(town, tmp_path / "r.json")
    columns = {"client": "site", "label": "y", "logits": "z_"}
    wanted = fedassay.evaluate(pooled(town), **columns, height=6, privacy=fedassay.Plain())
    assert document["results"] == json.loads(wanted.to_json())["results"]
    assert heading(document) == "Evaluation of a classifier with several classes"


def test_a_secure_sum_gives_the_same(town: Town, tmp_path: Path) -> None:
    method = ("--method", "temperature", "--solver", "one-shot")
    assert beginning(town, "calibrate-classes", "--classes", 3, *method) == 0
    document = finish(town, tmp_path / "r.json")
    wanted = in_process(town, method="temperature", solver="one-shot")
    assert document["results"] == json.loads(wanted.to_json())["results"]
    assert document["privacy"]["trust_model"] == "secure-sum"


def test_under_noise_sites_pay_for_both_parts(town: Town, tmp_path: Path) -> None:
    """Fit and held-out rows are other rows: a site's ledger has both, and 3 is enough for 2."""
    privacy = ("--privacy", "distributed-dp", "--epsilon", 2, "--delta", 1e-5)
    for name in town.names:
        site = town.root / name / "site.toml"
        site.write_text(site.read_text().replace("epsilon = 3.0", "epsilon = 3.0\ndelta = 1e-5"))
    assert beginning(town, "calibrate-classes", "--classes", 3, *privacy) == 0
    document = finish(town, tmp_path / "r.json")
    results = document["results"]
    assert (results["method"], results["solver"]) == ("temperature", "one-shot")
    assert 1.0 <= results["temperature"]["value"] < 3.2
    assert document["privacy"]["epsilon"] == 2
    for name in town.names:
        parts = {charge.part for charge in recorded(town.root / name / "state")}
        assert parts == {"fit", "held-out"}


# --- on Flower ------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # Flower and Ray warn about each other's deprecated corners
def test_flower_simulates_it(town: Town, tmp_path: Path) -> None:
    options = ("--label", "y", "--logits", "z_", "--method", "bbq", "--privacy", "plain")
    document, here = (
        simulated_on_flower(town, "calibrate", *options, rows=pooled(town)),
        tmp_path / "here.json",
    )
    arguments = [str(town.root / "rows.csv"), "--client", "site", *options, "--seed", "1", "-q", "--json"]
    assert run_command(["calibrate", *arguments, str(here)]) == 0
    assert document["results"] == json.loads(here.read_text())["results"]
