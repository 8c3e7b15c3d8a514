"""The JSON Schema of study files judges like the files themselves, as far as structure goes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.study import StudyFile
from fedassay.study.asked import parameter_types, roles_of
from fedassay.study.choices import TASK_CHOICES
from fedassay.study.described import parameter_texts
from fedassay.study.entries import Document, plain
from fedassay.study.page import study_page
from fedassay.study.schema import SCHEMA_FILE, schema, schema_text
from fedassay.tasks.catalogue import TASKS, task_of
from study_files import BINARY, CLASSES, DEPLOYMENT, FILE_DROP

VALIDATOR = jsonschema.Draft202012Validator(schema())
DOCS = Path(__file__).parents[2] / "docs"

WRONG: Mapping[Any, tuple[Any, ...]] = {
    bool: (1, "true", [True]),
    int: (1.5, "1", True, [1]),
    float: ("1", True, [0.5]),
    str: (1, ["a"], False),
    tuple[float, ...]: (0.5, "a", ["a"], [True]),
    tuple[str, ...]: ("a", [1], 3),
}
"""Values of the wrong type, by the right one."""


def by_schema(content: Mapping[str, Any]) -> bool:
    return bool(VALIDATOR.is_valid(content))


def by_file(content: Mapping[str, Any]) -> bool:
    try:
        StudyFile.of(Document(path=Path("study.toml"), content=content, places={}))
    except UsageError:
        return False
    return True


def test_it_is_a_schema_and_what_is_published_is_current() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()
    assert (DOCS / "reference" / "study.md").read_text(encoding="utf-8") == study_page()


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


@st.composite
def studies(draw: Any) -> dict[str, Any]:
    """Files with one task and columns for it, and now and then an entry of the wrong type or an unknown one."""
    kind = draw(st.sampled_from(sorted(TASKS)))
    types = parameter_types(kind)
    given: dict[str, Any] = {"lower": 0.0, "upper": 1.0} if kind in ("ecdf", "quantiles") else {}
    if kind == "conformal":
        given["quantity"] = "absolute"
    change = draw(st.sampled_from(["none", "type", "word", "unknown", "share", "section"]))
    content: dict[str, Any] = {
        "name": "a",
        "data": {"path": "a.csv", "columns": {role: role for role in roles_of(kind, given)}},
        "tasks": {draw(st.sampled_from([kind, "own"])): {"task": kind, **given}},
    }
    (task,) = content["tasks"].values()
    if change == "type":
        name = draw(st.sampled_from(sorted(types)))
        task[name] = draw(st.sampled_from(WRONG[plain(types[name])]))
    elif change == "word":
        names = sorted(TASK_CHOICES[kind])
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
    (kind, name, word)
    for kind, words in TASK_CHOICES.items()
    for name, known in words.items()
    for word in known
]


COMPANIONS: Mapping[tuple[str, str], dict[str, Any]] = {
    ("calibrate-classes", "solver"): {"method": "temperature"},
    ("calibrate-classes", "averaging"): {"method": "temperature", "solver": "fedavg"},
    ("calibrate-classes", "clipping"): {"method": "histogram"},
    ("calibrate-classes", "weighting"): {"method": "histogram"},
    ("conformal", "by"): {"quantity": "lac", "groups": ["0", "1"]},
    ("ecdf", "grid"): {"lower": 0.1},
    ("infer", "errors"): {"method": "newton"},
    ("quantiles", "grid"): {"lower": 0.1},
}
"""What some parameters make sense with."""


@pytest.mark.parametrize(("kind", "name", "word"), WORDS)
def test_words_are_those_that_tasks_know(kind: str, name: str, word: str) -> None:
    task_of(kind, {**(COMPANIONS.get((kind, name), {}) if word else {}), name: word})


def test_every_text_has_known_words_but_names() -> None:
    free = {
        (kind, name) for kind in TASKS for name, one in parameter_types(kind).items() if plain(one) is str
    }
    assert free - {(kind, name) for kind, name, _ in WORDS} == {("infer", "target")}
    for kind, words in TASK_CHOICES.items():
        for name in words:
            with pytest.raises(UsageError):
                task_of(kind, {name: "nothing of the kind"})


def test_every_parameter_is_explained() -> None:
    for kind, task in TASKS.items():
        assert set(parameter_types(kind)) <= set(parameter_texts(task))
        assert all(text.endswith(".") for text in parameter_texts(task).values())


def test_defaults_are_of_their_types() -> None:
    for kind in TASKS:
        entries = schema()["$defs"][kind]["properties"]
        for name, one in parameter_types(kind).items():
            if "default" in entries[name]:
                jsonschema.validate(entries[name]["default"], entries[name])
                assert isinstance(entries[name]["default"], list) == (get_origin(plain(one)) is tuple)
    assert json.loads(schema_text()) == schema()
