"""Write the golden files anew: ``PYTHONPATH=src:tests python -m golden.freeze [PART ...]`` from the repository's top.

Parts are `cells`, `help`, `options`, `report`, `usage` and `messages`; all of them, if none is named. A change of a
golden file is explained by its commit.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

for _name in ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "LINES"):
    os.environ.pop(_name, None)
os.environ["COLUMNS"] = "80"  # looked up when the command line is imported

from golden import cells, commands, documents, messages, study, usages  # noqa: E402

FOLDER = documents.FOLDER


def freeze_cells() -> None:
    _emptied(FOLDER / "cells")
    for name in cells.NAMES:
        documents.write(FOLDER / "cells" / f"{name}.json", cells.run(name))


def freeze_help() -> None:
    _emptied(FOLDER / "help")
    for command in commands.commands():
        (FOLDER / "help" / commands.file_name(command)).write_text(commands.help_of(command), "utf-8")


def freeze_options() -> None:
    documents.write(FOLDER / "options.json", commands.options())


def freeze_report() -> None:
    _emptied(FOLDER / "report")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in study.run(Path(folder).resolve()).items():
            (FOLDER / "report" / name).write_text(text, "utf-8")


def freeze_usage() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        usages.make_files(folder)
        documents.write(FOLDER / "usage.json", {usage: usages.ask(usage, folder) for usage in usages.USAGES})


def freeze_messages() -> None:
    documents.write(messages.STORED, messages.vectors())


PARTS: Mapping[str, Callable[[], None]] = {
    "cells": freeze_cells,
    "help": freeze_help,
    "options": freeze_options,
    "report": freeze_report,
    "usage": freeze_usage,
    "messages": freeze_messages,
}


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in PARTS]
    if unknown:
        sys.exit(f"freeze: got {', '.join(unknown)}, expected some of {', '.join(PARTS)}.")
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
