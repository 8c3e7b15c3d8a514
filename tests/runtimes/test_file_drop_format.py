"""The format of the signed file, byte for byte: stored vectors, and the reference page that explains them."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from fedassay.agenda import Agenda
from fedassay.crypto.identity import Identity
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import ProtocolError
from fedassay.protocol import Budget, Protection
from fedassay.runtimes.file_drop import sealing
from fedassay.runtimes.file_drop.announcement import Announcement
from fedassay.runtimes.file_drop.letters import Kind, Letter, open_letter
from fedassay.trust.server_dp import ServerDP

FOLDER = Path(__file__).parent.parent / "vectors"
VECTORS = json.loads((FOLDER / "file_drop.json").read_text())
PAGE = (FOLDER.parent.parent / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")

# The first key pair of RFC 8032, section 7.1.
PRIVATE = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
ME = Identity.of(Secret(PRIVATE))
LETTER = Letter(
    study="demo-0123456789abcdef", sender="a", recipient="coordinator", kind=Kind.REPLY, number=1, body=b"hi"
)
PAIR = KeyPair.of(Secret(bytes(range(100, 132))))


class Counting:
    """Bytes that count up: for vectors only."""

    simulated = True

    def __init__(self) -> None:
        self._next = count()

    def bytes(self, number: int) -> bytes:
        return bytes(next(self._next) % 256 for _ in range(number))


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


def sealed() -> bytes:
    return sealing.seal_reply(
        b"hi",
        reply_key=PAIR.public,
        study=LETTER.study,
        sender="a",
        number=1,
        randomness=Counting(),  # type: ignore[arg-type]
    )


def test_the_stored_bytes_have_not_changed() -> None:
    assert LETTER.signed(ME).hex() == VECTORS["letter"]
    assert announcement().encode().hex() == VECTORS["announcement"]
    assert sealed().hex() == VECTORS["sealed"]


def test_the_stored_bytes_are_read_back() -> None:
    data = bytes.fromhex(VECTORS["letter"])
    options = {
        "where": "here",
        "sender": "a",
        "believed": {"a": ME.public},
        "recipient": "coordinator",
        "kinds": (Kind.REPLY,),
        "study": LETTER.study,
    }
    assert open_letter(data, number=1, **options) == LETTER  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="here: its number is 1, expected 2"):
        open_letter(data, number=2, **options)  # type: ignore[arg-type]
    assert Announcement.decode(bytes.fromhex(VECTORS["announcement"]), where="") == announcement()
    assert sealing.open_reply(sealed(), own=PAIR, study=LETTER.study, sender="a", number=1) == b"hi"


@pytest.mark.parametrize(
    "changes", [{"study": "demo-2"}, {"sender": "b"}, {"number": 2}, {"own": KeyPair.of(Secret(bytes(32)))}]
)
def test_a_sealed_reply_opens_only_where_it_belongs(changes: dict[str, object]) -> None:
    options = {"own": PAIR, "study": LETTER.study, "sender": "a", "number": 1, **changes}
    assert sealing.open_reply(sealed(), **options) is None  # type: ignore[arg-type]
    for place in range(len(sealed())):
        changed = bytearray(sealed())
        changed[place] ^= 1
        assert sealing.open_reply(bytes(changed), own=PAIR, study=LETTER.study, sender="a", number=1) is None
    assert sealing.open_reply(b"", own=PAIR, study=LETTER.study, sender="a", number=1) is None


@pytest.mark.parametrize("file", ["wire.json", "file_drop.json"])
def test_the_reference_page_shows_every_stored_vector(file: str) -> None:
    shown = "".join(PAGE.split())
    for name, vector in json.loads((FOLDER / file).read_text()).items():
        assert vector in shown, name
