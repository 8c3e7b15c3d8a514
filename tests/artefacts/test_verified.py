"""A changed byte anywhere is found and its file named; strangers' certificates break nothing."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from hypothesis import given, settings
from hypothesis import strategies as st

from artefact_files import NOT_JSON, with_entry
from certified_folders import FILES, OWNER, STRANGER, certified, content_of_certificate, exact_document, forge
from fedassay.artefacts.certificate import CERTIFICATE
from fedassay.artefacts.stored import hashed
from fedassay.artefacts.verified import ANY_KEY, Outcome, Verified, check
from fedassay.crypto.identity import fingerprint, key_to_text
from fedassay.errors import UsageError
from stated import Verify

NAMES = ("result.json", *FILES, CERTIFICATE)


def wrong(found: Verified) -> set[str]:
    return {one.what for one in found.wrong}


def flips(length: int, how_many: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Positions and bits, the first and the last byte among them; every byte if there are not more."""
    drawn = [0, length - 1, *rng.integers(0, length, how_many)]
    for place in range(length) if length <= how_many else np.unique(drawn):
        yield int(place), int(rng.integers(0, 8))


def flipped_and_missed(
    folder: Path, name: str, how_many: int, seed: int
) -> tuple[int, list[tuple[int, int]]]:
    """Flip one bit at a time; how often, and where nobody noticed, or the file was not named."""
    path, rng = folder / name, np.random.default_rng(seed)
    before = path.read_bytes()
    tried, missed = 0, []
    for place, bit in flips(len(before), how_many, rng):
        after = bytearray(before)
        after[place] ^= 1 << bit
        path.write_bytes(after)
        tried += 1
        if name not in wrong(check(folder)):
            missed.append((place, bit))
    path.write_bytes(before)
    return tried, missed


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_found_and_its_file_named(tmp_path: Path, name: str) -> None:
    folder = certified(tmp_path / "study")
    tried, missed = flipped_and_missed(folder, name, 200, seed=5)
    assert tried >= min(len((folder / name).read_bytes()), 150)
    assert missed == []
    assert check(folder, key=ANY_KEY).holds  # and the bits themselves were all that was wrong


@pytest.mark.full
def test_every_byte_of_every_file_counts(tmp_path: Path, verify: Verify) -> None:
    folder = certified(tmp_path / "study")
    found = [flipped_and_missed(folder, name, 10**6, seed=7) for name in NAMES]
    verify(
        "a flipped bit in any byte of any artefact makes `verify` fail and names the file",
        f"{sum(tried for tried, _ in found):,} bytes of {len(NAMES)} files, {sum(len(m) for _, m in found)} missed",
    )
    assert all(missed == [] for _, missed in found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [lambda raw: raw + b"\n", lambda raw: raw[:-1], lambda raw: b""])
def test_longer_shorter_and_empty_files_are_found(tmp_path: Path, name: str, change: Any) -> None:
    folder = certified(tmp_path / "study")
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    assert name in wrong(check(folder))


def test_another_order_or_another_layout_is_a_change(tmp_path: Path) -> None:
    folder = certified(tmp_path / "study")
    content = content_of_certificate(folder)
    for text in (
        json.dumps(content, indent=2) + "\n\n",
        json.dumps(content, indent=4) + "\n",
        json.dumps(dict(reversed(content.items())), indent=2) + "\n",
        json.dumps({**dict(sorted(content.items())), "signature": content["signature"]}, indent=2) + "\n",
    ):
        (folder / CERTIFICATE).write_text(text, encoding="ascii")
        assert wrong(check(folder)) == {CERTIFICATE}


@pytest.mark.parametrize("name", [name for name in NAMES if name != CERTIFICATE])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = certified(tmp_path / "study")
    (folder / name).unlink()
    assert wrong(check(folder)) == {name}


