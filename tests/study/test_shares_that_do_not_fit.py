"""Shares above 1 are refused with what to change and where; a misspelt task with what may have been meant."""

from __future__ import annotations

import re

import pytest

from fedassay.errors import UsageError
from fedassay.study import StudyFile
from study_files import BINARY


def shared(**shares: float) -> str:
    text = BINARY
    for task, share in shares.items():
        text = text.replace(f"[tasks.{task}]\n", f"[tasks.{task}]\nshare = {share}\n")
    return text


def line_of(text: str, wanted: str) -> int:
    return text[: text.index(wanted)].count("\n") + 1


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        StudyFile.parse(text)
    return str(caught.value)


def test_shares_are_listed_with_the_cheapest_change() -> None:
    text = shared(evaluate=0.6, calibrate=0.5, conformal=0.1, conformal95=0.05)
    assert refusal(text) == (
        f"study.toml, line {line_of(text, 'share = 0.6')}: share: evaluate 0.6 + calibrate 0.5 + conformal 0.1 + "
        "conformal95 0.05 = 1.25 on the held-out rows, expected at most 1; lower the share of evaluate from 0.6 to "
        "0.35."
    )


def test_the_change_is_enough() -> None:
    text = shared(evaluate=0.6, calibrate=0.5, conformal=0.1, conformal95=0.05)
    StudyFile.parse(text.replace("share = 0.6", "share = 0.35"))
    assert "= 1.001 " in refusal(text.replace("share = 0.6", "share = 0.351"))


def test_shares_on_the_same_rows_need_no_words_about_rows() -> None:
    two = re.sub(r"\[tasks\.calibrate\].*", "", shared(evaluate=0.7), flags=re.DOTALL)
    text = two + '[tasks.twice]\ntask = "evaluate"\nshare = 0.4\n'
    assert (
        "share: evaluate 0.7 + twice 0.4 = 1.1, expected at most 1; lower the share of evaluate"
        in refusal(text)
    )


def test_other_mistakes_come_first() -> None:
    text = shared(evaluate=0.9, calibrate=0.9, conformal=0.9, conformal95=0.9)
    wrong = text.replace("[tasks.conformal]\n", '[tasks.conformal]\nafter = "nobody"\n')
    assert "builds on 'nobody'" in refusal(wrong)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[tasks.calibrate]",
            "[tasks.calibrat]",
            "[tasks.calibrat] is no task (did you mean 'calibrate'?), so",
        ),
        (
            'task = "conformal"',
            'task = "confromal"',
            "task: got 'confromal' (did you mean 'conformal'?), expected",
        ),
        (
            "[tasks.calibrate]",
            "[tasks.zzz]",
            "[tasks.zzz] is no task, so that it needs the entry task: one of",
        ),
    ],
)
def test_a_misspelt_task(old: str, new: str, said: str) -> None:
    text = BINARY.replace(old, new)
    found = refusal(text)
    assert said in found
    assert found.startswith(f"study.toml, line {line_of(text, new)}")
