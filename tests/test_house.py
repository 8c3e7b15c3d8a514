"""The house can be read: no family of files by prefix, no fragments, and the map names every package."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import fedassay

SOURCE = Path(fedassay.__file__).parent
MOST_ALIKE = 4
"""Files of a folder that may share their first word; a fifth makes a package of them."""

SHORT = 60
"""Lines of code, without docstrings, comments, imports and blank lines, from which a module may stand alone."""

REASONS = {
    "privacy.events": "importing dp-accounting takes half a second, which most commands do not need",
}
"""Short modules with a single importer, and why each is not a part of it.

Cards are found by their place, and modules that cards name are imported when they are used: they need no reason.
"""


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


def code_lines(text: str) -> int:
    """Lines of a module without docstrings, comments, imports and blank lines."""
    beside = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in beside
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def importers() -> dict[str, set[str]]:
    """The modules that import each module of the package; those that name it by its place count twice."""
    texts = {_name(path): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    users: dict[str, set[str]] = {name: set() for name in texts}
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    users.get(whole, users.get(node.module, set())).add(name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                users.get(node.value.partition(":")[0], set()).update((name, f"{name} when used"))
    return users


def _name(path: Path) -> str:
    return ".".join(("fedassay", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def test_a_short_module_with_a_single_importer_has_a_reason() -> None:
    users = importers()
    fragments = {
        _name(path).removeprefix("fedassay.")
        for path in SOURCE.rglob("[!_]*.py")
        if not path.stem.endswith("card")
        and len(users[_name(path)]) == 1
        and code_lines(path.read_text("utf-8")) < SHORT
    }
    assert fragments == REASONS.keys()


def test_text_of_strangers_is_shown_and_logged_through_one_module() -> None:
    """`protocol.texts` spells out what a terminal or a log would obey."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if path.name != "texts.py":
            assert "rich.markup" not in text, path
            assert "csv.writer" not in text or "spreadsheet_cell" in text, path
        if "logging.getLogger(" in text:
            loggers = set(re.findall(r"logging\.getLogger\(([^)]*)\)", text))
            assert path.name == "texts.py" or loggers <= {'"flwr"', '"fedassay.kernel.endpoint"'}, path