def test_a_file_that_could_be_taken_for_an_artefact_is_wrong_and_another_one_a_note(tmp_path: Path) -> None:
    folder = certified(tmp_path / "study")
    (folder / "notes.txt").write_text("mine")
    found = check(folder, key=ANY_KEY)
    assert found.holds
    assert any("'journal', 'notes.txt'" in one.text for one in found.checks)
    (folder / "conformal.json").write_text("{}")  # a known name
    (folder / "evaluate.json").write_text("{}")  # the name of a task
    assert wrong(check(folder)) == {"conformal.json", "evaluate.json"}


def test_links_pipes_and_folders_are_not_opened(tmp_path: Path) -> None:
    folder = certified(tmp_path / "study")
    outside = tmp_path / "report.html"
    (folder / "report.html").rename(outside)
    (folder / "report.html").symlink_to(outside)  # the very bytes, but not in the folder
    (folder / "model_card.md").unlink()
    os.mkfifo(folder / "model_card.md")
    (folder / "study.toml").unlink()
    (folder / "study.toml").mkdir()
    assert wrong(check(folder)) == {"report.html", "model_card.md", "study.toml"}


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to(path.parent.parent / "elsewhere"), os.mkfifo, Path.mkdir]
)
def test_a_certificate_that_is_no_file_is_not_opened(tmp_path: Path, make: Any) -> None:
    folder = certified(tmp_path / "study")
    (folder / CERTIFICATE).rename(tmp_path / "elsewhere")
    make(folder / CERTIFICATE)
    assert wrong(check(folder)) == {CERTIFICATE}


def test_without_a_folder_or_a_certificate_there_is_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        check(tmp_path / "absent")
    with pytest.raises(UsageError, match="no certificate.json in it"):
        check(tmp_path)


def test_a_forgery_is_never_said_to_hold(tmp_path: Path) -> None:
    folder = certified(tmp_path / "study")
    assert check(folder, key=OWNER.public).holds
    forge(folder, content_of_certificate(folder))
    found = check(folder)
    assert found.unchecked
    assert not found.wrong
    assert not found.holds
    assert found.public == STRANGER.public
    (unchecked,) = [one for one in found.checks if one.outcome is Outcome.UNCHECKED]
    assert unchecked.what == "key"
    assert fingerprint(STRANGER.public) in unchecked.text
    assert check(folder, key=ANY_KEY).holds
    assert wrong(check(folder, key=OWNER.public)) == {"key"}
    assert "certificate.json is signed with" in check(folder, key=OWNER.public).wrong[0].text


def test_the_recipe_of_the_reference_page_checks_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "certificate.md"
    recipe = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    recipe = recipe.replace("…the public key…", key_to_text(OWNER.public))
    folder = certified(tmp_path / "study")
    monkeypatch.chdir(folder)
    exec(recipe, {})
    forge(folder, content_of_certificate(folder))
    with pytest.raises(InvalidSignature):
        exec(recipe, {})


