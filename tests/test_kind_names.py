"""Faces read cards: only a kind's own package, and the typed functions of the public contract, name a kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedassay
from fedassay.tasks.card import KINDS

SOURCE = Path(fedassay.__file__).parent
OWN = ("tasks", "api")
"""Packages of the kinds themselves, and of the typed functions that are called like them."""

NAMES = frozenset(name for name, card in KINDS.items() if card.task.place.startswith("fedassay."))

EXCEPTIONS = {
    "__init__.py": (
        {"calibrate", "conformal", "ecdf", "evaluate", "infer", "quantiles"},
        "the public functions, which are called like kinds",
    ),
    "artefacts/thresholds.py": ({"conformal"}, "the word in the file by which an artefact is recognised"),
    "planning/planner.py": ({"calibrate"}, "a stand-in of usual length in a message whose bytes are counted"),
    "privacy/accounting.py": ({"calibrate"}, "a function that finds the scale of noise"),
}
"""By module, the names that it may hold, and why."""


def named(source: str) -> set[str]:
    """The kinds that a module names in its texts; sentences between its statements do not count."""
    tree = ast.parse(source)
    said = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    texts = (one for one in ast.walk(tree) if isinstance(one, ast.Constant) and id(one) not in said)
    return {one.value for one in texts if isinstance(one.value, str)} & NAMES


def modules() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] not in OWN:
            yield place.as_posix()


def test_no_module_outside_names_a_kind() -> None:
    found = {place: named((SOURCE / place).read_text(encoding="utf-8")) for place in modules()}
    wrong = {place: names for place, names in found.items() if names and place not in EXCEPTIONS}
    assert not wrong, "these modules name kinds of tasks; read the cards in `tasks.card.KINDS` instead"


@pytest.mark.parametrize("place", EXCEPTIONS)
def test_an_exception_is_as_narrow_as_it_can_be(place: str) -> None:
    assert named((SOURCE / place).read_text(encoding="utf-8")) == EXCEPTIONS[place][0]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('TITLES = {"evaluate": "Evaluation"}', {"evaluate"}),
        ('if kind.startswith("evaluate"): pass', {"evaluate"}),
        ('match task:\n    case "hosmer-lemeshow": pass', {"hosmer-lemeshow"}),
        ('sets = kind in ("conformal", "calibrate-classes")', {"conformal", "calibrate-classes"}),
        ('"""evaluate"""\nx = "evaluation"\n"""infer"""', set()),
    ],
)
def test_a_table_of_kinds_is_found(source: str, names: set[str]) -> None:
    assert named(source) == names
