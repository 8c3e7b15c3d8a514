"""Distributions and goodness-of-fit tests in studies between machines: the same results as in one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedassay
from file_drop_town import Town, beginning, pooled

RANGE = ("--lower", "0", "--upper", "128", "--points", "32")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Sites that name a column for values."""
    town = Town(tmp_path)
    for number, name in enumerate(town.names):
        frame = pd.read_csv(town.root / name / "scores.csv")
        ages = np.random.default_rng(number).normal(60, 15, len(frame))
        town.hold(name, frame.assign(age=ages), 'score = "p"\nlabel = "y"\nvalue = "age"')
    return town


def test_a_labelled_distribution_by_files(town: Town) -> None:
    options = ("--labelled", "--quantile", "0.5", "--privacy", "plain")
    assert beginning(town, "ecdf", *RANGE, *options) == 0
    document = town.finish(passes=1)
    columns, grid = {"client": "site", "value": "age", "label": "y"}, {"lower": 0, "upper": 128, "points": 32}
    wanted = fedassay.ecdf(pooled(town), **columns, **grid, quantiles=[0.5], privacy=fedassay.Plain())
    assert document["results"] == dict(wanted.results)
    assert document["cohort"]["rows"] == len(pooled(town))
    assert document["parameters"]["labelled"] is True
    assert document["warnings"] == []  # what lies outside the range, no site tells


def test_given_points_under_a_secure_sum_by_files(town: Town) -> None:
    assert beginning(town, "ecdf", "--grid", "40,60,80") == 0
    found = town.finish(passes=2)["results"]
    ages = pooled(town).age
    assert found["values"] == pytest.approx([(ages <= point).mean() for point in (40, 60, 80)])


def test_a_grid_at_quantiles_asks_the_sites_twice(town: Town) -> None:
    assert beginning(town, "ecdf", *RANGE, "--grid", "quantile", "--privacy", "plain") == 0
    found = town.finish(passes=2)["results"]
    assert found["grid"]["spacing"] == "quantile"


def test_a_test_by_files(town: Town) -> None:
    options = ("--method", "corrected", "--groups", 4, "--privacy", "plain")
    assert beginning(town, "hosmer-lemeshow", *options) == 0
    found = town.finish(passes=2)["results"]["hosmer_lemeshow"]
    columns = {"client": "site", "score": "p", "label": "y"}
    wanted = fedassay.hosmer_lemeshow(
        pooled(town), **columns, method="corrected", groups=4, privacy=fedassay.Plain()
    )["hosmer_lemeshow"]
    assert found["value"] == pytest.approx(wanted["value"], rel=1e-6)
    assert found["p_value"] == pytest.approx(wanted["p_value"], rel=1e-6)
