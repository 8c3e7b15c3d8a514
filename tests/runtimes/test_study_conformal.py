"""Prediction sets in studies between machines: the same thresholds as in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedassay
from fedassay.estimation.coverage import best_pair, best_server_rank
from file_drop_town import Town, beginning, pooled, simulated_on_flower
from ledgers import recorded

ABSOLUTE = ("--sets", "absolute", "--score-range", "0,6")
COLUMNS = 'score = "p"\nlabel = "y"\ntarget = "days"\nprediction = "guess"\ngroup = "sex"'


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Three sites that name columns for a target and a prediction, with 200, 240 and 280 rows."""
    town = Town(tmp_path, names=("a", "b", "c"))
    for number, name in enumerate(town.names):
        rng, rows = np.random.default_rng(number), 200 + 40 * number
        guess = rng.normal(size=rows)
        frame = pd.DataFrame(
            {
                **{"p": rng.random(rows), "y": rng.integers(0, 2, rows), "guess": guess},
                **{"days": guess + rng.normal(size=rows), "sex": rng.choice(["F", "M"], rows)},
            }
        )
        town.hold(name, frame, COLUMNS)
    return town


def in_process(town: Town, names: str = "abc", **options: Any) -> dict[str, Any]:
    result = fedassay.conformal(
        pooled(town, names),
        client="site",
        target="days",
        prediction="guess",
        **{"score_range": (0, 6), **options},
    )
    return dict(result.results)


# --- by files -------------------------------------------------------------------------------------------


def test_a_quantile_of_quantiles_in_the_clear(town: Town, tmp_path: Path) -> None:
    artefact = tmp_path / "conformal.json"
    assert beginning(town, "conformal", "--sets", "absolute", "--privacy", "plain", "--level", 0.8) == 0
    town.contribute_all()
    result = tmp_path / "r.json"
    assert town.aggregate("-q", "--json", result, "--out", artefact) == 0
    document = json.loads(result.read_text())
    wanted = in_process(town, privacy=fedassay.Plain(), level=0.8)
    assert document["results"]["threshold"] == wanted["threshold"]
    assert document["results"]["coverage_law"] == wanted["coverage_law"]
    assert [one["site"] for one in document["results"]["sites"]] == ["a", "b", "c"]
    assert document["parameters"]["sets"] == "absolute"
    predictor = fedassay.ConformalPredictor.load(artefact)
    assert predictor.threshold == wanted["threshold"]
    assert predictor.level == 0.8


def test_both_labels_of_a_binary_classifier(town: Town, tmp_path: Path) -> None:
    """The sites name columns for a score and a label; how many classes there are need not be said."""
    artefact = tmp_path / "conformal.json"
    calibrator = ("--score-parameters", "2,1.5,0.5,0.1")  # a sigmoid
    options = ("--sets", "binary", "--conditional", "class", "--holdout", "0.3", *calibrator)
    assert beginning(town, "conformal", *options, "--privacy", "plain") == 0
    results = town.finish(passes=2)["results"]
    assert town.aggregate("-q", "--out", artefact) == 0
    assert results["score"] == {"name": "binary", "parameters": [2.0, 1.5, 0.5, 0.1], "calibrated": True}
    assert list(results["groups"]) == ["0", "1"]
    assert len(results["held_out"]["size_counts"]) == 3
    rows = pooled(town)
    members = fedassay.ConformalPredictor.load(artefact).predict_set(score=rows.p)
    assert 0.8 < members[np.arange(len(members)), rows.y].mean() < 0.98


@pytest.mark.parametrize("method", ["pooled", "qq"])
def test_a_secure_sum(town: Town, method: str) -> None:
    assert beginning(town, "conformal", *ABSOLUTE, "--method", method) == 0
    document = town.finish(passes=2)
    simulation = fedassay.Simulation(mode="aggregate")
    wanted = in_process(town, method=method, privacy=fedassay.SecureSum(), simulation=simulation)
    for key in ("threshold", "guarantee", "coverage_law", "pair", "rows", "clients"):
        assert document["results"][key] == wanted[key], key
    assert document["warnings"] == []
    assert document["cohort"]["clients"] == 3