def test_a_signature_of_something_else_does_not_fit(tmp_path: Path) -> None:
    one, other = certified(tmp_path / "one"), certified(tmp_path / "other", exact_document())
    foreign = (other / CERTIFICATE).read_bytes()[-150:]
    (one / CERTIFICATE).write_bytes((one / CERTIFICATE).read_bytes()[:-150] + foreign)
    assert wrong(check(one)) == {CERTIFICATE}
    assert "does not fit" in check(one).wrong[0].text


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("ledger.spent", 0.5, {"ledger", "result.json"}),
        ("ledger.spent", 2.0, {"ledger", "result.json"}),
        ("ledger.budget", 0.9, {"ledger", "result.json"}),
        ("ledger.budget", None, {"ledger", "result.json"}),
        ("ledger.delta", 0.1, {"ledger", "result.json"}),
        ("ledger.entries.0.scale", 40.0, {"ledger", "result.json"}),
        ("ledger.entries.0.part", "held-out", {"ledger", "result.json"}),
        ("ledger.entries", [], {"ledger", "result.json"}),
        ("ledger.entries.0.task", "calibrate", {"ledger", "result.json"}),
        ("ledger.entries.0.task", "nosuch", {"ledger", "result.json"}),
        ("ledger.entries.0.epsilon", 10**400, {"ledger", "result.json"}),
        ("ledger", None, {"ledger", "result.json"}),
        ("privacy.epsilon", 0.1, {"ledger", "result.json"}),
        ("privacy.unit", "client", {"ledger", "result.json"}),
        ("privacy.simulated", False, {"result.json"}),
        ("privacy.statement", "All is well.", {"result.json"}),
        ("parameters.model", "another", {"result.json"}),
        ("study", "autumn", {"result.json"}),
        ("tasks.evaluate.share", 0.1, {"result.json"}),
        ("fedassay", "9.9", {"result.json"}),
        ("files.0.name", "../report.html", {"certificate.json"}),
        ("files.0.name", "certificate.json", None),
        ("files.0.bytes", 1, None),
        ("files", [], None),
        ("kind", "diploma", {"certificate.json"}),
        ("meaning", "All is well.", {"certificate.json"}),
        ("key.meaning", "The key of a ministry.", {"certificate.json"}),
        ("format", 2, {"certificate.json"}),
    ],
)
def test_a_lie_is_found_even_under_a_valid_signature(
    tmp_path: Path, path: str, value: Any, what: set[str] | None
) -> None:
    folder = certified(tmp_path / "study")
    forge(folder, with_entry(content_of_certificate(folder), path, value))
    found = check(folder, key=ANY_KEY)
    assert not found.holds
    if what is not None:
        assert wrong(found) == what


def test_a_result_that_was_changed_with_its_hash_is_found(tmp_path: Path) -> None:
    folder = certified(tmp_path / "study")
    document = json.loads((folder / "result.json").read_text())
    document["privacy"]["epsilon"] = 0.1
    (folder / "result.json").write_text(json.dumps(document))
    content = content_of_certificate(folder)
    content["files"] = [hashed(folder, one["name"]).to_json() for one in content["files"]]
    forge(folder, content)
    assert wrong(check(folder)) == {"result.json"}
    assert "privacy.epsilon" in check(folder).wrong[0].text


@pytest.mark.parametrize(
    "raw",
    [
        *(content for content, _ in NOT_JSON.values()),
        "null",
        "[]",
        '{"kind": "certificate"}',
        '{"kind": "certificate", "format": true}',
        '{"kind": "certificate", "kind": "certificate"}',
    ],
)
@pytest.mark.parametrize("name", [CERTIFICATE, "result.json"])
def test_garbage_is_wrong_and_nothing_breaks(tmp_path: Path, name: str, raw: str | bytes) -> None:
    folder = certified(tmp_path / "study")
    (folder / name).write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    assert wrong(check(folder)) == {name}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything in a document."""
    yield path
    inner: Any = content.items() if isinstance(content, dict) else ()
    if isinstance(content, list):
        inner = enumerate(content)
    for name, value in inner:
        yield from places(value, (*path, name))


@pytest.fixture(scope="module")
def certified_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = certified(tmp_path_factory.mktemp("once") / "study")
    return folder, content_of_certificate(folder)


JUDGED = {"kind", "format", "study", "fedassay", "parameters", "tasks", "ledger", "files"}
"""The entries that are compared with something. Other words may be said by whoever signs."""


@settings(max_examples=80)
@given(data=st.data(), value=ANYTHING)
def test_whatever_a_stranger_signs_is_told_and_never_raised(
    certified_once: tuple[Path, dict[str, Any]], data: st.DataObject, value: Any
) -> None:
    folder, before = certified_once
    path = data.draw(st.sampled_from([path for path in places(before) if path and path[0] != "signature"]))
    content = copy.deepcopy(before)
    place: Any = content
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    forge(folder, content)
    found = check(folder, key=ANY_KEY)
    json.dumps(found.to_dict())
    if path[0] in JUDGED and content != before and path[:2] != ("ledger", "head"):
        assert not found.holds, path
