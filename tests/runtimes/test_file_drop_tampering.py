"""What does not belong is refused by name, on both sides, with the right exit code, and nothing is accepted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedassay.crypto.identity import Identity, key_to_text
from fedassay.kernel import envelope
from fedassay.kernel.agenda import Agenda
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Budget, Protection
from fedassay.runtimes.file_drop.letters import LARGEST_FILE, LetterKind
from fedassay.runtimes.file_drop.study import Announcement
from fedassay.trust.plain import Plain
from file_drop_town import Town, contents, letter_of


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """A study under way: five sites were asked, of which one may be missing; a and b have answered pass 1."""
    place = Town(tmp_path, names=tuple("abcde"))
    assert place.begin() == 0
    place.contribute_all(("a", "b"))
    return place


def signed_again(path: Path, identity: Identity, **changes: Any) -> None:
    """Forge: change a letter and sign it with this key."""
    path.write_bytes(replace(letter_of(path), **changes).signed(identity))


def flip(place: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)

    return change


def cut(length: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[:length]) and None


def replaced_by(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def oversized(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(LARGEST_FILE + 1)  # sparse: takes no room


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "magic": (flip(0), "is not a file of fedassay"),
    "version": (flip(8), "format version 0, expected 1"),
    "version, high byte": (flip(9), "format version 257"),
    "signature, first byte": (flip(10), "was changed or cut"),
    "signature, last byte": (flip(73), "was changed or cut"),
    "message, first byte": (flip(74), "was changed or cut"),
    "message, middle": (flip(200), "was changed or cut"),
    "last byte": (flip(-1), "was changed or cut"),
    "one byte longer": (lambda path: path.write_bytes(path.read_bytes() + b"x") and None, "was changed"),
    "empty": (cut(0), "is not a file of fedassay"),
    "only the magic": (cut(8), "is cut short"),
    "no message": (cut(74), "is cut short"),
    "last byte lost": (cut(-1), "was changed or cut"),
    "oversized": (oversized, "expected at most"),
    "text": (lambda path: path.write_text("hello") and None, "is not a file of fedassay"),
    "a folder": (replaced_by(Path.mkdir), "is not a plain file"),
    "a pipe": (replaced_by(os.mkfifo), "is not a plain file"),
    "a link": (replaced_by(lambda path: path.symlink_to("/dev/zero")), "cannot be read"),
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
@pytest.mark.parametrize("file", ["study.fedassay", "to-c/1.fedassay"])
def test_a_site_refuses_damage(town: Town, capsys: Any, damage: str, file: str) -> None:
    change, words = DAMAGE[damage]
    change(town.drop / file)
    assert_refused_by_site(town, "c", capsys, file, words)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_the_coordinator_refuses_damage(town: Town, capsys: Any, damage: str) -> None:
    change, words = DAMAGE[damage]
    change(town.drop / "from-a" / "1.fedassay")
    assert_refused_by_coordinator(town, "a", capsys, words)


def assert_refused_by_site(town: Town, name: str, capsys: Any, file: str, words: str) -> None:
    (town.root / name / "state").mkdir(exist_ok=True)
    (town.root / name / "state" / "lock").touch()
    before = contents(town.root / name)
    for options in (("--yes",), ("--dry-run",)):
        assert town.contribute(name, *options) == 4
        error = capsys.readouterr().err
        assert file in error
        assert words in error
        assert "Traceback" not in error
    assert not (town.drop / f"from-{name}" / "1.fedassay").exists()
    assert contents(town.root / name) == before  # no charge, no state


def assert_refused_by_coordinator(town: Town, name: str, capsys: Any, words: str) -> None:
    passes = (town.state / "passes").read_bytes()
    assert town.aggregate() == 4
    error = capsys.readouterr().err
    assert f"from-{name}/1.fedassay" in error
    assert words in error
    assert "Traceback" not in error
    assert not (town.state / f"from-{name}" / "1.fedassay").exists()
    assert (town.state / "passes").read_bytes() == passes
    assert not (town.drop / "to-a" / "2.fedassay").exists()


def test_what_is_refused_can_be_closed_out(town: Town, capsys: Any) -> None:
    for name in ("c", "d", "e"):
        town.contribute(name)
    flip(-1)(town.drop / "from-d" / "1.fedassay")
    assert town.aggregate("--close") == 0
    assert "Refused: " in capsys.readouterr().out
    assert (town.drop / "to-a" / "2.fedassay").exists()
    assert (town.drop / "to-d" / "2.fedassay").exists()  # as a member it is asked all the same


def test_replies_swapped_between_sites(town: Town, capsys: Any) -> None:
    a, b = town.drop / "from-a" / "1.fedassay", town.drop / "from-b" / "1.fedassay"
    first = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(first)
    assert_refused_by_coordinator(town, "a", capsys, "is signed by b, expected a")


def test_requests_swapped_between_sites(town: Town, capsys: Any) -> None:
    shutil.copy(town.drop / "to-d" / "1.fedassay", town.drop / "to-c" / "1.fedassay")
    assert_refused_by_site(town, "c", capsys, "to-c/1.fedassay", "its recipient is 'd', expected 'c'")


def test_an_old_reply_is_no_answer_to_a_new_pass(town: Town, capsys: Any) -> None:
    for name in ("c", "d", "e"):
        town.contribute(name)
    assert town.aggregate("-q") == 0
    shutil.copy(town.drop / "from-a" / "1.fedassay", town.drop / "from-a" / "2.fedassay")
    assert town.aggregate() == 4
    assert "from-a/2.fedassay: its number is 1, expected 2" in capsys.readouterr().err


def test_an_old_request_is_no_new_one(town: Town, capsys: Any) -> None:
    shutil.copy(town.drop / "to-a" / "1.fedassay", town.drop / "to-a" / "2.fedassay")
    assert town.contribute("a", "--yes") == 4
    assert "to-a/2.fedassay: its number is 1, expected 2" in capsys.readouterr().err
    assert not (town.drop / "from-a" / "2.fedassay").exists()


def test_a_reply_is_no_request_and_a_request_no_reply(town: Town, capsys: Any) -> None:
    signed_again(town.drop / "to-c" / "1.fedassay", town.identities["coordinator"], kind=LetterKind.REPLY)
    assert_refused_by_site(town, "c", capsys, "to-c/1.fedassay", "kind reply, expected request or over")
    (town.drop / "to-c" / "1.fedassay").unlink()  # the coordinator writes it again
    signed_again(town.drop / "from-a" / "1.fedassay", town.identities["a"], kind=LetterKind.REQUEST)
    assert_refused_by_coordinator(town, "a", capsys, "kind request, expected reply")


def test_files_of_another_study(tmp_path: Path, town: Town, capsys: Any) -> None:
    """The same coordinator and sites, two studies at a time: files do not fit the other one."""
    other = tmp_path / "other"
    town.drop.rename(other)
    town.drop.mkdir()
    shutil.rmtree(town.root / "c", ignore_errors=False)
    (town.root / "c").mkdir()
    town.identities["c"].save(town.root / "c" / "c.key")
    town.frame(3).to_csv(town.root / "c" / "scores.csv", index=False)
    town.write_site("c")
    (town.root / "coordinator" / "roster.toml").write_text(town.cards(("coordinator", *town.names)))
    (town.root / "coordinator" / "fedassay-state").rename(tmp_path / "other-state")
    assert town.begin() == 0
    assert town.contribute("a") == 0
    shutil.copy(other / "from-a" / "1.fedassay", town.drop / "from-a" / "1.fedassay")
    assert_refused_by_coordinator(town, "a", capsys, "it belongs to another study")
    shutil.copy(other / "to-c" / "1.fedassay", town.drop / "to-c" / "1.fedassay")
    assert_refused_by_site(town, "c", capsys, "to-c/1.fedassay", "it belongs to another study")


def test_a_stranger_signs(town: Town, capsys: Any) -> None:
    stranger = Identity.draw(SecureRandomness())
    signed_again(town.drop / "from-a" / "1.fedassay", stranger)
    assert_refused_by_coordinator(town, "a", capsys, "a key that is not in the roster")
    for file in ("study.fedassay", "to-c/1.fedassay"):
        signed_again(town.drop / file, stranger)
    assert_refused_by_site(town, "c", capsys, "study.fedassay", "a key that is not in the roster")


def test_a_site_cannot_play_the_coordinator(town: Town, capsys: Any) -> None:
    signed_again(town.drop / "to-c" / "1.fedassay", town.identities["b"])
    assert_refused_by_site(town, "c", capsys, "to-c/1.fedassay", "is signed by b, expected coordinator")


@pytest.mark.parametrize("what", ["not sealed", "in the clear", "nonsense", "sealed by another"])
def test_a_signed_reply_full_of_nonsense_is_a_dropout(town: Town, capsys: Any, what: str) -> None:
    for name in ("c", "d", "e"):
        town.contribute(name)
    body = {
        "not sealed": b"x" * 100,
        "in the clear": wire.encode(town.opened("a")),
        "nonsense": town.sealed("a", b"nonsense"),
        "sealed by another": town.sealed("b", wire.encode(town.opened("a"))),
    }[what]
    signed_again(town.drop / "from-a" / "1.fedassay", town.identities["a"], body=body)
    assert town.aggregate() == 0
    assert "a did not answer: malformed" in capsys.readouterr().out
    named = wire.decode(letter_of(town.drop / "to-b" / "2.fedassay").body)["message"]["named"]
    assert [entry[0] for entry in named] == [1, 2, 3, 4]


def test_the_first_reply_counts(town: Town, capsys: Any) -> None:
    assert town.aggregate("-q") == 0  # a and b are kept from here on
    kept = contents(town.state / "from-a")
    flip(100)(town.drop / "from-a" / "1.fedassay")
    assert town.aggregate("-q") == 0
    assert contents(town.state / "from-a") == kept


# --- a coordinator that changes its terms -------------------------------------------------------------------


def announce_again(town: Town, **changes: Any) -> None:
    """The coordinator signs another announcement under the same name."""
    path = town.drop / "study.fedassay"
    announcement = Announcement.decode(letter_of(path).body, where="")
    signed_again(path, town.identities["coordinator"], body=replace(announcement, **changes).encode())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"study": "evaluate-another"}, "name different studies"),
        ({"trust": Plain()}, "the trust model secure-sum or its parameters is not what was announced"),
        ({"agenda": Agenda.of("calibrate", {})}, "the task evaluate is not what was announced"),
        ({"protection": Protection(rows_per_client=5)}, "is not what was announced"),
        ({"budget": Budget(epsilon=1.0)}, "is not what was announced"),
    ],
)
def test_a_request_under_other_terms_than_announced(
    town: Town, capsys: Any, changes: dict[str, Any], words: str
) -> None:
    announce_again(town, **changes)
    assert_refused_by_site(town, "c", capsys, "fedassay", words)


def test_an_announcement_that_changes_after_an_answer(town: Town, capsys: Any) -> None:
    announce_again(town, agenda=Agenda.of("evaluate", {"thresholds": [0.9]}))
    assert town.contribute("a", "--yes") == 4
    assert "has changed; it is refused" in capsys.readouterr().err


def test_a_request_that_changes_after_an_answer(town: Town, capsys: Any) -> None:
    path = town.drop / "to-a" / "1.fedassay"
    content = wire.decode(letter_of(path).body)
    content["exchange"] = bytes(16)
    signed_again(path, town.identities["coordinator"], body=wire.encode(content))
    shutil.rmtree(town.drop / "from-a")
    assert town.contribute("a", "--yes") == 4
    assert "another request than the one that this site has answered" in capsys.readouterr().err
    assert not (town.drop / "from-a").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("study", "other"),
        ("recipient", "d"),
        ("leg", "one"),
        ("plans", []),
        ("trust", {"name": ["a", "list"]}),
        ("version", 2),
    ],
)
def test_a_signed_request_that_is_not_sound(town: Town, capsys: Any, field: str, value: Any) -> None:
    path = town.drop / "to-c" / "1.fedassay"
    content = wire.decode(letter_of(path).body)
    body = wire.encode({**content, field: value})
    signed_again(path, town.identities["coordinator"], body=body)
    assert_refused_by_site(town, "c", capsys, "to-c/1.fedassay", "")


@pytest.mark.parametrize(
    ("roster", "words"),
    [
        ("the key of d is another", "the announced key of d has the fingerprint"),
        ("d is unknown", "the study includes d, whose public key is not in this site's roster"),
    ],
)
def test_the_announced_roster_must_be_the_pinned_one(
    town: Town, capsys: Any, roster: str, words: str
) -> None:
    path = town.root / "c" / "site.toml"
    line = f'd = "{key_to_text(town.identities["d"].public)}"\n'
    other = f'd = "{key_to_text(Identity.draw(SecureRandomness()).public)}"\n'
    path.write_text(path.read_text().replace(line, other if "another" in roster else ""))
    assert_refused_by_site(town, "c", capsys, "study.fedassay", words)


def test_a_study_that_does_not_include_this_site(town: Town, capsys: Any) -> None:
    announcement = Announcement.decode(letter_of(town.drop / "study.fedassay").body, where="")
    announce_again(town, roster={n: k for n, k in announcement.roster.items() if n != "c"})
    assert_refused_by_site(town, "c", capsys, "study.fedassay", "does not include c")


def test_junk_with_other_names_is_ignored(town: Town) -> None:
    for folder in ("to-c", "from-a", "."):
        for name in ("Thumbs.db", ".1.fedassay.77.partial", "01.fedassay", "-1.fedassay", "x.fedassay"):
            (town.drop / folder / name).write_bytes(b"junk")
    town.contribute_all(("c", "d", "e"))
    assert town.aggregate("-q") == 0
    assert (town.drop / "to-c" / "2.fedassay").exists()


def test_junk_in_the_place_of_a_later_letter_blocks_and_is_named(town: Town, capsys: Any) -> None:
    (town.drop / "to-c" / "99.fedassay").write_bytes(b"junk")
    assert_refused_by_site(town, "c", capsys, "to-c/99.fedassay", "remove it")


def test_files_of_others_are_never_overwritten(town: Town, capsys: Any) -> None:
    (town.drop / "from-c").mkdir()
    (town.drop / "from-c" / "1.fedassay").write_bytes(b"somebody was here")
    assert town.contribute("c", "--yes") == 4
    assert "exists with other content" in capsys.readouterr().err
    assert (town.drop / "from-c" / "1.fedassay").read_bytes() == b"somebody was here"
    flip(-1)(town.drop / "to-a" / "1.fedassay")
    assert town.aggregate() == 4
    assert "to-a/1.fedassay: exists with other content" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["journal", "passes", "from-a/1.fedassay", "reply.key"])
def test_a_changed_state_is_refused(town: Town, capsys: Any, file: str) -> None:
    assert town.aggregate("-q") == 0
    flip(12)(town.state / file)
    assert town.aggregate() == 4
    assert "Traceback" not in capsys.readouterr().err
    for name in ("c", "d", "e"):
        town.contribute(name)
    assert not (town.drop / "to-a" / "2.fedassay").exists()


def test_the_inner_refusal_code_is_all_that_leaves(town: Town) -> None:
    assert town.contribute("c", "--decline", "-q") == 0
    assert town.aggregate("-q") == 0
    assert town.opened("c", kept=True) == {"version": envelope.VERSION, "sender": "c", "refusal": "policy"}


def test_links_laid_in_the_drop_are_not_followed(town: Town) -> None:
    """A folder that others can write to must not lead to the ledger of a site."""
    target = town.root / "c" / "precious"
    target.write_bytes(b"the ledger")
    folder = town.drop / "from-c"
    shutil.rmtree(folder, ignore_errors=True)
    folder.symlink_to(town.root / "c", target_is_directory=True)
    assert town.contribute("c") == 4
    assert not (town.root / "c" / "1.fedassay").exists()
    folder.unlink()
    folder.mkdir()
    for number in range(os.getpid() - 200, os.getpid() + 200):
        (folder / f".1.fedassay.{number}.partial").symlink_to(target)
    assert town.contribute("c") == 0
    assert target.read_bytes() == b"the ledger"


def test_the_announcement_of_an_older_study_is_not_the_new_one(town: Town, capsys: Any) -> None:
    """Copied over the new announcement, an old one would bring its old result for the new study."""
    old = (town.drop / "study.fedassay").read_bytes()
    other = town.root / "second-drop"
    other.mkdir()
    town.folder = other.name
    assert town.begin() == 0
    (other / "study.fedassay").write_bytes(old)
    assert town.aggregate() == 4
    assert "began in" in " ".join(capsys.readouterr().err.split())


def test_a_ledger_whose_end_is_not_a_charge_refuses_everything(town: Town) -> None:
    ledger = town.root / "c" / "state" / "ledger.sqlite"
    ledger.parent.mkdir(exist_ok=True)
    ledger.write_bytes(b"\x00\x01garbage without an end")
    assert town.contribute("c") in (3, 4)
    assert ledger.read_bytes() == b"\x00\x01garbage without an end"
