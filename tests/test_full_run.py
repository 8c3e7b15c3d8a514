"""The runner of the full tests, over a tiny repository: every part once, resumed, and a page of what happened."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import full_run
from full_run import PAGE, RECORDS, main, page, parts

HERE = Path(__file__).parent
PART = """
import time
import pytest
from pathlib import Path

@pytest.mark{mark}
def test_it(verify):
    Path("{name}.ran").open("a").write("x")
    verify("a claim of {name}", "1 | 2")
    {body}
"""
"""A test that counts how often it ran, outside of what git sees."""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    (tests / "rest").mkdir(parents=True)
    for name in ("conftest.py", "stated.py"):
        shutil.copy(HERE / name, tests / name)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers = full: large\naddopts = --doctest-modules -p no:cacheprovider\n"
    )
    (tmp_path / ".gitignore").write_text(f"*.ran\n__pycache__\n.hypothesis\n{RECORDS}/\n")
    for name, body in (("good", "assert True"), ("bad", "assert False"), ("slow", "time.sleep(60)")):
        text = PART.format(mark=".full", name=name, body=body)
        (tests / "rest" / f"test_{name}.py").write_text(text)
    (tests / "rest" / "test_small.py").write_text("def test_small(): pass\n")
    (tests / "test_top.py").write_text("import pytest\ndef test_top(): pytest.skip('not here')\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "thing.py").write_text('"""\n>>> 1 + 1\n2\n"""\n')
    commit(tmp_path, "init", "-q")
    return tmp_path


def commit(root: Path, *first: str) -> str:
    me = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (first, ("add", "-A"), (*me, "commit", "-qm", "one"), ("rev-parse", "--short", "HEAD")):
        said = (
            subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
            if words
            else None
        )
    assert said is not None
    return said.stdout.strip()


def runs(root: Path) -> dict[str, int]:
    return {path.stem: len(path.read_text()) for path in root.glob("*.ran")}


def test_parts_are_resumed_at_a_commit_and_joined_into_a_page(tiny: Path) -> None:
    names = [f"tests/rest/test_{name}.py" for name in ("bad", "good", "slow")]
    assert [part.name for part in parts(tiny)] == [*names, "tests/rest", "tests", "src"]
    command = ["--root", str(tiny), "--workers", "0", "--limit", "6"]
    assert main([*command, names[1]]) == 1
    text = (tiny / PAGE).read_text()
    assert "1 of 6 parts have run" in text
    assert (
        "Not run: `tests/rest/test_bad.py`, `tests/rest/test_slow.py`, `tests/rest`, `tests`, `src`." in text
    )

    assert main(command) == 1
    assert runs(tiny) == {"good": 1, "bad": 1, "slow": 1}  # the one that passed was not run again
    text, first = (tiny / PAGE).read_text(), full_run.commit_of(tiny)[0]
    assert "6 of 6 parts have run, 4 of them passed; 3 tests passed, 1 failed, 1 were skipped; 2" in text
    assert "| a claim of good | 1 \\| 2 | passed | `tests/rest/test_good.py` |" in text
    assert "| a claim of bad | 1 \\| 2 | failed | `tests/rest/test_bad.py` |" in text
    assert "| `tests/rest/test_slow.py` | stopped after 6 s | 0 | none | 0 | 6 |" in text
    rows = [line for line in text.splitlines() if "`tests" in line and line.startswith("|")]
    assert len(rows) == 7
    assert all(f"| {first} | " in row for row in rows)

    (tiny / names[0]).write_text(PART.format(mark=".full", name="bad", body="pass"))
    second = commit(tiny)
    assert main([*command, names[0]]) == 1  # one is still too slow
    assert runs(tiny) == {"good": 1, "bad": 2, "slow": 1}
    text = (tiny / PAGE).read_text()
    assert (text.count(f"| {second} | "), text.count(f"| {first} | ")) == (2, 6)
    (tiny / names[2]).write_text("# pytest.mark.full, and not what was committed\n")
    for _ in range(2):  # so it is not known what has passed, however often
        assert main([*command, names[1]]) == 1
    assert runs(tiny) == {"good": 3, "bad": 2, "slow": 1}
    assert (tiny / PAGE).read_text().count(f"| {second} and changes | ") == 2


def test_an_interrupted_part_leaves_no_record_and_a_crash_says_so(tiny: Path) -> None:
    (tiny / "tests/rest/test_bad.py").write_text("import os\nos._exit(3)  # pytest.mark.full\n")
    assert main(["--root", str(tiny), "--workers", "0", "tests/rest/test_bad.py"]) == 1
    record = json.loads((tiny / RECORDS / "tests.rest.test_bad.py.json").read_text())
    assert record["end"] == "pytest ended with code 3"
    assert "passed" not in page([record], []).split("## Parts")[1].splitlines()[-1]
    with pytest.raises(SystemExit):
        main(["--root", str(tiny), "tests/no_such_part.py"])
