"""The how-to page about studies shows a file that can be read, and errors as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedassay.errors import UsageError
from fedassay.runtimes.card import RUNTIME_CARDS
from fedassay.study import StudyFile

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "study.md").read_text(encoding="utf-8")
STUDY = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_study_can_be_read() -> None:
    study = StudyFile.parse(STUDY)
    assert study.names == ("evaluate", "calibrate", "conformal", "conformal95")
    for name in RUNTIME_CARDS:
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[tasks.calibrate]\n", "[tasks.calibrate]\nmethd = 'platt'\n"),
        ("level = 0.9\n", "level = 1.5\n"),
        ('"distributed-dp"', '"secure-sum"'),
        ('label = "y"', ""),
        ('path = "scores.parquet"', "path = scores"),
    ],
)
def test_errors_are_those_of_the_page(old: str, new: str) -> None:
    assert old in STUDY
    with pytest.raises(UsageError) as error:
        StudyFile.parse(STUDY.replace(old, new, 1))
    shown = [line.removesuffix("..") for line in PAGE.splitlines() if line.startswith("study.toml, line")]
    assert any(str(error.value).startswith(line) for line in shown), str(error.value)
