"""A site in a drop: it sees before it agrees, says no by its own rules, and never answers twice differently."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedassay.errors import UsageError
from fedassay.kernel.journal import FileJournal
from fedassay.kernel.member_store import MemberStore
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Message
from fedassay.runtimes.file_drop import letters
from file_drop_town import Town, contents, letter_of
from ledgers import recorded

# Children that inherit what the tests have changed; there is one thread here, so a fork is safe.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Everybody was asked for a secure sum; nobody has answered."""
    place = Town(tmp_path)
    assert place.begin() == 0
    return place


def plain_town(path: Path, *options: object) -> Town:
    place = Town(path)
    assert place.begin("--privacy", "plain", *options) == 0
    return place


# --- seeing before agreeing ---------------------------------------------------------------------------------


def test_a_dry_run_shows_the_request_and_the_reply_and_touches_nothing(tmp_path: Path, capsys: Any) -> None:
    town = plain_town(tmp_path)
    before = contents(town.root)
    target = tmp_path / "leaves.json"
    assert town.contribute("a", "--dry-run", "--json", target) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        *("score-histogram: 128 whole numbers", "plain", "no noise", "4 sites: a, b, c, d"),
        *("128 numbers (int64)", "No privacy is promised", "dry run on copies"),
    ):
        assert words in shown
    left = json.loads(target.read_text())
    target.unlink()
    assert contents(town.root) == before
    assert not any(path.name.startswith(".dry-run") for path in (town.root / "a").iterdir())

    assert town.contribute("a") == 0  # without noise or masks, what was shown is what is sent
    sent = town.opened("a")
    assert sent["message"]["vectors"][0].tolist() == left["message"]["vectors"][0]
    assert sum(left["message"]["vectors"][0]) == len(town.frame(1))


def test_a_dry_run_in_the_middle_of_a_secure_sum_changes_nothing(town: Town, capsys: Any) -> None:
    for field in ("corrections", "answer"):
        before = contents(town.root)
        for name in town.names:
            assert town.contribute(name, "--dry-run") == 0
        assert f"message.{field}" in capsys.readouterr().out
        assert contents(town.root) == before
        town.contribute_all()
        assert town.aggregate("-q", "--json", town.root / "result.json") == 0
    assert json.loads((town.root / "result.json").read_text())["cohort"]["clients"] == 4


def test_a_dry_run_says_when_the_answer_is_there_already(town: Town, capsys: Any) -> None:
    town.contribute("a")
    assert town.contribute("a", "--dry-run") == 0
    assert "answered already" in capsys.readouterr().out


def test_without_yes_somebody_must_confirm(town: Town, capsys: Any, monkeypatch: Any) -> None:
    assert town.contribute("a", "-q") == 2
    assert "give --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.prompt.Confirm.ask", lambda question: False)
    assert town.contribute("a", "-q") == 3
    assert "not confirmed" in capsys.readouterr().err
    assert not (town.drop / "from-a").exists()
    assert recorded(town.root / "a" / "state") == ()
    monkeypatch.setattr("rich.prompt.Confirm.ask", lambda question: True)
    assert town.contribute("a", "-q") == 0


def test_one_yes_covers_all_passes_of_a_question(town: Town) -> None:
    town.contribute_all()
    assert town.aggregate("-q") == 0
    for name in town.names:
        assert town.contribute(name, "-q") == 0  # nobody is there to confirm


@pytest.mark.parametrize("options", [("--dry-run", "--decline"), ("--json", "x", "--yes")])
def test_options_that_contradict_each_other(town: Town, options: tuple[str, ...]) -> None:
    assert town.contribute("a", *options) == 2


# --- saying no ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("smallest_cohort = 5", "got a cohort of 4 clients, expected at least 5"),
        ("finest_resolution = 100", "got 128 numbers per client, expected at most 100"),
        ("largest_epsilon = 1.0", "expected at most 1 per query"),
        ('summaries = ["value-tree"]', "got the summary score-histogram"),
    ],
)
@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_the_policy_refuses_with_its_reason(
    town: Town, capsys: Any, policy: str, words: str, option: str
) -> None:
    town.write_site("a", policy)
    assert town.contribute("a", option) == 3
    error = capsys.readouterr().err
    assert words in error
    assert "Nothing was sent" in error
    assert not (town.drop / "from-a").exists()
    assert not (town.root / "a" / "state" / "store").exists()


def test_the_budget_refuses(tmp_path: Path, capsys: Any) -> None:
    town = Town(tmp_path)
    assert town.begin("--privacy", "server-dp", "--epsilon", 3.5) == 0
    assert town.contribute("a", "--yes") == 3
    assert "requested epsilon 3.5" in capsys.readouterr().err
    assert not (town.drop / "from-a").exists()


