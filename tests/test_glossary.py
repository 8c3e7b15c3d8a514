"""One meaning for each word: in the page of the glossary, the command, a report, and nowhere a word of a dialect."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from fedassay.protocol.glossary import GLOSSARY
from golden.documents import FOLDER

DIALECT = ("nobody", "whoever", "somebody", "so many", "beside")
"""Words that stand for a noun of the field, or for a plainer one."""

PAGES = sorted((FOLDER / "report").iterdir())


def dialect_of(text: str) -> list[str]:
    words = " ".join(text.split()).lower()
    return [word for word in DIALECT if re.search(rf"\b{word}\b", words)]


def test_the_command_prints_one_word_those_of_a_sentence_or_all(capsys: Any) -> None:
    code, out, _ = call(capsys, "words")
    assert (code, len(out.splitlines())) == (0, len(GLOSSARY))
    code, out, _ = call(capsys, "words", "Members open the total of all sites.")
    assert [line.split("  ")[0].strip() for line in out.splitlines()] == ["site", "member"]
    code, _, err = call(capsys, "words", "frobnicate")
    assert code == 2
    assert "frobnicate: is not in the glossary; expected one of" in err


def test_a_report_explains_the_words_it_uses() -> None:
    page = (FOLDER / "report" / "page.txt").read_text("utf-8")
    explained = page.partition("\nWhat the words mean\n")[2]
    assert explained
    for word in ("site", "release", "budget"):
        assert GLOSSARY[word] in explained


@pytest.mark.parametrize("path", sorted((FOLDER / "help").iterdir()), ids=lambda path: path.stem)
def test_help_speaks_no_dialect(path: Path) -> None:
    assert dialect_of(path.read_text("utf-8")) == []


def test_errors_and_reports_speak_no_dialect() -> None:
    usages = json.loads((FOLDER / "usage.json").read_text("utf-8")).values()
    texts = [*(usage["says"] or "" for usage in usages), *(path.read_text("utf-8") for path in PAGES)]
    assert [text for text in texts if dialect_of(text)] == []