def test_a_site_that_is_lost_costs_a_vote_and_no_guarantee(tmp_path: Path) -> None:
    town = Town(tmp_path, names=tuple("abcde"))
    for number, name in enumerate(town.names):
        rng = np.random.default_rng(number)
        frame = pd.DataFrame({"p": rng.random(150), "y": 0, "guess": 0.0, "days": rng.normal(size=150)})
        town.hold(name, frame, COLUMNS.replace('\ngroup = "sex"', ""))
    assert beginning(town, "conformal", *ABSOLUTE, "--method", "qq") == 0
    results = town.finish(passes=2, absent="b")["results"]
    assert results["clients"] == 4
    # The local rank was chosen for five clients, the server's for those who stayed.
    ell, k = results["pair"]
    assert ell == best_pair(5, 150, 0.9).local_rank
    law = best_server_rank([150] * 4, [ell] * 4, 0.9)
    assert k == law.server_rank
    own = sorted(
        np.sort(np.abs(pd.read_csv(town.root / name / "scores.csv").days))[ell - 1] for name in "acde"
    )
    assert own[k - 1] <= results["threshold"] <= own[k - 1] + 6 / 16383 + 1e-9
    assert results["guarantee"]["coverage"] == pytest.approx(law.mean)


def test_private_choices_need_a_public_number_of_rows(town: Town, capsys: Any) -> None:
    privacy = ("--privacy", "local-dp", "--epsilon", 3)
    assert beginning(town, "conformal", *ABSOLUTE, *privacy) == 2
    assert "give --rows-per-client" in " ".join(capsys.readouterr().err.split())
    assert not any(town.drop.iterdir())
    assert beginning(town, "conformal", *ABSOLUTE, *privacy, "--rows-per-client", 180) == 0
    document = town.finish(passes=1)
    results = document["results"]
    assert (results["method"], results["clients"], results["rows"]) == ("qq", 3, None)
    assert 1.0 < results["threshold"] < 4.0
    assert results["guarantee"]["coverage"] >= 0.9
    assert document["privacy"]["epsilon"] == 3


def test_nothing_is_asked_where_nothing_can_be_had(town: Town) -> None:
    result = town.root / "r.json"
    for epsilon, asked in ((0.01, False), (3, True)):
        options = ("--privacy", "local-dp", "--epsilon", epsilon, "--rows-per-client", 180, "--json", result)
        town.folder = f"drop {epsilon}"
        town.drop.mkdir()
        assert beginning(town, "conformal", *ABSOLUTE, *options) == 0
        assert result.exists() != asked
        for name in town.names:
            assert town.contribute(name) == 0
            assert bool(recorded(town.root / name / "state")) == asked
        if not asked:
            results = json.loads(result.read_text())["results"]
            assert results["infinite"] is True
            assert "at ε = 0.01" in results["reason"]
            result.unlink()


def test_groups_and_held_out_rows(town: Town) -> None:
    groups = ("--conditional", "group", "--group", "F", "--group", "M")
    options = (*ABSOLUTE, *groups, "--holdout", "0.3", "--privacy", "plain")
    assert beginning(town, "conformal", *options) == 0
    results = town.finish(passes=2)["results"]
    assert list(results["groups"]) == ["F", "M", "other"]
    assert results["groups"]["other"]["infinite"]
    held = results["held_out"]["groups"]
    assert 0 < held["F"]["rows"] < 360
    assert held["F"]["coverage"]["value"] > 0.8


# --- on Flower ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # Flower and Ray warn about each other's deprecated corners
@pytest.mark.full
def test_flower_simulates_it(town: Town) -> None:
    columns = ("--target", "days", "--prediction", "guess", "--privacy", "plain")
    document = simulated_on_flower(town, "conformal", *columns, rows=pooled(town))
    wanted = in_process(town, privacy=fedassay.Plain())
    for key in ("threshold", "coverage_law", "sites"):
        assert document["results"][key] == wanted[key]
