"""Rows of a CSV file are counted as they are read; errors also say the line that an editor shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.data.check import check
from fedassay.data.files import CsvTable

PLAIN = "p,y,note\n0.5,1,a\n0.5,0,b\n0.5,2,c\n"
ODD = '\n\np,y,note\n0.5,1,"two\nlines, one\n\nof them empty"\n\n0.5,0,b\n\n\n0.5,2,c\n'


@pytest.mark.parametrize(("text", "line"), [(PLAIN, 4), (ODD, 12), ("\ufeff" + PLAIN, 4), (PLAIN.strip(), 4)])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_line_of_a_bad_value(tmp_path: Path, text: str, line: int, ends: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text.replace("\n", ends), encoding="utf-8", newline="")
    (found,) = [one for one in check(path, columns={"score": "p", "label": "y"}).findings if "bad" in one.got]
    assert "the first in row 2 (counting from 0): '2'" in found.got
    assert found.got.endswith(f"(line {line} of the file)")


def test_rows_that_are_not_there_have_no_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ODD)
    table = CsvTable.open(path)
    assert [table.line_of(row) for row in range(4)] == [4, 9, 12, None]
    path.unlink()
    assert table.line_of(0) is None


def test_what_is_no_text_has_no_lines() -> None:
    (found,) = [
        one
        for one in check({"p": [0.5, 0.5], "y": [1, 2]}, columns={"score": "p", "label": "y"}).findings
        if "bad" in one.got
    ]
    assert "line" not in found.got
