"""A small study as it is read: the text of its page, its model card, and what the terminal says."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from pathlib import Path

from golden import cells
from golden.runner import call, inside

STUDY = """\
name = "golden"
title = "Readmission within 30 days"
model = "readmission-net 2.1"

[data]
path = "rows.csv"
client = "site"

[data.columns]
score = "risk"
label = "y"

[privacy]
privacy = "server-dp"
epsilon = 4.0
delta = 1e-6

[runtime]
seed = 7

[tasks.evaluate]
thresholds = [0.2, 0.5]
height = 6

[tasks.calibrate]
method = "platt"
height = 6

[tasks.conformal]
level = 0.8
"""

SEPARATE = ("script", "style", "svg")
"""Elements whose content is not text of the page: plots have tests of their own."""
BLOCKS = (
    *(
        "p",
        "div",
        "section",
        "header",
        "footer",
        "main",
        "nav",
        "table",
        "tr",
        "li",
        "ul",
        "ol",
        "figure",
        "details",
    ),
    *(
        "summary",
        "figcaption",
        "h1",
        "h2",
        "h3",
        "h4",
        "dt",
        "dd",
        "dl",
        "br",
        "title",
        "pre",
        "caption",
        "body",
    ),
)
CELLS = ("td", "th")

VOLATILE = (
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"(?<=--key )[A-Za-z0-9+/]{43}=", "KEY"),
    (r"\b[0-9a-f]{8,}…", "HASH…"),
    (r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|\+00:00)?)?", "DATE"),
    (r"\b\d+(\.\d+)? ?(ms|s|seconds?)\b", "SECONDS"),
    (r"(?<=^seconds\n)[\d.]+$", "SECONDS"),
    (r"(?<=fedassay[ \n])\d+(\.\d+)+", "VERSION"),
)
"""What differs from run to run, and what is written in its place."""


def write_rows(path: Path) -> None:
    """The rows of the cells as a file."""
    columns = cells.rows()
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def run(folder: Path) -> dict[str, str]:
    """The texts of the study by the names of their golden files, after a run in this folder."""
    write_rows(folder / "rows.csv")
    (folder / "study.toml").write_text(STUDY, "utf-8")
    with inside(folder):
        code, out, err = call("run", "study.toml", "--anyway")
    assert code == 0, err
    written = folder / "golden"
    return {
        "page.txt": masked(text_of((written / "report.html").read_text("utf-8")), folder),
        "model_card.md": masked((written / "model_card.md").read_text("utf-8"), folder),
        "terminal.txt": masked(out + err, folder),
    }


def masked(text: str, folder: Path) -> str:
    """The text without what differs from run to run."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.strip().split("\n")) + "\n"


def text_of(page: str) -> str:
    """The text of a page: a line for each block, cells of a table between bars."""
    parser = _Text()
    parser.feed(page)
    lines = (" ".join(line.split()) for line in "".join(parser.parts).split("\n"))
    return "\n".join(line for line in lines if line.strip("| "))


class _Text(HTMLParser):
    """Collects the text outside of `SEPARATE`."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SEPARATE:
            self._inside += 1
        elif tag in BLOCKS:
            self.parts.append("\n")
        elif tag in CELLS:
            self.parts.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag in SEPARATE:
            self._inside -= 1
        elif tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.parts.append(data.replace("\n", " "))