def test_bad_rows_are_named_at_the_site_only(tmp_path: Path, capsys: Any) -> None:
    town = plain_town(tmp_path)
    (town.root / "a" / "scores.csv").write_text("p,y\n0.5,1\n1.5,0\n")
    assert town.contribute("a", "--yes") == 2
    assert "scores.csv" in capsys.readouterr().err
    assert not (town.drop / "from-a").exists()
    assert recorded(town.root / "a" / "state") == ()
    town.frame(1).to_csv(town.root / "a" / "scores.csv", index=False)
    assert town.contribute("a") == 0
    assert len(recorded(town.root / "a" / "state")) == 1


def test_bad_rows_are_found_at_the_first_pass_of_a_secure_sum(town: Town, capsys: Any) -> None:
    (town.root / "a" / "scores.csv").write_text("p\n0.5\n")
    for option in ("--dry-run", "--yes"):
        assert town.contribute("a", option) == 2
        assert "scores.csv" in capsys.readouterr().err


def test_what_a_policy_judges_and_does_is_shown(tmp_path: Path, capsys: Any) -> None:
    town = plain_town(tmp_path)
    town.write_site("a", 'disclosure = "minimum-11"')
    assert town.contribute("a", "--dry-run") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "its parameters transform 'mixed'" in shown
    assert "counts of 1 to 10 rows were replaced by 0 before they leave (minimum-11)" in shown


def test_rows_per_client_is_kept_and_shown(tmp_path: Path, capsys: Any) -> None:
    town = Town(tmp_path)
    noise = ("--privacy", "server-dp", "--epsilon", 1)
    assert town.begin(*noise, "--unit", "client", "--rows-per-client", 7) == 0
    assert town.contribute("a", "--dry-run") == 0
    assert "at most 7" in capsys.readouterr().out
    assert town.contribute("a") == 0
    assert int(town.opened("a")["message"]["vectors"][0].sum()) == 2 * 7  # each row is on two levels


def test_a_site_may_decline_and_the_others_go_on(tmp_path: Path, capsys: Any) -> None:
    town = Town(tmp_path, names=tuple("abcde"))
    assert town.begin() == 0
    assert town.contribute("d", "--decline", "-q") == 0
    assert recorded(town.root / "d" / "state") == ()
    town.contribute_all(("a", "b", "c", "e"))
    assert town.contribute("a", "--decline") == 2
    assert "has answered request 1 already" in capsys.readouterr().err
    assert town.aggregate() == 0
    shown = capsys.readouterr().out
    assert "d did not answer: policy" in shown
    assert "Pass 2: 0 of 5 replies" in shown


# --- once and for all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2])
def test_a_deleted_reply_is_the_same_reply_again(town: Town, number: int) -> None:
    for _ in range(number - 1):
        for name in town.names:
            town.contribute(name)
        town.aggregate("-q")
    town.contribute("a")
    path = town.drop / "from-a" / f"{number}.fedassay"
    first = path.read_bytes()
    shutil.rmtree(path.parent)
    assert town.contribute("a") == 0
    assert path.read_bytes() == first
    assert len(recorded(town.root / "a" / "state")) == 1


