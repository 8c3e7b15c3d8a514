"""Regressions in studies between machines: the same coefficients as in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedassay
from file_drop_town import Town, beginning, simulated_on_flower

COLUMNS = 'target = "days"\nfeatures = "{features}"\noffset = "known"'
NEWTON = ("--features", "age,dose", "--method", "newton")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Three sites that call their columns by names of their own, with 60, 80 and 100 rows."""
    town = Town(tmp_path, names=("a", "b", "c"))
    for number, name in enumerate(town.names):
        rng, rows = np.random.default_rng(number), 60 + 20 * number
        x = rng.normal(size=(rows, 2)) * [10, 1] + [50, 0]
        frame = pd.DataFrame({f"age {name}": x[:, 0], "dose": x[:, 1], "known": rng.normal(size=rows)})
        frame["days"] = 1 + 0.1 * x[:, 0] - x[:, 1] + frame.known + rng.normal(size=rows)
        town.hold(name, frame, COLUMNS.format(features=f"age {name},dose"))
    return town


def pooled(town: Town) -> pd.DataFrame:
    frames = [
        pd.read_csv(town.root / name / "scores.csv").rename(columns={f"age {name}": "age"}).assign(site=name)
        for name in town.names
    ]
    return pd.concat(frames, ignore_index=True)


def in_process(town: Town, **options: Any) -> dict[str, Any]:
    result = fedassay.infer(
        pooled(town), client="site", target="days", features="age,dose", **{"offset": "known", **options}
    )
    results: dict[str, Any] = json.loads(result.to_json())["results"]
    return results


# --- by files ---------------------------------------------------------------------------------------------------------


def test_newton_by_files_under_a_secure_sum(town: Town) -> None:
    options = ("--offset", "--variance", "model", "--contrast", "age - dose")
    assert beginning(town, "infer", *NEWTON, *options) == 0
    document = town.finish(passes=6)  # three sums, two legs each
    wanted = in_process(town, method="newton", variance="model", contrasts=["age - dose"])
    assert document["results"] == wanted
    assert [one["name"] for one in document["results"]["coefficients"]] == ["intercept", "age", "dose"]
    openings = document["cohort"].pop("openings")
    assert [opening["clients"] for opening in openings] == [["a", "b", "c"]] * 3
    assert document["cohort"] == {"clients": 3, "dropped": 0, "truncated": None, "rows": 240}
    assert document["parameters"]["features"] == ["age", "dose"]


@pytest.mark.full
def test_rounds_by_files_in_the_clear(town: Town) -> None:
    options = ("--rounds", 8, "--privacy", "plain", "--offset", "--local-steps", 2)
    assert beginning(town, "infer", "--features", "age,dose", *options) == 0
    document = town.finish(passes=9)
    wanted = in_process(town, rounds=8, local_steps=2, privacy=fedassay.Plain())
    wanted["state"]["target"] = ""  # how the sites call it stays with them
    assert document["results"] == wanted


# --- on Flower --------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # Flower and Ray warn about each other's deprecated corners
def test_flower_simulates_it(town: Town) -> None:
    columns = ("--target", "days", "--features", "age,dose", "--offset", "known")
    for options, wanted in (
        (["--method", "newton"], {"method": "newton"}),
        (["--rounds", "8", "--privacy", "plain"], {"rounds": 8, "privacy": fedassay.Plain()}),
    ):
        document = simulated_on_flower(town, "infer", *columns, *options, rows=pooled(town))
        assert document["results"] == in_process(town, **wanted)
