"""A multiclass evaluation in a study between sites: the same numbers as in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

import fedassay
from fedassay.documents.report import heading
from file_drop_town import Town, beginning, pooled
from softmax_rows import SoftmaxPopulation

SCHEMA = json.loads((Path(fedassay.__file__).parent / "documents" / "result.schema.json").read_text())


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Three sites with numbered columns of logits."""
    town = Town(tmp_path, names=("a", "b", "c"))
    for number, name in enumerate(town.names):
        z, y = SoftmaxPopulation(classes=3).sample(200 + number, np.random.default_rng(number))
        frame = pd.DataFrame({f"z_{j}": z[:, j] for j in range(3)}).assign(y=y)
        frame.to_csv(town.root / name / "scores.csv", index=False)
        site = town.root / name / "site.toml"
        site.write_text(site.read_text().replace('score = "p"\nlabel = "y"', 'class = "y"\nlogits = "z_"'))
    return town


def test_a_study_gives_what_one_process_gives(town: Town, tmp_path: Path) -> None:
    result = tmp_path / "r.json"
    options: tuple[Any, ...] = ("--classes", 3, "--privacy", "plain", "--height", 6)
    assert beginning(town, "evaluate-classes", *options) == 0
    for name in town.names:
        assert town.contribute(name) == 0
    assert town.aggregate("-q", "--json", result) == 0
    document = json.loads(result.read_text())
    jsonschema.validate(document, SCHEMA)
    wanted = fedassay.evaluate(
        pooled(town), client="site", label="y", logits="z_", height=6, privacy=fedassay.Plain()
    )
    assert document["results"] == json.loads(wanted.to_json())["results"]
    assert heading(document) == "Evaluation of a classifier with several classes"
