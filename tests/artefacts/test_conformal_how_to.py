"""docs/how-to/conformal.md: every command of the page runs, in order, on data of the names it uses; its Python too."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedassay
from pages import type_and_execute

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "conformal.md"


def write_data(rows: int = 3000) -> None:
    """Lengths of stay that are harder to predict for some, images of ten classes, and risks."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, rows)
    spread = 0.5 + 0.15 * x
    stays = pd.DataFrame(
        {
            "hospital": [f"h{site}" for site in rng.integers(0, 12, rows)],
            "sex": np.array(["F", "M"])[rng.integers(0, 2, rows)],
            "days": 3 + x + spread * rng.normal(size=rows),
            "predicted": 3 + x,
            "spread": spread,
            "q05": 3 + x - 1.6 * spread,
            "q95": 3 + x + 1.6 * spread,
        }
    )
    stays.to_parquet("stays.parquet")
    stays.head(200).drop(columns="days").to_csv("new.csv", index=False)
    label = rng.integers(0, 10, rows)
    logits = rng.normal(size=(rows, 10)) + 2.5 * (np.arange(10) == label[:, None])
    np.savez("images.npz", site=rng.integers(0, 12, rows), label=label, logits=logits)
    np.savez("new_images.npz", logits=logits[:200])
    risk = rng.random(rows) ** 2
    visits = pd.DataFrame(
        {"hospital": stays.hospital, "risk": risk, "readmitted": (rng.random(rows) < risk) * 1}
    )
    visits.to_parquet("visits.parquet")
    visits.head(200).drop(columns="readmitted").to_csv("new_visits.csv", index=False)


def test_the_how_to_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data()
    type_and_execute(PAGE.read_text(encoding="utf-8"), least=10)


def test_the_table_of_entries_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(300)
    result = fedassay.conformal(
        "stays.parquet", client="hospital", target="days", prediction="predicted", privacy=fedassay.Plain()
    )
    content = fedassay.ConformalPredictor.of(result).to_json()
    table = PAGE.read_text(encoding="utf-8").partition("## The file")[2]
    first = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == set(content)
    for name in (*content["thresholds"]["all"], *content["thresholds"]["all"]["guarantee"]):
        assert f"`{name}`" in table
