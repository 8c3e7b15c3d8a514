"""The JSON Schema of study files judges like the files themselves, as far as structure goes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.protocol.parameters import Parameter, parameters
from fedassay.study import StudyFile
from fedassay.study.entries import TomlDocument
from fedassay.study.schema import SCHEMA_FILE, schema, schema_text
from fedassay.tasks.card import KINDS, PARAMETERS, TASKS, task_of
from study_files import BINARY, CLASSES, DEPLOYMENT, FILE_DROP

VALIDATOR = jsonschema.Draft202012Validator(schema())

WRONG: Mapping[Any, tuple[Any, ...]] = {
    bool: (1, "true", [True]),
    int: (1.5, "1", True, [1]),
    float: ("1", True, [0.5]),
    str: (1, ["a"], False),
}
"""Values of the wrong type, by the right one."""


def wrong(parameter: Parameter) -> tuple[Any, ...]:
    """Values that a parameter cannot have."""
    if parameter.mixed:
        return ("other", ["a"], 3)
    if parameter.several:
        return ([1], 3, [["a"]]) if parameter.item is str else ("a", ["a"], [True], [[0.5]])
    return ("", "other") if parameter.choices else WRONG[parameter.item]


def by_schema(content: Mapping[str, Any]) -> bool:
    return bool(VALIDATOR.is_valid(content))


def by_file(content: Mapping[str, Any]) -> bool:
    try:
        StudyFile.of(TomlDocument(path=Path("study.toml"), content=content, places={}))
    except UsageError:
        return False
    return True


def test_it_is_a_schema_and_what_is_published_is_current() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


@pytest.mark.parametrize("text", [BINARY, CLASSES, FILE_DROP, DEPLOYMENT])
def test_good_files_are_good_for_both(text: str) -> None:
    content = tomllib.loads(text)
    assert by_schema(content)
    assert by_file(content)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (BINARY, "epsilon = 2.0\ndelta = 1e-6", ""),
        (BINARY, '"distributed-dp"', '"plain"'),
        (BINARY, '"distributed-dp"', '"dp"'),
        (BINARY, "[0.1, 0.5]", '["a"]'),
        (BINARY, '"isotonic"', '"isotone"'),
        (BINARY, 'path = "scores.parquet"', ""),
        (BINARY, 'score = "p"\nlabel = "y"', ""),
        (BINARY, 'name = "readmission-spring"', 'name = "a b"'),
        (BINARY, 'name = "readmission-spring"', ""),
        (BINARY, "seed = 1", 'drop = "x"'),
        (BINARY, "[tasks.conformal95]", "[tasks.Conformal]"),
        (BINARY, "[tasks.conformal95]", "[tasks.result]"),
        (BINARY, 'task = "conformal"', ""),
        (BINARY, 'task = "conformal"', 'task = "conformal"\nmethd = "qq"'),
        (CLASSES, 'class = "y"', ""),
        (FILE_DROP, 'drop = "drop"', ""),
        (FILE_DROP, "[runtime]", "[runtime]\nseed = 1"),
        (FILE_DROP, "[runtime]", "[split]\nholdout = 0.2\n[runtime]"),
        (FILE_DROP, "[runtime]", "[data]\npath = 'a.csv'\n[data.columns]\nscore = 'p'\n[runtime]"),
        (DEPLOYMENT, "timeout = 30", "timeout = '30'"),
    ],
)
def test_bad_structure_is_bad_for_both(text: str, old: str, new: str) -> None:
    assert old in text
    content = tomllib.loads(text.replace(old, new, 1))
    assert not by_schema(content)
    assert not by_file(content)


def test_a_single_value_is_a_list_of_one() -> None:
    text = BINARY.replace("[0.1, 0.5]", "0.2", 1)
    assert by_schema(tomllib.loads(text))
    evaluate = StudyFile.parse(text).tasks[0]
    assert (evaluate.kind, evaluate.parameters["thresholds"]) == ("evaluate", [0.2])


@st.composite
def studies(draw: Any) -> dict[str, Any]:
    """Files with one task and columns for it, and now and then an entry of the wrong type or an unknown one."""
    kind = draw(st.sampled_from(sorted(TASKS)))
    known = {one.name: one for one in parameters(PARAMETERS[kind])}
    given: dict[str, Any] = {"lower": 0.0, "upper": 1.0} if kind in ("ecdf", "quantiles") else {}
    if kind == "conformal":
        given["sets"] = "absolute"
    change = draw(st.sampled_from(["none", "type", "word", "unknown", "share", "section"]))
    content: dict[str, Any] = {
        "name": "a",
        "data": {"path": "a.csv", "columns": {role: role for role in KINDS[kind].study_rules.roles(given)}},
        "tasks": {draw(st.sampled_from([kind, "own"])): {"task": kind, **given}},
    }
    (task,) = content["tasks"].values()
    if change == "type":
        name = draw(st.sampled_from(sorted(known)))
        task[name] = draw(st.sampled_from(wrong(known[name])))
    elif change == "word":
        names = sorted(name for name, one in known.items() if one.choices)
        if names:
            task[draw(st.sampled_from(names))] = draw(st.sampled_from(["", "other"]))
    elif change == "unknown":
        task[draw(st.text("abcdefgh_", min_size=1, max_size=6))] = 1
    elif change == "share":
        task["share"] = draw(st.sampled_from([0.5, 1, 0, -1, 1.5, "a", True]))
    elif change == "section":
        content[draw(st.sampled_from(["split", "privacy", "runtime", "expected", "data", "other"]))] = draw(
            st.sampled_from([{}, {"other": 1}, 3, []])
        )
    return content


def test_random_files_are_judged_alike() -> None:
    judged = []

    @given(studies())
    @settings(max_examples=100)
    def alike(content: dict[str, Any]) -> None:
        judged.append(by_schema(content))
        assert by_file(content) == judged[-1]

    alike()
    assert 0.2 < sum(judged) / len(judged) < 0.8


# --- parameters of tasks ----------------------------------------------------------------------------------------

WORDS = [
    (kind, one.name, word) for kind in TASKS for one in parameters(PARAMETERS[kind]) for word in one.choices
]


COMPANIONS: Mapping[tuple[str, str], dict[str, Any]] = {
    ("calibrate-classes", "solver"): {"method": "temperature"},
    ("calibrate-classes", "averaging"): {"method": "temperature", "solver": "fedavg"},
    ("calibrate-classes", "clipping"): {"method": "histogram"},
    ("calibrate-classes", "weighting"): {"method": "histogram"},
    ("conformal", "conditional"): {"sets": "lac", "groups": ["0", "1"]},
    ("ecdf", "grid"): {"lower": 0.1},
    ("infer", "variance"): {"method": "newton"},
    ("quantiles", "grid"): {"lower": 0.1},
}
"""What some parameters make sense with."""


@pytest.mark.parametrize(("kind", "name", "word"), WORDS)
def test_words_are_those_that_tasks_know(kind: str, name: str, word: str) -> None:
    companions = {} if (kind, word) == ("conformal", "none") else COMPANIONS.get((kind, name), {})
    task_of(kind, {**companions, name: word})


def test_every_text_has_known_words_but_names() -> None:
    free = {
        (kind, one.name)
        for kind in TASKS
        for one in parameters(PARAMETERS[kind])
        if one.item is str and not one.several
    }
    assert free == {("infer", "target")}
    for kind, name, _ in WORDS:
        with pytest.raises(UsageError, match=name):
            task_of(kind, {name: "nothing of the kind"})


def test_every_parameter_is_explained() -> None:
    for kind in TASKS:
        sentences = {one.name: one.sentence for one in parameters(PARAMETERS[kind])}
        entries = schema()["$defs"][kind]["properties"]
        for name, sentence in sentences.items():
            assert sentence.endswith(".")
            assert max(len(part.split()) for part in re.split(r"(?<=[.;]) ", sentence)) <= 25, sentence
            assert entries[name]["description"] == sentence


def test_defaults_are_of_their_types() -> None:
    for kind in TASKS:
        entries = schema()["$defs"][kind]["properties"]
        for one in parameters(PARAMETERS[kind]):
            if "default" in entries[one.name]:
                jsonschema.validate(entries[one.name]["default"], entries[one.name])
                assert isinstance(entries[one.name]["default"], list) == one.several
    assert json.loads(schema_text()) == schema()