@pytest.mark.parametrize("moment", ["store", "kept", "sent"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_site_killed_at_any_moment_never_answers_differently(town: Town, number: int, moment: str) -> None:
    """Killed after its store was saved, after the signed reply was kept, or after it was in the drop."""
    for _ in range(number - 1):
        for name in town.names:
            town.contribute(name)
        town.aggregate("-q")
    process = multiprocessing.get_context("fork").Process(target=_contribute_and_die, args=(town, moment))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    store = (town.root / "a" / "state" / "store").read_bytes()
    (talk,) = wire.decode(store)["conversations"]
    stored = {leg: reply for leg, _, reply in talk["replies"]}
    assert number - 1 in stored
    assert (town.drop / "from-a" / f"{number}.fedassay").exists() == (moment == "sent")

    assert town.contribute("a") == 0
    assert letter_of(town.drop / "from-a" / f"{number}.fedassay").body == stored[number - 1]
    assert (town.root / "a" / "state" / "store").read_bytes() == store
    for name in ("b", "c", "d"):
        town.contribute(name)
    assert town.aggregate("-q", "--json", town.root / "result.json") == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_member_killed_beside_its_answer_gives_one_answer(town: Town, moment: str) -> None:
    """Killed just before its answer is recorded and its prekey deleted, or just after: nothing else was saved."""
    for name in town.names:
        town.contribute(name)
    town.aggregate("-q")
    process = multiprocessing.get_context("fork").Process(target=_answer_and_die, args=(town, moment))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    path = town.root / "a" / "a.prekeys"
    with closing(sqlite3.connect(path)) as database:
        recorded_answers = database.execute("SELECT reply FROM answers").fetchall()
    assert len(recorded_answers) == (moment == "after")
    town.contribute_all()
    with closing(sqlite3.connect(path)) as database:
        ((answer,),) = database.execute("SELECT reply FROM answers").fetchall()
    assert recorded_answers in ([], [(answer,)])
    assert wire.encode(town.opened("a", 2)["message"]) == answer
    assert town.aggregate("-q", "--json", town.root / "result.json") == 0
    assert json.loads((town.root / "result.json").read_text())["cohort"]["clients"] == 4


def _answer_and_die(town: Town, moment: str) -> None:
    answer = MemberStore.answer

    def dying(*arguments: Any, **options: Any) -> bytes:
        if moment == "after":
            answer(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    MemberStore.answer = dying  # type: ignore[method-assign]
    town.contribute("a")


def _contribute_and_die(town: Town, moment: str) -> None:
    put, done = letters.put, {"store": ".request", "kept": ".reply", "sent": ".fedassay"}[moment]

    def dying(path: Path, data: bytes, *, private: bool = False) -> bool:
        result = False if moment == "store" else put(path, data, private=private)
        if moment == "store" or (path.name.endswith(done) and private == (moment != "sent")):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    letters.put = dying  # type: ignore[assignment]
    town.contribute("a")


def test_a_site_that_was_charged_and_lost_its_answer_stays_silent(town: Town, capsys: Any) -> None:
    """Nobody can tell a store that was never written from one that was put back: nothing is answered anew."""
    town.contribute("a")
    shutil.rmtree(town.root / "a" / "state" / "file-drop")
    (town.root / "a" / "state" / "store").unlink()
    shutil.rmtree(town.drop / "from-a")
    assert town.contribute("a", "--yes") == 4
    assert "charged before" in capsys.readouterr().err
    assert not (town.drop / "from-a").exists()


def test_two_commands_at_once_do_not_answer_twice(town: Town, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("fedassay.protocol.files.PATIENCE", 0.1)
    with letters.locked(town.root / "a" / "state"):
        assert town.contribute("a") == 2
    assert "another process is using it" in capsys.readouterr().err
    assert not (town.drop / "from-a").exists()
    with letters.locked(town.root / "coordinator" / "fedassay-state"):
        assert town.aggregate() == 2


def test_a_coordinator_killed_at_every_write_goes_on(tmp_path: Path) -> None:
    """It dies after each single thing that it writes in its second call, and is called again each time."""
    town = Town(tmp_path)
    town.begin()
    for name in town.names:
        town.contribute(name)
    deaths, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        process = multiprocessing.get_context("fork").Process(target=_aggregate_and_die, args=(town,))
        process.start()
        process.join()
        assert process.exitcode is not None
        code = process.exitcode
        deaths += 1
    assert code == 0
    # Four replies kept, and the prekey of each; a closing, a hearing, a new pass, four requests, a note of their size.
    assert deaths == 1 + 2 * 4 + 1 + 1 + 1 + 4 + 1
    town.contribute_all()
    assert town.aggregate("-q", "--json", tmp_path / "result.json") == 0
    assert json.loads((tmp_path / "result.json").read_text())["cohort"]["clients"] == 4
    assert json.loads((tmp_path / "result.json").read_text())["runtime"]["rounds"] == 2


def _aggregate_and_die(town: Town) -> None:
    put, append = letters.put, FileJournal.append

    def dying_put(path: Path, data: bytes, *, private: bool = False) -> bool:
        if put(path, data, private=private):
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    def dying_append(self: FileJournal, entry: Message) -> None:
        append(self, entry)
        os.kill(os.getpid(), signal.SIGKILL)

    letters.put = dying_put  # type: ignore[assignment]
    FileJournal.append = dying_append  # type: ignore[method-assign]
    os._exit(town.aggregate("-q"))


# --- the site's own file ------------------------------------------------------------------------------------


def test_a_roster_must_hold_the_coordinator_and_the_site_itself(town: Town) -> None:
    path = town.root / "a" / "site.toml"
    for name in ("coordinator", "a"):
        text = path.read_text()
        lines = [line for line in text.splitlines() if not line.startswith(f"{name} = ")]
        path.write_text("\n".join(lines))
        with pytest.raises(UsageError, match=f"no public key of {name}"):
            town.participant("a")
        path.write_text(text)


def test_a_site_with_the_key_of_another(town: Town) -> None:
    shutil.copy(town.root / "b" / "b.key", town.root / "a" / "a.key")
    with pytest.raises(UsageError, match="does not belong to this site's private key"):
        town.participant("a")


def test_a_folder_that_is_not_there(town: Town, capsys: Any) -> None:
    shutil.rmtree(town.drop)
    assert town.contribute("a") == 2
    assert town.aggregate() == 2
    assert "is not a folder" in capsys.readouterr().err
