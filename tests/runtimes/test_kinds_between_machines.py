"""Every kind of task between machines: what cannot be is refused at once, and what can be reaches the sites whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedassay.errors import UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.protocol.vocabulary import Budget
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.tasks.card import TASKS
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP
from file_drop_town import Town, beginning

RANGE = ("--lower", 0, "--upper", 128, "--points", 32)
ABSOLUTE = ("--sets", "absolute", "--score-range", "0,6")
NEWTON = ("--features", "age,dose", "--method", "newton")
SERVER = ("--privacy", "server-dp", "--epsilon", 1)


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("evaluate", RANGE, "unknown parameter of evaluate"),
        ("hosmer-lemeshow", ("--group", "F", "--groups", 5), "--group: got --groups as well"),
        ("calibrate-classes", ("--classes", 3, "--rounds", 3), "rounds: the method auto has no use for it"),
        ("calibrate-classes", ("--classes", 3, "--solver", "exact", *SERVER), "exact sums carry no noise"),
        ("conformal", ("--sets", "absolute"), "--score-range: got none"),
        ("conformal", (*ABSOLUTE, "--method", "local"), "no single one is shown"),
        ("conformal", (*ABSOLUTE, "--confidence", 0.95), "guarantee training-conditional"),
        ("conformal", ("--sets", "lac", "--conditional", "class"), "--classes: missing"),
        ("conformal", (*ABSOLUTE, "--conditional", "group"), "--group: got none"),
        ("conformal", ("--sets", "lac", "--holdout", 0.3), "--classes: missing"),
        ("ecdf", ("--lower", 0), "er: missing; expected the range"),
        ("quantiles", (), "er: missing; expected the range"),
        ("quantiles", RANGE, "Points"),
        ("infer", ("--method", "newton"), "--features: missing"),
        ("infer", (*NEWTON, "--rounds", 20), "rounds: the method newton has no use for it"),
        ("infer", ("--features", "age,age"), "features: got one of them twice"),
        ("infer", (*NEWTON, "--contrast", "age - size"), "contrast: got 'age - size'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_announced(
    tmp_path: Path, capsys: Any, task: str, options: tuple[object, ...], words: str
) -> None:
    town = Town(tmp_path, names=("a", "b", "c"))
    assert beginning(town, task, *options) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not any(town.drop.iterdir())


@pytest.mark.parametrize(
    ("task", "options", "role"),
    [
        ("evaluate", ("--group", "F"), "group"),
        ("conformal", ABSOLUTE, "prediction"),
        ("ecdf", RANGE, "value"),
    ],
)
def test_a_site_that_has_not_named_a_column_says_so(
    tmp_path: Path, capsys: Any, task: str, options: tuple[object, ...], role: str
) -> None:
    town = Town(tmp_path, names=("a", "b", "c"))
    assert beginning(town, task, *options, "--privacy", "plain") == 0
    assert town.contribute("a") != 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"needs the column {role}, which this site has not named" in said


@pytest.mark.parametrize(
    ("task", "parameters", "terms", "wrong"),
    [
        ("evaluate", {"groups": ["F", "M"]}, {}, {"groups": ["F", "F"]}),
        ("evaluate", {"per_site": True}, {}, {"height": 99}),
        ("evaluate", {"versus": True}, {}, {"level": 2.0}),
        ("calibrate-classes", {"classes": 3, "method": "bbq"}, {"trust": Plain()}, {"solver": "exact"}),
        ("calibrate-classes", {"classes": 3, "solver": "fedavg", "rounds": 2}, {}, {"classes": None}),
        ("conformal", {"sets": "absolute", "score_range": [0.0, 6.0], "method": "qq"}, {}, {"level": 2.0}),
        ("ecdf", {"lower": 0.0, "upper": 9.0, "quantiles": [0.5]}, {}, {"upper": 0.0}),
        ("hosmer-lemeshow", {"groups": 5}, {}, {"groups": 0}),
        ("infer", {"features": ["age"], "method": "newton", "variance": "site"}, {}, {"level": 2.0}),
    ],
)
def test_a_flower_study_carries_the_parameters(
    task: str, parameters: Mapping[str, Any], terms: Mapping[str, Any], wrong: Mapping[str, Any]
) -> None:
    study = FlowerStudy(name="s", agenda=Agenda.of(task, parameters), **terms)
    again = FlowerStudy.from_config(study.to_config()).agenda.items[0].made
    assert isinstance(again, TASKS[task])
    assert again == study.agenda.items[0].made
    for name, value in parameters.items():
        assert getattr(again, name) == (tuple(value) if isinstance(value, list) else value), name
    with pytest.raises(UsageError, match="|".join(wrong)):
        FlowerStudy(name="s", agenda=Agenda.of(task, {**parameters, **wrong}), **terms)


def test_a_flower_study_refuses_what_its_terms_cannot_answer() -> None:
    with pytest.raises(UsageError, match="per-site: under server-dp"):
        FlowerStudy(
            name="s",
            agenda=Agenda.of("evaluate", {"per_site": True}),
            trust=ServerDP(),
            budget=Budget(epsilon=1.0),
        )
