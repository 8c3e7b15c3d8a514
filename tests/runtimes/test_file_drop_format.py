"""The format of the signed file, byte for byte: stored vectors, and the reference page that explains them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedassay.crypto.identity import Identity
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import ProtocolError
from fedassay.kernel.agenda import Agenda
from fedassay.protocol.vocabulary import Budget, Protection
from fedassay.runtimes.file_drop.letters import Letter, LetterKind, open_letter
from fedassay.runtimes.file_drop.study import Announcement
from fedassay.trust.server_dp import ServerDP

FOLDER = Path(__file__).parent.parent / "vectors"
VECTORS = json.loads((FOLDER / "file_drop.json").read_text())
PAGE = (FOLDER.parent.parent / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")

# The first key pair of RFC 8032, section 7.1.
PRIVATE = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
ME = Identity.of(Secret(PRIVATE))
LETTER = Letter(
    study="demo-0123456789abcdef",
    sender="a",
    recipient="coordinator",
    kind=LetterKind.REPLY,
    number=1,
    body=b"hi",
)
PAIR = KeyPair.of(Secret(bytes(range(100, 132))))


def announcement() -> Announcement:
    return Announcement(
        study="demo-0123456789abcdef",
        agenda=Agenda.of("evaluate", {"thresholds": [0.5]}),
        trust=ServerDP(),
        protection=Protection(),
        budget=Budget(epsilon=1.0),
        roster={"a": ME.public},
        reply_key=PAIR.public,
    )


def test_the_stored_bytes_have_not_changed() -> None:
    assert LETTER.signed(ME).hex() == VECTORS["letter"]
    assert announcement().encode().hex() == VECTORS["announcement"]


def test_the_stored_bytes_are_read_back() -> None:
    data = bytes.fromhex(VECTORS["letter"])
    options = {
        "where": "here",
        "sender": "a",
        "believed": {"a": ME.public},
        "recipient": "coordinator",
        "kinds": (LetterKind.REPLY,),
        "study": LETTER.study,
    }
    assert open_letter(data, number=1, **options) == LETTER  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="here: its number is 1, expected 2"):
        open_letter(data, number=2, **options)  # type: ignore[arg-type]
    assert Announcement.decode(bytes.fromhex(VECTORS["announcement"]), where="") == announcement()


@pytest.mark.parametrize("file", ["wire.json", "file_drop.json"])
def test_the_reference_page_shows_every_stored_vector(file: str) -> None:
    shown = "".join(PAGE.split())
    for name, vector in json.loads((FOLDER / file).read_text()).items():
        assert vector in shown, name
