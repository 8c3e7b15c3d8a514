"""Sets of 0 and 1 over a federation: every method and trust model, against what is computed by hand from all rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedassay
from conformal_artefacts import binary_rows, rows_by_site
from conformal_drive import drive, setting_of
from fedassay.errors import UsageError
from fedassay.summaries.maps import InterpolatedMap, Map, Sigmoid, Steps, numbers_of
from fedassay.tasks.card import task_of
from fedassay.tasks.conformal import Conformal
from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP, Shuffle, TwoServer

SITES = 5
MAPS: dict[str, Map] = {
    "steps": Steps(edges=(0.3, 0.6), values=(0.1, 0.4, 0.8)),
    "points": InterpolatedMap(scores=(0.1, 0.35, 0.9), values=(0.05, 0.5, 0.7)),
    "sigmoid": Sigmoid(a=1.3, b=0.7, c=-0.2),
}


def rows(number: int = 1000, seed: int = 0) -> dict[str, Any]:
    return rows_by_site(binary_rows(number, seed), SITES)


TERMS = {"client": "site", "score": "p", "label": "y"}


SETTINGS = {
    "plain": setting_of(Plain(), clients=SITES),
    "secure-sum": setting_of(SecureSum(), clients=SITES),
    "server-dp": setting_of(ServerDP(), clients=SITES, epsilon=4.0),
    "distributed-dp": setting_of(DistributedDP(), clients=SITES, epsilon=4.0),
    "two-server": setting_of(TwoServer(), clients=SITES, epsilon=4.0, rows_per_client=200),
    "local-dp": setting_of(LocalDP(), clients=SITES, epsilon=9.0, rows_per_client=200),
    "shuffle": setting_of(Shuffle(), clients=SITES, epsilon=9.0, rows_per_client=200),
}
METHODS = {
    "plain": ("qq", "qq-paper", "average", "pooled", "weighted", "local"),
    "secure-sum": ("qq", "pooled", "weighted"),
    "local-dp": ("qq", "qq-paper"),
    "shuffle": ("qq", "qq-paper"),
}
CELLS = [(setting, method) for setting in SETTINGS for method in METHODS.get(setting, ("pooled", "weighted"))]


def clients_of(data: dict[str, np.ndarray], p: np.ndarray) -> list[dict[str, np.ndarray]]:
    return [
        {"score": p[data["site"] == site], "label": data["y"][data["site"] == site].astype(np.int8)}
        for site in range(SITES)
    ]


@pytest.mark.parametrize(("setting", "method"), CELLS)
def test_a_calibrated_task_is_the_task_on_calibrated_scores(setting: str, method: str) -> None:
    """Whoever calibrates the column first, or has the task do it, gets the same threshold to the last bit."""
    data, found = rows(), set()
    for name, one in MAPS.items():
        bins = None if setting == "plain" else 64
        task = Conformal(method=method, sets="binary", conditional="none", bins=bins)
        inside = drive(task.calibrated(one.to_json()), SETTINGS[setting], clients_of(data, data["p"]), seed=3)
        before = drive(task, SETTINGS[setting], clients_of(data, one(data["p"])), seed=3)
        assert inside["score"] == {"name": "binary", "parameters": list(numbers_of(one)), "calibrated": True}
        assert {**inside, "score": None} == {**before, "score": None}, name
        json.dumps(inside, allow_nan=False)
        if method != "local":
            assert inside["threshold"] is not None
            assert 0.2 < inside["threshold"] <= 1.0
        found.add(json.dumps([inside["threshold"], inside.get("sites")]))
    assert len(found) > 1  # it does matter what scores go through


@pytest.mark.parametrize("conditional", ["none", "class"])
@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
def test_held_out_rows_tell_what_new_ones_show(trust: Any, conditional: str | None) -> None:
    data = rows(1500, seed=1)
    result = fedassay.conformal(
        data,
        **TERMS,
        conditional=conditional,
        holdout=0.4,
        privacy=trust,
        simulation=fedassay.Simulation(seed=1, mode="auto" if trust.name == "plain" else "aggregate"),
    )
    held = result["held_out"]
    assert 0.84 < held["coverage"]["value"] < 0.95
    if conditional == "class":
        by_label = [np.array(one["size_counts"]) for one in held["groups"].values()]
        assert sum(by_label).tolist() == held["size_counts"]
    made = fedassay.ConformalPredictor.of(result)
    assert (made.classes, made.by, made.gives_sets) == (2, (result["conditional"] or ""), True)
    assert (result["conditional"] or "") == conditional.removeprefix("none")
    fresh = rows(20_000, seed=2)
    members = made.predict_set(score=fresh["p"])
    assert members[np.arange(20_000), fresh["y"]].mean() == pytest.approx(held["coverage"]["value"], abs=0.05)
    assert members.sum(axis=1).mean() == pytest.approx(held["mean_size"]["value"], abs=0.08)


def test_the_number_of_classes_is_known_and_no_other_is_taken() -> None:
    assert Conformal(sets="binary").classes == 2
    assert Conformal(sets="lac").classes is None
    assert task_of("conformal", {"sets": "binary", "conditional": "class", "groups": ["0", "1"]}).names == (
        "0",
        "1",
    )
    for fields, message in (
        ({"classes": 3}, "classes: got 3 for binary, expected 2"),
        ({"conditional": "class", "groups": ("0", "1", "2")}, "groups: got 3 for 2 classes"),
        ({"conditional": "class", "groups": ("0",)}, "groups: got 1 for 2 classes"),
        ({"score_parameters": (7.0,)}, "map: got 7.0 as its kind"),
    ):
        with pytest.raises(UsageError, match=message):
            Conformal(sets="binary", **fields)


def test_only_scores_as_they_are_can_be_calibrated() -> None:
    one = MAPS["sigmoid"].to_json()
    calibrated = Conformal(sets="binary", level=0.8).calibrated(one)
    assert calibrated == Conformal(sets="binary", level=0.8, score_parameters=numbers_of(MAPS["sigmoid"]))
    with pytest.raises(UsageError, match="the scores are calibrated already"):
        calibrated.calibrated(one)
    with pytest.raises(UsageError, match="got the score lac, expected binary"):
        Conformal(sets="lac").calibrated(one)
    with pytest.raises(UsageError, match="map: expected an object"):
        Conformal(sets="binary").calibrated({"kind": "python"})
    assert replace(calibrated, score_parameters=()) == Conformal(sets="binary", level=0.8)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"score": "p"}, "columns: got score, expected one of"),
        ({"score": "p", "label": "y", "logits": "p"}, "columns: got label, logits and score"),
        ({"score": "p", "label": "y", "sets": "aps"}, "sets: got 'aps' for the columns label and score"),
    ],
)
def test_columns_that_fit_no_score_are_refused(columns: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fedassay.conformal(rows(50), client="site", **columns)


@pytest.mark.parametrize(("name", "column", "message"), [("p", 1.5, "score"), ("y", 2, "label")])
def test_rows_that_are_no_probability_or_no_label_are_named(name: str, column: float, message: str) -> None:
    data = rows(200)
    data[name] = data[name].astype(np.float64)
    data[name][17] = column
    with pytest.raises(fedassay.errors.DataError, match=rf"column '{name}' \({message}\).*row 17"):
        fedassay.conformal(data, **TERMS, privacy=fedassay.Plain())
