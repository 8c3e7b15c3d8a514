"""One declaration of a parameter: its check, its words, its schema."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import fedassay
from fedassay.errors import ParameterError, UsageError
from fedassay.protocol.parameters import INTERNAL, Checked, Fraction, Interval, Listed, made, parameters


@dataclass(frozen=True, kw_only=True)
class Shared(Checked):
    level: Fraction = 0.95
    """Confidence level."""


@dataclass(frozen=True, kw_only=True)
class Task(Shared):
    classes: Annotated[int, Interval(ge=2)]
    """Number of classes."""

    thresholds: tuple[Fraction, ...] = (0.5,)
    """Decision thresholds,
    one or several."""

    groups: tuple[str, ...] = ()
    height: Annotated[int, Interval(ge=0, le=16)] | None = None
    """Height. Default: the planner's."""

    method: Literal["auto", "exact"] = "auto"
    ends: Annotated[tuple[float, ...], Listed("A,B")] = ()
    spacing: Literal["even", "dense"] | tuple[float, ...] = "even"
    per_site: bool = False
    state: Any = field(default=None, metadata=INTERNAL)


OWN = ["classes", "thresholds", "groups", "height", "method", "ends", "spacing", "per_site"]


def test_everything_is_read_from_one_declaration() -> None:
    found = {one.name: one for one in parameters(Task)}
    assert list(found) == [*OWN, "level"]
    assert found["level"].sentence == "Confidence level."
    assert found["thresholds"].sentence == "Decision thresholds, one or several."
    assert found["classes"].required
    assert not found["height"].required
    assert found["height"].optional
    assert found["method"].choices == ("auto", "exact")
    assert found["thresholds"].several
    assert found["thresholds"].item is float
    assert found["ends"].listed == Listed("A,B")
    assert found["thresholds"].listed is None
    assert found["spacing"].mixed
    assert found["spacing"].choices == ("even", "dense")


def test_values_are_brought_into_form() -> None:
    task = made(
        Task, {"classes": np.int64(3), "thresholds": 0.2, "level": np.float64(0.9), "groups": ["a", "b"]}
    )
    assert task == Task(classes=3, thresholds=(0.2,), level=0.9, groups=("a", "b"))
    assert type(task.classes) is int
    assert made(Task, {"classes": 2, "ends": np.array([0.0, 1.0])}).ends == (0.0, 1.0)
    assert Task(classes=2, ends=(1,)).ends == (1.0,)
    assert Task(classes=2, spacing=[1, 2]).spacing == (1.0, 2.0)  # type: ignore[arg-type]
    assert Task(classes=2, spacing="dense").spacing == "dense"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "classes: missing, expected a whole number from 2."),
        ({"classes": 1}, "classes: got 1, expected a whole number from 2."),
        ({"classes": True}, "classes: got True, expected a whole number from 2."),
        ({"classes": 2.0}, "classes: got 2.0, expected a whole number from 2."),
        ({"classes": 2, "level": 1}, "level: got 1, expected a number between 0 and 1."),
        ({"classes": 2, "level": float("nan")}, "level: got nan, expected a number between 0 and 1."),
        (
            {"classes": 2, "thresholds": "0.2"},
            "thresholds: got '0.2', expected a number between 0 and 1 or a list of numbers.",
        ),
        ({"classes": 2, "thresholds": [0.2, 2]}, "thresholds: got 2, expected a number between 0 and 1."),
        ({"classes": 2, "height": 17}, "height: got 17, expected a whole number from 0 to 16."),
        (
            {"classes": 2, "method": "exakt"},
            "method: got 'exakt' (did you mean 'exact'?), expected auto or exact.",
        ),
        (
            {"classes": 2, "spacing": "denser"},
            "spacing: got 'denser' (did you mean 'dense'?), expected even, dense, or a list of numbers.",
        ),
        ({"classes": 2, "per_site": 1}, "per_site: got 1, expected true or false."),
        ({"classes": 2, "groups": [1]}, "groups: got 1, expected a text."),
        (
            {"classes": 2, "treshold": 1},
            "treshold: unknown parameter of evaluate (did you mean 'thresholds'?); expected "
            "classes, thresholds, groups, height, method, ends, spacing, per_site, level.",
        ),
        ({"classes": 2, "state": 1}, "state: unknown parameter of evaluate; expected classes, "),
    ],
)
def test_what_is_wrong_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError) as raised:
        made(Task, given, of="evaluate")
    assert str(raised.value).startswith(sentence)
    assert raised.value.parameter == sentence.partition(":")[0]
    assert isinstance(raised.value, UsageError)


def test_schemas() -> None:
    found = {one.name: one.schema for one in parameters(Task)}
    assert found["classes"] == {"type": "integer", "minimum": 2}
    assert found["height"] == {"type": "integer", "minimum": 0, "maximum": 16}
    assert found["method"] == {"type": "string", "enum": ["auto", "exact"]}
    number = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    assert found["thresholds"] == {"anyOf": [number, {"type": "array", "items": number}]}
    assert found["per_site"] == {"type": "boolean"}
    assert found["spacing"] == {
        "anyOf": [
            {"type": "string", "enum": ["even", "dense"]},
            {"type": "array", "items": {"type": "number"}},
        ]
    }


def test_a_child_may_check_more() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Careful(Shared):
        def __post_init__(self) -> None:
            super().__post_init__()
            if self.level < 0.5:
                raise ParameterError("level", "got less than a half, expected more.")

    assert Careful().level == 0.95
    with pytest.raises(ParameterError, match="got less than a half"):
        Careful(level=0.1)
    with pytest.raises(ParameterError, match="got 'x', expected a number"):
        Careful(level="x")  # type: ignore[arg-type]


def test_the_same_choices_are_written_in_one_order() -> None:
    """`typing` takes Literals for equal whatever their order, and hands out whichever was made first."""
    orders: dict[frozenset[str], set[str]] = {}
    for path in Path(fedassay.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
                choices = [ast.unparse(one) for one in getattr(node.slice, "elts", [node.slice])]
                orders.setdefault(frozenset(choices), set()).add(", ".join(choices))
    assert [order for order in orders.values() if len(order) > 1] == []
