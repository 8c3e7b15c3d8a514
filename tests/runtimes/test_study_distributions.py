"""Distributions and goodness-of-fit tests in studies between machines: the same results as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedassay
from fedassay.agenda import Agenda
from fedassay.errors import UsageError
from fedassay.runtimes.flower.study import Study
from fedassay.tasks.distribution.ecdf import Ecdf
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from file_drop_town import Town

RANGE = ("--lower", "0", "--upper", "128", "--points", "32")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Sites that name a column for values."""
    town = Town(tmp_path)
    for number, name in enumerate(town.names):
        path = town.root / name / "scores.csv"
        frame = pd.read_csv(path)
        frame.assign(age=np.random.default_rng(number).normal(60, 15, len(frame))).to_csv(path, index=False)
        site = town.root / name / "site.toml"
        site.write_text(site.read_text().replace('label = "y"', 'label = "y"\nvalue = "age"'))
    return town


def begin(town: Town, task: str, *arguments: object) -> int:
    roster = town.root / "coordinator" / "roster.toml"
    return town.aggregate(task, "--roster", roster, "-q", *arguments)


def pooled(town: Town) -> pd.DataFrame:
    return pd.concat(
        [pd.read_csv(town.root / name / "scores.csv").assign(site=name) for name in town.names],
        ignore_index=True,
    )


def test_a_labelled_distribution_by_files(town: Town) -> None:
    options = ("--labelled", "--quantile", "0.5", "--privacy", "plain")
    assert begin(town, "ecdf", *RANGE, *options) == 0
    document = town.finish(passes=1)
    wanted = fedassay.ecdf(
        pooled(town),
        client="site",
        value="age",
        label="y",
        lower=0,
        upper=128,
        points=32,
        quantiles=[0.5],
        privacy=fedassay.Plain(),
    )
    assert document["results"] == dict(wanted.results)
    assert document["cohort"]["rows"] == len(pooled(town))
    assert document["parameters"]["labelled"] is True
    assert document["warnings"] == []  # what lies outside the range, no site tells


def test_given_points_under_a_secure_sum_by_files(town: Town) -> None:
    assert begin(town, "ecdf", "--grid", "40,60,80") == 0
    found = town.finish(passes=2)["results"]
    ages = pooled(town).age
    assert found["values"] == pytest.approx([(ages <= point).mean() for point in (40, 60, 80)])


def test_a_grid_at_quantiles_asks_the_sites_twice(town: Town) -> None:
    assert begin(town, "ecdf", *RANGE, "--grid", "quantile", "--privacy", "plain") == 0
    found = town.finish(passes=2)["results"]
    assert found["grid"]["spacing"] == "quantile"


def test_a_test_by_files(town: Town) -> None:
    assert begin(town, "hosmer-lemeshow", "--method", "corrected", "--groups", 4, "--privacy", "plain") == 0
    found = town.finish(passes=2)["results"]["hosmer_lemeshow"]
    wanted = fedassay.hosmer_lemeshow(
        pooled(town),
        client="site",
        score="p",
        label="y",
        method="corrected",
        groups=4,
        privacy=fedassay.Plain(),
    )["hosmer_lemeshow"]
    assert found["value"] == pytest.approx(wanted["value"], rel=1e-6)
    assert found["p_value"] == pytest.approx(wanted["p_value"], rel=1e-6)


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("ecdf", ("--lower", "0"), "er: missing; expected the range"),
        ("ecdf", (), "er: missing; expected the range"),
        ("quantiles", (), "er: missing; expected the range"),
        ("quantiles", RANGE, "Points"),
        ("ecdf", (*RANGE, "--threshold", "0.3"), "unknown parameter of ecdf"),
        ("evaluate", RANGE, "unknown parameter of evaluate"),
        ("hosmer-lemeshow", ("--group", "F", "--groups", "5"), "--group: got --groups as well"),
        ("calibrate", ("--method", "free"), "method: got 'free'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_announced(
    town: Town, capsys: Any, task: str, options: tuple[str, ...], words: str
) -> None:
    assert begin(town, task, *options) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not any(town.drop.iterdir())


def test_a_site_that_names_no_value_column_says_so(town: Town, capsys: Any) -> None:
    site = town.root / "a" / "site.toml"
    site.write_text(site.read_text().replace('value = "age"\n', ""))
    assert begin(town, "ecdf", *RANGE, "--privacy", "plain") == 0
    assert town.contribute("a") != 0
    assert "needs the column value, which this site has not named" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_flower_study_carries_the_parameters() -> None:
    study = Study(name="s", agenda=Agenda.of("ecdf", {"lower": 0.0, "upper": 9.0, "quantiles": [0.5]}))
    again = Study.from_config(study.to_config())
    assert again.agenda.items[0].made == Ecdf(lower=0.0, upper=9.0, quantiles=(0.5,))
    test = Study(name="s", agenda=Agenda.of("hosmer-lemeshow", {"groups": 5}))
    assert Study.from_config(test.to_config()).agenda.items[0].made == HosmerLemeshow(groups=5)
    with pytest.raises(UsageError, match="range: got 5 to 5"):
        Study(name="s", agenda=Agenda.of("ecdf", {"lower": 5.0, "upper": 5.0}))
