"""The house can be read: no family of files by prefix, and the map names every package."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import fedassay

SOURCE = Path(fedassay.__file__).parent
MOST_ALIKE = 4
"""So many files of a folder may share their first word; a fifth makes a package of them."""


def folders() -> list[Path]:
    return [SOURCE, *(path.parent for path in sorted(SOURCE.rglob("__init__.py")))]


def test_no_five_files_of_a_folder_share_their_first_word() -> None:
    families = {
        f"{folder.relative_to(SOURCE)}/{word}_*": count
        for folder in folders()
        for word, count in Counter(path.stem.split("_")[0] for path in folder.glob("[!_]*.py")).items()
        if count > MOST_ALIKE
    }
    assert not families


def test_the_map_of_the_house_names_every_package_and_nothing_else() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("## The house in ten minutes")[2].partition("Imports point upwards")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name.strip("` /") for row in rows for name in row.split(",")}
    assert named == {folder.name for folder in folders() if folder.parent == SOURCE}


def public_names() -> dict[str, set[str]]:
    """The modules that define each class, or type, that is not private."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            else:
                continue
            for name in names:
                if name[0].isupper() and not name.isupper():
                    found.setdefault(name, set()).add(str(path.relative_to(SOURCE)))
    return found


def test_a_public_name_of_a_type_has_one_meaning() -> None:
    assert {name: places for name, places in public_names().items() if len(places) > 1} == {}


def test_text_of_strangers_is_shown_and_logged_through_one_module() -> None:
    """`protocol.texts` spells out what a terminal or a log would obey."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if "logging.getLogger(" in text:
            loggers = set(re.findall(r"logging\.getLogger\(([^)]*)\)", text))
            assert path.name == "texts.py" or loggers <= {'"flwr"', '"fedassay.kernel.endpoint"'}, path
