"""File drop from end to end: the same answers as in process, dropouts, and calls that can be repeated at any point."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import fedassay
from fedassay.cli import run_command
from fedassay.crypto.identity import key_to_text
from fedassay.kernel.sites import prekeys_of
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import TrustModel
from fedassay.runtimes.file_drop.letters import _MESSAGE
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from file_drop_town import OPTIONS, Town, contents
from ledgers import recorded

SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())
TRUSTS = [(Plain(), 1), (SecureSum(), 2)]


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


@pytest.fixture
def five(tmp_path: Path) -> Town:
    """Of five sites one may be missing from each pass."""
    return Town(tmp_path, names=tuple("abcde"))


@pytest.mark.parametrize(("trust", "passes"), TRUSTS, ids=["plain", "secure-sum"])
def test_the_answer_is_the_one_of_the_in_process_runtime(town: Town, trust: TrustModel, passes: int) -> None:
    assert town.begin("--privacy", trust.name) == 0
    document = town.finish(passes=passes)
    jsonschema.validate(document, SCHEMA)
    expected = town.expected(trust)
    assert document["results"] == expected["results"]
    opened = document["cohort"].pop("openings", [])
    assert [list(one["members"]) for one in opened] == [list(town.names)] * (passes - 1)
    assert document["cohort"] == {**expected["cohort"], "truncated": None}
    assert document["privacy"]["simulated"] is False
    assert document["runtime"]["name"] == "file-drop"
    assert document["runtime"]["rounds"] == passes
    assert document["runtime"]["bytes_per_client"] > 64 * 2 * 8


@pytest.mark.parametrize(
    ("names", "words"), [("abc", "must answer both passes"), ("abcde", "may miss the first")]
)
def test_who_may_be_missing_is_said_before_anybody_answers(
    tmp_path: Path, capsys: Any, names: str, words: str
) -> None:
    """To the coordinator, to a site, and to whoever plans: with the chance to come through all the same."""
    town, found = Town(tmp_path, names=tuple(names)), SecureSum().sizes(len(names))
    capsys.readouterr()
    said = f"if each site misses one pass in ten, a sum comes through with probability {found.chance():.2f}."
    roster = town.root / "coordinator" / "roster.toml"
    for show in (
        lambda: town.aggregate("evaluate", "--roster", roster, *OPTIONS),
        lambda: town.contribute("a", "--dry-run"),
        lambda: run_command(
            [
                "plan",
                "evaluate",
                *("--prevalence", "0.3", "--auc", "0.8", "--rows", "6000", "--clients", str(len(names))),
            ]
        ),
    ):
        assert show() == 0
        captured = capsys.readouterr()
        shown = " ".join((captured.out + captured.err).replace("│", " ").split())
        assert words in shown
        assert said in shown


def test_a_noisy_study_spends_at_every_site_and_at_the_coordinator(town: Town) -> None:
    assert town.begin("--privacy", "server-dp", "--epsilon", 1) == 0
    document = town.finish(passes=1)
    exact = town.expected(Plain())["results"]["histogram"]
    assert document["results"]["histogram"]["rows"] != exact["rows"]
    assert document["privacy"]["epsilon"] == 1
    for name in town.names:
        ledger = DatabaseLedger(town.root / name / "state" / "ledger.sqlite", None)
        assert ledger.spent(f"{name}/rows", 0.0) == pytest.approx(1, abs=1e-6)
    (charge,) = recorded(town.root / "coordinator" / "fedassay-state")
    assert charge.law == "discrete-laplace"
    again = town.root / "again.json"
    assert town.aggregate("-q", "--json", again) == 0  # the same noise: the release is in the journal
    assert json.loads(again.read_text())["results"] == document["results"]


@pytest.mark.parametrize(("privacy", "passes"), [("distributed-dp", 2), ("local-dp", 1)])
def test_noise_of_the_sites_own_is_paid_for_at_the_sites(town: Town, privacy: str, passes: int) -> None:
    assert town.begin("--privacy", privacy, "--epsilon", 1) == 0
    document = town.finish(passes=passes)
    noise = document["results"]["histogram"]["noise"]
    assert noise["law"] == "discrete-laplace"
    # Shares are made for three honest sites of four: one may collude.
    assert noise["copies"] == (4 / 3 if privacy == "distributed-dp" else 4.0)
    for name in town.names:
        ledger = DatabaseLedger(town.root / name / "state" / "ledger.sqlite", None)
        assert ledger.spent(f"{name}/rows", 0.0) == pytest.approx(1, abs=1e-6)


def test_a_calibrator_by_files(town: Town) -> None:
    roster, out = town.root / "coordinator" / "roster.toml", town.root / "calibrator.json"
    assert town.aggregate("calibrate", "--roster", roster, "--method", "platt", "--height", 6, "-q") == 0
    for _ in range(2):
        town.contribute_all()
        assert town.aggregate("-q", "--json", town.root / "result.json", "--out", out) == 0
    document = json.loads((town.root / "result.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert document["task"] == "calibrate"
    assert document["results"]["method"] == "platt"
    assert 0 < fedassay.load_calibrator(out).predict([0.5])[0] < 1


@pytest.mark.parametrize(
    ("since", "until", "counted"),
    [(1, 2, False), (1, 1, False), (2, 2, True)],
    ids=["gone for good", "back as a member", "gone after it has spoken"],
)
def test_a_site_that_falls_silent_is_closed_out(five: Town, since: int, until: int, counted: bool) -> None:
    assert five.begin() == 0
    document = five.finish(passes=2, absent="c", since=since, until=until)
    names = five.names if counted else ("a", "b", "d", "e")
    assert document["results"] == five.expected(Plain(), names)["results"]
    assert document["cohort"]["clients"] == len(names)
    assert document["cohort"]["dropped"] == 5 - len(names)


def test_of_four_sites_each_must_answer_both_times(town: Town, capsys: Any) -> None:
    assert town.begin() == 0
    for number, answered in ((1, "spoke"), (2, "answered")):
        town.contribute_all(("a", "b", "d"))
        assert town.aggregate("-q", "--close") == 4
        assert f"3 of 4 {'clients' if number == 1 else 'members'} {answered}, expected at least 4" in (
            capsys.readouterr().err
        )
        assert town.contribute("c") == 0
        assert town.aggregate("-q", "--json", town.root / "result.json") == 0
    assert json.loads((town.root / "result.json").read_text())["cohort"]["clients"] == 4


def test_a_study_that_names_its_members_goes_on_without_a_silent_site(five: Town, capsys: Any) -> None:
    """A site that is no member and has not spoken is told so; one that has spoken is asked nothing more."""
    members = ("a", "b", "d", "e")
    for name in five.names:
        five.write_site(name, f"trusted_members = {json.dumps(members)}")
    assert five.begin(*(word for name in members[:3] for word in ("--member", name))) == 0
    five.contribute_all(members)
    assert five.aggregate("-q", "--close") == 0
    before = contents(five.drop)
    assert five.contribute("c", "--yes") == 0
    assert "gone on without this site" in capsys.readouterr().out
    assert five.contribute("e", "--yes") == 0
    assert contents(five.drop) == before
    assert not (five.drop / "to-e" / "2.fedassay").exists()  # one pass for a site that is no member
    for name in members[:3]:
        assert five.contribute(name) == 0
    result = five.root / "result.json"
    assert five.aggregate("-q", "--json", result) == 0
    assert json.loads(result.read_text())["results"] == five.expected(Plain(), members)["results"]


def test_a_close_that_leaves_too_few_changes_nothing(town: Town, capsys: Any) -> None:
    town.begin()
    for name in ("a", "b"):
        town.contribute(name)
    assert town.aggregate("-q", "--close") == 4
    assert "2 of 4 clients spoke, expected at least 4; nothing was revealed" in capsys.readouterr().err
    for name in ("c", "d"):
        town.contribute(name)
    assert town.aggregate("-q") == 0
    town.contribute_all()
    assert town.aggregate("-q", "--json", town.root / "result.json") == 0
    assert json.loads((town.root / "result.json").read_text())["cohort"]["clients"] == 4


def test_who_declined_is_named_at_once_and_what_to_do_is_said(town: Town, capsys: Any) -> None:
    town.begin()
    assert town.contribute("d", "--decline", "-q") == 0
    assert town.aggregate() == 0
    shown = capsys.readouterr().out
    assert "d did not answer: policy" in shown
    assert "waiting for a, b, c" in shown
    town.contribute_all(("a", "b", "c"))
    assert town.aggregate("-q") == 4
    error = " ".join(capsys.readouterr().err.split())
    assert "3 of 4 clients spoke, expected at least 4; nothing was revealed. Refused: d (policy)." in error
    assert "begin a new study in another folder" in error


def test_a_roster_without_prekeys_is_named_before_anything_is_written(town: Town, capsys: Any) -> None:
    path = town.root / "keys.toml"
    path.write_text(town.cards(("a", "b")) + "".join(town.roster(("c", "d")).splitlines(keepends=True)[1:]))
    assert town.aggregate("evaluate", "--roster", path) == 2
    assert "there is no prekey of c, d; expected the whole card" in capsys.readouterr().err
    assert contents(town.drop) == {}
    assert town.aggregate("evaluate", "--roster", path, "--privacy", "plain") == 0


def test_cards_that_have_expired_are_named_and_new_ones_go_on(town: Town, capsys: Any) -> None:
    path = town.root / "coordinator" / "roster.toml"
    for name in town.names:
        prekeys_of(town.root / name / f"{name}.key").unlink()
    path.write_text(town.cards(("coordinator", *town.names), days_ago=91))
    assert town.begin() == 2
    assert "there is no valid prekey of a, b, c, d" in capsys.readouterr().err
    path.write_text(town.cards(("coordinator", *town.names)))
    assert town.aggregate("-q", "--roster", path) == 0
    town.finish(passes=2)


def test_closing_a_pass_that_is_complete_does_not_close_the_next(town: Town, capsys: Any) -> None:
    town.begin()
    for name in town.names:
        town.contribute(name)
    assert town.aggregate("--close") == 0
    assert "Pass 2: 0 of 4 replies" in capsys.readouterr().out


def test_closing_before_anybody_could_answer_is_waiting(town: Town, capsys: Any) -> None:
    assert town.begin("--close") == 0
    assert (town.drop / "to-a" / "1.fedassay").exists()


def test_every_call_can_be_repeated(town: Town) -> None:
    town.begin()
    for _ in range(2):
        for name in town.names:
            town.contribute(name)
            before = contents(town.root)
            assert town.contribute(name) == 0
            assert contents(town.root) == before
        assert town.aggregate("-q", "--json", town.root / "result.json") == 0
        before = contents(town.root)
        assert town.aggregate("-q", "--json", town.root / "result.json") == 0
        assert town.begin("--json", town.root / "result.json") == 0  # also the first command
        assert contents(town.root) == before
    assert len(recorded(town.root / "a" / "state")) == 1


def test_the_stick_may_be_emptied_between_passes(town: Town) -> None:
    """Only what is under way has to be in the folder: accepted replies are kept in the state."""
    town.begin()
    study = (town.drop / "study.fedassay").read_bytes()
    for _ in range(2):
        for name in town.names:
            assert town.contribute(name) == 0
            assert town.aggregate("-q", "--json", town.root / "result.json") == 0
            for used in town.drop.glob("from-*"):
                shutil.rmtree(used)
    for path in town.drop.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (town.drop / "study.fedassay").write_bytes(study)
    assert town.aggregate("-q", "--json", town.root / "result.json") == 0
    document = json.loads((town.root / "result.json").read_text())
    assert document["results"] == town.expected(Plain())["results"]


def test_at_the_end_everybody_is_told(town: Town, capsys: Any) -> None:
    town.begin("--privacy", "plain")
    town.finish(passes=1)
    for name in town.names:
        assert town.contribute(name, "--dry-run") == 0
        assert "is finished" in capsys.readouterr().out


def test_each_step_says_what_to_do_next(town: Town, capsys: Any) -> None:
    def said() -> str:
        return str(capsys.readouterr().out)

    assert town.contribute("a", "--yes") == 0
    assert "wait until the coordinator has run" in said()
    roster = town.root / "coordinator" / "roster.toml"
    assert town.aggregate("evaluate", "--roster", roster, *("--height", 6, "--privacy", "plain")) == 0
    shown = said()
    assert "waiting for a, b, c, d" in shown
    assert f"fedassay aggregate {town.drop} --key" in shown
    assert town.contribute("a", "--yes") == 0
    assert "bring the folder back to the coordinator" in said()
    assert town.aggregate() == 0
    assert "1 of 4 replies are there (answered: a); waiting for b, c, d" in said()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", *("--threshold", 0.4)], "other options"),
        (["evaluate", *("--privacy", "plain")], "other options"),
        (["--privacy", "plain"], "belong to the first call"),
        (["--threshold", 0.4], "belong to the first call"),
        (["fly"], "expected one of evaluate"),
        (["--seed", 1], "leave the seed out"),
    ],
)
def test_a_study_cannot_change_its_mind(town: Town, capsys: Any, arguments: list[object], words: str) -> None:
    town.begin()
    before = contents(town.root)
    assert town.aggregate(*arguments) == 2
    assert words in capsys.readouterr().err
    assert contents(town.root) == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "holds no study yet"),
        (["evaluate"], 2, "holds no study yet"),
        (["evaluate", "--privacy", "server-dp"], 2, "--epsilon"),
        (["evaluate", "--threshold", 7], 2, "threshold"),
        (["evaluate", "--roster", "nowhere.toml"], 2, "cannot be read"),
        (["evaluate", "--json", "/no/such/folder/x"], 2, "does not exist"),
    ],
)
def test_bad_first_calls_write_nothing(
    town: Town, capsys: Any, arguments: list[object], code: int, words: str
) -> None:
    assert town.aggregate(*arguments) == code
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert contents(town.drop) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[roster]\na = 'x'", "public key of a"),
        ("roster = 3", "expected one section"),
        ("[roster", "is not TOML"),
        ("[roster]", "expected at least one site"),
        ("[roster]\n'../up' = '{a}'\nb = '{b}'\nc = '{c}'", "expected up to 64 letters"),
        ("[roster]\na = '{a}'\nA = '{b}'\nc = '{c}'", "upper case"),
        ("[roster]\na = '{a}'\nb = '{a}'\nc = '{c}'", "same public key"),
        ("[roster]\ncoordinator = '{a}'\nb = '{b}'\nc = '{c}'", "not the one given as --key"),
        ("[roster]\na = '{a}'\nb = '{b}'", "expected at least 3"),
    ],
)
def test_bad_rosters_have_their_sentence(town: Town, capsys: Any, text: str, words: str) -> None:
    path = town.root / "roster.toml"
    keys = {name: key_to_text(identity.public) for name, identity in town.identities.items()}
    for name, key in keys.items():
        text = text.replace(f"{{{name}}}", key)
    path.write_text(text)
    assert town.aggregate("evaluate", "--roster", path) in (2, 4)
    assert words in capsys.readouterr().err
    assert contents(town.drop) == {}


def test_the_state_of_another_folder_is_not_the_state_of_this_study(town: Town, capsys: Any) -> None:
    town.begin()
    assert town.aggregate("--state", town.root / "elsewhere") == 2
    assert "does not hold the state" in capsys.readouterr().err


def test_another_coordinator_cannot_go_on(town: Town, capsys: Any) -> None:
    town.begin()
    assert run_command(["aggregate", str(town.drop), "--key", str(town.root / "a" / "a.key")]) == 4
    assert "study.fedassay" in capsys.readouterr().err


def test_nobody_else_can_read_a_reply(town: Town) -> None:
    """Whoever has the folder sees no count of the plain histogram: the reply is sealed for the coordinator."""
    town.begin("--privacy", "plain")
    town.contribute("a")
    data = (town.drop / "from-a" / "1.fedassay").read_bytes()
    body = wire.decode(data[_MESSAGE:])["body"]
    assert b"vectors" not in body
    assert body.count(bytes(7)) == 0  # small counts as int64 would be full of zero bytes
