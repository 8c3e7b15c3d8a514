"""`fedassay ledger`: what it shows is what is recorded, and a ledger that was changed is never shown as whole."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from command_line import call, json_of, output_of, refused
from fedassay.privacy.accounting import GAUSSIAN
from fedassay.privacy.ledger.book import RECORDS
from fedassay.privacy.ledger.chain import canonical, digest
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.privacy.ledger.refusals import DatabaseRecords, RefusedRequest
from fedassay.protocol.vocabulary import Part
from ledgers import POSTGRESQL, charge, exact, opened, place, sql


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ledger = DatabaseLedger(tmp_path / "ledger.sqlite", None)
    ledger.charge(
        [
            charge("1", study="spring", fingerprint="f1"),
            charge("2", study="summer", fingerprint="f2", part=Part.FIT),
            charge("3", study="autumn", fingerprint="f2", part=Part.HELD_OUT, scale=2.0),
            charge("4", study="winter [bold]", dataset="other", law=GAUSSIAN, scale=40.0),
            exact("5", study="exact", dataset="other"),
        ]
    )
    DatabaseRecords(tmp_path / "ledger.sqlite").refused(
        RefusedRequest(
            time="2026-01-01T00:00:00Z",
            exchange="00",
            study="s",
            asker=None,
            code="policy",
            reason="no such task",
        )
    )
    return tmp_path / "ledger.sqlite"


def test_show_lists_releases_and_says_what_was_checked(capsys: Any, path: Path) -> None:
    out = output_of(capsys, "ledger", "show", "--ledger", path)
    text = " ".join(out.split())
    assert "5 records, the chain is whole and the end is the one that was kept; head " in text
    for word in ("spring", "autumn", "held-out", "discrete-gaussian", "winter [bold]"):
        assert word in text
    assert "no such task" not in text


def test_show_says_when_the_data_changed(capsys: Any, path: Path) -> None:
    out = output_of(capsys, "ledger", "show", "--ledger", path, "--json", "-", "--dataset", "rows")
    lines = json.loads(out)["records"]
    assert [(one["study"], one["data_changed"]) for one in lines] == [
        ("spring", False),
        ("summer", True),
        ("autumn", False),
    ]
    assert json.loads(out)["verified"]["records"] == 5


def test_the_newest_are_last_and_may_be_few(capsys: Any, path: Path, tmp_path: Path) -> None:
    out = output_of(capsys, "ledger", "show", "--ledger", path, "--last", 2, "--json", tmp_path / "x.json")
    assert "3 older ones are not shown" in out
    document = json.loads((tmp_path / "x.json").read_text())
    assert [one["sequence"] for one in document["records"]] == [4, 5]


def test_refusals_are_shown_with_their_reasons(capsys: Any, path: Path) -> None:
    (line,) = json_of(capsys, "ledger", "show", "--ledger", path, "--refusals")["records"]
    assert (line["code"], line["reason"]) == ("policy", "no such task")


def test_the_budget_by_data_set_and_part(capsys: Any, path: Path) -> None:
    options = ("--epsilon", 1.0, "--delta", 1e-6, "--json", "-")
    out = output_of(capsys, "ledger", "budget", "--ledger", path, *options)
    rows, other = json.loads(out)["datasets"]
    assert (rows["dataset"], rows["releases"], rows["versions_of_the_data"]) == ("rows", 3, 2)
    assert rows["parts"] == {"fit": pytest.approx(0.5, rel=1e-5), "held-out": pytest.approx(0.75, rel=1e-5)}
    assert rows["spent"] == pytest.approx(0.75, rel=1e-5)
    assert rows["remaining"] == pytest.approx(0.25, rel=1e-4)
    assert (other["releases"], other["exact_releases"]) == (2, 1)
    assert 0 < other["spent"] < 0.2  # the budget bounds what has noise


def test_a_delta_alone_counts_too(capsys: Any, path: Path) -> None:
    call_it = ("ledger", "budget", "--ledger", path, "--dataset", "other", "--json", "-")
    code, out, _ = call(capsys, *call_it, "--delta", 1e-6)
    assert code == 0
    (other,) = json.loads(out)["datasets"]
    assert (other["delta"], other["budget"], other["remaining"]) == (1e-6, None, None)
    assert 0 < other["spent"] < 0.2
    (without,) = json.loads(call(capsys, *call_it)[1])["datasets"]
    assert (without["delta"], without["spent"]) == (0.0, "inf")
    for wrong in (-0.1, 1.0, "nan"):
        err = refused(capsys, *call_it, "--delta", wrong)
        assert "--delta" in err


def test_small_numbers_are_not_rounded_to_nothing(capsys: Any, tmp_path: Path) -> None:
    DatabaseLedger(tmp_path / "ledger.sqlite", None).charge([charge("1", scale=1e9)])
    options = ("--epsilon", 2e-9, "--delta", 1e-300)
    out = output_of(capsys, "ledger", "budget", "--ledger", tmp_path / "ledger.sqlite", *options)
    assert "1e-300" in out
    assert "2e-09" in out
    assert "1e-09" in out


@pytest.mark.parametrize("to", ["-", "jsonl"])
def test_an_export_can_be_verified_by_others(capsys: Any, path: Path, tmp_path: Path, to: str) -> None:
    out = "-" if to == "-" else tmp_path / "all.jsonl"
    code, printed, said = call(capsys, "ledger", "export", "--ledger", path, "--out", out)
    assert code == 0
    assert "the chain is whole" in " ".join(said.split())
    text = printed if to == "-" else (tmp_path / "all.jsonl").read_text()
    previous = "0" * 64
    for number, line in enumerate(text.splitlines(), 1):
        record = json.loads(line)
        stated = record.pop("hash")
        assert record.pop("previous") == previous
        assert record["sequence"] == number
        assert digest(previous, canonical(record)) == stated
        previous = stated
    assert number == 5


def test_an_export_as_a_table(capsys: Any, path: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    assert call(capsys, "ledger", "export", "--ledger", path, "--out", file, "--dataset", "rows")[0] == 0
    lines = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [line["study"] for line in lines] == ["spring", "summer", "autumn"]
    assert [float(line["scale"]) for line in lines] == [4.0, 4.0, 2.0]


def test_names_of_strangers_move_no_screen_and_run_no_formula(capsys: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "ledger.sqlite", tmp_path / "all.csv"
    studies = ["spring\x1b[2J\n0 records, the chain is whole", '=HYPERLINK("http://evil","click")', "@SUM(1)"]
    DatabaseLedger(path, None).charge([charge(str(i), study=name) for i, name in enumerate(studies)])
    code, shown, err = call(capsys, "ledger", "show", "--ledger", path)
    assert code == 0
    assert "\x1b" not in shown + err
    assert "\n0 records" not in shown
    assert "spring\\x1b[2J\\n0 records" in shown
    assert call(capsys, "ledger", "export", "--ledger", path, "--out", out)[0] == 0
    cells = [cell for row in csv.reader(io.StringIO(out.read_text())) for cell in row]
    assert '\'=HYPERLINK("http://evil","click")' in cells
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "-"))]


@pytest.mark.parametrize("command", ["show", "budget", "export"])
def test_a_changed_record_is_named_and_nothing_is_shown(capsys: Any, path: Path, command: str) -> None:
    sql(str(path), f"UPDATE {RECORDS} SET content = replace(content, 'summer', 'winter') WHERE sequence = 2")
    code, out, err = call(capsys, "ledger", command, "--ledger", path)
    assert code == 3
    assert "record 2 was changed" in " ".join(err.split())
    assert "spring" not in out


@pytest.mark.parametrize("command", ["show", "budget", "export"])
def test_a_missing_end_is_noticed_by_the_head_that_was_kept(capsys: Any, path: Path, command: str) -> None:
    sql(str(path), f"DELETE FROM {RECORDS} WHERE sequence = 5")
    err = refused(capsys, "ledger", command, "--ledger", path, code=3)
    assert "record 5" in err
    path.with_suffix(".head").unlink()
    code, out, err = call(capsys, "ledger", command, "--ledger", path)
    assert code == 0
    assert "missing records at the end would not be noticed" in " ".join((out + err).split())


def test_an_anchor_is_made_on_demand(capsys: Any, path: Path) -> None:
    path.with_suffix(".head").unlink()
    out = output_of(capsys, "ledger", "anchor", "--ledger", path)
    assert "5 records, head " in " ".join(out.split())
    DatabaseLedger(path, None).charge([charge("6")])


def test_a_database_without_its_password_being_shown(capsys: Any, tmp_path: Path) -> None:
    import postgres

    where = place(POSTGRESQL, tmp_path)
    opened(where, tmp_path, None).charge([charge("1")])
    for options in ((), ("--anchor", tmp_path / "ledger.head")):
        for command in ("show", "budget", "export"):
            code, out, err = call(capsys, "ledger", command, "--ledger", where, *options)
            assert code == 0
            assert ("would not be noticed" in " ".join((out + err).split())) == (not options)
            for secret in (postgres.PASSWORD, "p%40ss", "reader"):
                assert secret not in out + err
    code, out, err = call(capsys, "ledger", "show", "--ledger", where.replace("p%40ss", "wrong"))
    assert code == 3
    assert "cannot be used" in " ".join(err.split())
    assert "wrong" not in out + err
    err = refused(capsys, "ledger", "show", "--ledger", place(POSTGRESQL, tmp_path))
    assert "expected a ledger" in err


@pytest.mark.parametrize(
    "options",
    [
        ("show",),
        ("show", "--ledger", "nowhere.sqlite"),
        ("budget", "--ledger", "x", "--site", "y"),
        ("export", "--ledger", "nowhere.sqlite"),
        ("anchor", "--ledger", "nowhere.sqlite"),
        ("show", "--ledger", "mysql://host/x"),
        ("show", "--ledger", "postgresql:/me:secret@host/x"),
        ("anchor", "--ledger", "postgresql:me:secret@host/x"),
    ],
)
def test_a_wrong_call_is_one_sentence(
    capsys: Any, tmp_path: Path, monkeypatch: Any, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, "ledger", *options)
    assert len([line for line in err.splitlines() if "Error" in line]) == 1
    assert "secret" not in err
    assert list(tmp_path.iterdir()) == []
