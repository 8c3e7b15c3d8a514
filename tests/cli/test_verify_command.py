"""`fedassay verify`: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedassay
from certified_folders import OWNER, STRANGER, certified, content_of_certificate, document, forge
from command_line import call, output_of, refused
from fedassay.crypto.identity import fingerprint, key_to_text
from fedassay.errors import UsageError

KEY = key_to_text(OWNER.public)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return certified(tmp_path / "study")


def test_a_folder_that_holds(capsys: Any, folder: Path) -> None:
    code, out, _ = call(capsys, "verify", folder, "--key", KEY)
    text = " ".join(out.split())
    assert code == 0
    assert "Everything holds" in text
    assert fingerprint(OWNER.public).split()[0] in text
    assert "3 releases compose to epsilon 1" in text.replace("│ ", "").replace("  ", " ")


def test_a_changed_file_is_named(capsys: Any, folder: Path) -> None:
    (folder / "report.html").write_text("changed")
    code, out, _ = call(capsys, "verify", folder)
    assert code == 5
    assert "Does not hold: report.html" in out


def test_without_a_certificate_it_is_wrong_use(capsys: Any, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        err = refused(capsys, "verify", place)
        assert str(place) in err.replace("\n", "")


@pytest.mark.parametrize(
    "form", ["{key}", 'hospital-a = "{key}"', "{key}\n", 'Card:         hospital-a = "{key} AMBJvGoAAAAA="']
)
def test_the_expected_key_comes_as_text_or_in_a_file(
    capsys: Any, folder: Path, tmp_path: Path, form: str
) -> None:
    (tmp_path / "owner.pub").write_text(form.format(key=KEY))
    (tmp_path / "stranger.pub").write_text(form.format(key=key_to_text(STRANGER.public)))
    assert call(capsys, "verify", folder, "--key", tmp_path / "owner.pub", "--quiet")[0] == 0
    code, out, _ = call(capsys, "verify", folder, "--key", tmp_path / "stranger.pub")
    assert code == 5
    assert "Does not hold: key" in out


def test_what_is_no_public_key_is_refused(capsys: Any, folder: Path, tmp_path: Path) -> None:
    OWNER.save(tmp_path / "private.key")
    (tmp_path / "two.pub").write_text(f"{KEY}\n{KEY}\n")
    for given, words in (
        (tmp_path / "private.key", "got a private key"),
        (tmp_path / "two.pub", "expected a public key"),
        ("nonsense", "expected a public key"),
        (tmp_path, "expected a public key"),
    ):
        err = refused(capsys, "verify", folder, "--key", given)
        assert words in err


def test_a_forgery_is_found_by_the_key(capsys: Any, folder: Path) -> None:
    forge(folder, content_of_certificate(folder))
    code, out, _ = call(capsys, "verify", folder)
    assert code == 5
    assert "Everything holds" not in out
    assert "The signer was not checked" in out
    assert "--any-key" in out
    assert call(capsys, "verify", folder, "--key", KEY)[0] == 5


def test_any_signer_can_be_accepted(capsys: Any, folder: Path) -> None:
    forge(folder, content_of_certificate(folder))
    out = output_of(capsys, "verify", folder, "--any-key")
    assert "Everything holds" in out
    (folder / "report.html").write_text("changed")
    code, out, _ = call(capsys, "verify", folder, "--any-key")
    assert code == 5
    assert "Does not hold: report.html" in out


def test_a_key_and_any_key_are_not_meant_together(capsys: Any, folder: Path) -> None:
    err = refused(capsys, "verify", folder, "--any-key", "--key", KEY)
    assert "--any-key" in err


def test_json_tells_an_unchecked_signer(capsys: Any, folder: Path) -> None:
    code, out, _ = call(capsys, "verify", folder, "--json", "-")
    found = json.loads(out)
    assert code == 5
    assert found["holds"] is False
    assert {(one["what"], one["outcome"]) for one in found["checks"]} >= {("key", "unchecked")}
    assert not any(one["outcome"] == "wrong" for one in found["checks"])


def test_python_says_the_same_as_the_command(folder: Path) -> None:
    assert not fedassay.verify(folder).holds
    assert fedassay.verify(folder).unchecked
    assert fedassay.verify(folder, key=KEY).holds
    assert fedassay.verify(folder, any_key=True).holds
    with pytest.raises(UsageError, match="any_key"):
        fedassay.verify(folder, key=KEY, any_key=True)


def test_json_says_the_same(capsys: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "model_card.md").unlink()
    code, out, err = call(capsys, "verify", folder, "--json", "-")
    found = json.loads(out)
    assert code == 5
    assert found["holds"] is False
    assert found["key"] == KEY
    assert [one["what"] for one in found["checks"] if one["outcome"] == "wrong"] == ["model_card.md"]
    assert "Does not hold: model_card.md" in err
    assert call(capsys, "verify", folder, "--json", tmp_path / "checks.json", "--quiet") == (5, "", "")
    assert json.loads((tmp_path / "checks.json").read_text()) == found


def test_names_from_a_stranger_are_no_markup(capsys: Any, tmp_path: Path) -> None:
    content = document()
    content["parameters"]["study"] = "[red]spring[/red]"
    out = output_of(capsys, "verify", certified(tmp_path / "study", content), "--any-key")
    assert "[red]spring[/red]" in out
