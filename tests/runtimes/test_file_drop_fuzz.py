"""Random and mutated files against both sides: one kind of error, nothing accepted that was not sent."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedassay.errors import FedassayError, ProtocolError
from fedassay.kernel.sites import COORDINATOR, SiteFile
from fedassay.protocol import wire
from fedassay.runtimes.file_drop.letters import _MESSAGE, EVERYONE, Letter, LetterKind, open_letter
from fedassay.runtimes.file_drop.participant import CheckedRequest, Participant
from fedassay.runtimes.file_drop.runtime import FileDropRuntime
from fedassay.runtimes.file_drop.study import Announcement, FileDropStudy
from file_drop_town import Town
from stated import Verify

FEW = settings(
    max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
MANY = settings(FEW, max_examples=34_000)


class Target:
    """A study under way: c was asked, a has answered; files are swapped in and out in place."""

    def __init__(self, root: Path) -> None:
        self.town = Town(root)
        assert self.town.begin() == 0
        assert self.town.contribute("a") == 0
        self.file = SiteFile.read(root / "c" / "site.toml")
        study = FileDropStudy.resume(
            self.town.drop,
            state=root / "coordinator" / "fedassay-state",
            identity=self.town.identities["coordinator"],
        )
        assert study is not None
        self.study = study
        self.runtime = FileDropRuntime(study)

    def path(self, name: str) -> Path:
        return self.town.drop / name

    def site(self) -> Any:
        return Participant(
            drop=self.town.drop, name="c", credentials=self.file.credentials, state=self.file.state
        ).asked()

    def coordinator(self) -> tuple[dict[str, bytes], list[str]]:
        """The replies to pass 1 that count now; nothing is remembered of earlier calls."""
        shutil.rmtree(self.study.home / "from-a", ignore_errors=True)
        return self.runtime._collect(1, ["a"])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return Target(tmp_path_factory.mktemp("fuzz"))


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """The file with some bytes changed, inserted, cut or doubled, or other bytes altogether."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    raw = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(raw) - 1)))
        kind = draw(st.sampled_from(["change", "insert", "cut", "double"]))
        if kind == "change" and raw:
            raw[place] = draw(st.integers(0, 255))
        elif kind == "insert":
            raw[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "cut":
            del raw[place : place + draw(st.integers(1, 64))]
        elif kind == "double":
            raw[place:place] = raw[place : place + draw(st.integers(1, 64))]
    return bytes(raw)


def attack_site(target: Target, name: str, data: st.DataObject) -> bool:
    """Whether the site took the mutated file for what was sent (only if it is the same file)."""
    path = target.path(name)
    sent = path.read_bytes()
    mutated = data.draw(mutations(sent))
    path.write_bytes(mutated)
    asked, refused = None, ""
    try:
        asked = target.site()
    except ProtocolError as error:
        refused = str(error)
    finally:
        path.write_bytes(sent)
    assert isinstance(asked, CheckedRequest) == (mutated == sent)
    assert (name in refused) == (mutated != sent)
    return asked is not None


def attack_coordinator(target: Target, data: st.DataObject) -> bool:
    path = target.path("from-a/1.fedassay")
    sent = path.read_bytes()
    mutated = data.draw(mutations(sent))
    path.write_bytes(mutated)
    try:
        replies, refused = target.coordinator()
    finally:
        path.write_bytes(sent)
    assert bool(replies) == (mutated == sent)
    assert bool(refused) == (mutated != sent)
    assert all("from-a/1.fedassay" in sentence for sentence in refused)
    return bool(replies)


@FEW
@given(data=st.data())
def test_mutated_announcements(target: Target, data: st.DataObject) -> None:
    attack_site(target, "study.fedassay", data)


@FEW
@given(data=st.data())
def test_mutated_requests(target: Target, data: st.DataObject) -> None:
    attack_site(target, "to-c/1.fedassay", data)


@FEW
@given(data=st.data())
def test_mutated_replies(target: Target, data: st.DataObject) -> None:
    attack_coordinator(target, data)


@pytest.mark.full
def test_a_hundred_thousand_files(target: Target, verify: Verify) -> None:
    tried, taken = [0], [0]

    @MANY
    @given(data=st.data())
    def attack(data: st.DataObject) -> None:
        taken[0] += attack_site(target, "study.fedassay", data)
        taken[0] += attack_site(target, "to-c/1.fedassay", data)
        taken[0] += attack_coordinator(target, data)
        tried[0] += 3

    attack()
    assert tried[0] >= 100_000
    verify(
        "File drop: mutated and random files against site and coordinator are refused by name, never a crash.",
        f"{tried[0]:,} files, {taken[0]} of them unchanged by the mutation and taken, all others refused",
    )


# --- signed by the right key, and still nonsense --------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def changed_somewhere(data: st.DataObject, content: dict[str, Any]) -> dict[str, Any]:
    """The message with one value, anywhere in it, replaced, removed or added."""
    place: Any = content
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
            continue
        if data.draw(st.integers(0, 4)) == 0:
            del place[key]
        else:
            place[key] = data.draw(VALUES)
        break
    return content


@FEW
@given(data=st.data())
def test_a_coordinator_that_signs_nonsense(target: Target, data: st.DataObject) -> None:
    """Whatever the coordinator signs, a site refuses it in words or is asked something it can judge."""
    name = data.draw(st.sampled_from(["study.fedassay", "to-c/1.fedassay"]))
    path = target.path(name)
    sent = path.read_bytes()
    outer = wire.decode(sent[_MESSAGE:])
    outer["body"] = wire.encode(changed_somewhere(data, wire.decode(outer["body"])))
    letter = Letter(**{**outer, "kind": LetterKind(outer["kind"])})
    path.write_bytes(letter.signed(target.town.identities["coordinator"]))
    code = 0
    try:
        assert isinstance(target.site(), CheckedRequest)
    except FedassayError as error:
        code = error.exit_code
    finally:
        path.write_bytes(sent)
    assert code in (0, 2, 3, 4)


@FEW
@given(data=st.data())
def test_a_site_that_signs_and_seals_nonsense(target: Target, data: st.DataObject) -> None:
    """It may reach the trust model as a reply; what is not one of ours is a dropout there, never a crash."""
    letter = Letter(
        study=target.study.announcement.study,
        sender="a",
        recipient=COORDINATOR,
        kind=LetterKind.REPLY,
        number=1,
        body=target.town.sealed("a", data.draw(st.binary(max_size=100))),
    )
    path = target.path("from-a/1.fedassay")
    sent = path.read_bytes()
    path.write_bytes(letter.signed(target.town.identities["a"]))
    try:
        replies, refused = target.coordinator()
    finally:
        path.write_bytes(sent)
    assert list(replies) == ["a"]
    assert not refused


@FEW
@given(content=st.dictionaries(st.text(max_size=8), VALUES, max_size=8))
def test_any_signed_mapping_is_a_letter_or_refused(target: Target, content: dict[str, Any]) -> None:
    identity = target.town.identities["coordinator"]
    message = wire.encode(content)
    data = b"FEDASSAY\1\0" + identity.sign("file drop 1", message) + message
    with pytest.raises(ProtocolError, match=r"^here: is signed by coordinator, but malformed"):
        open_letter(
            data,
            where="here",
            sender=COORDINATOR,
            believed={COORDINATOR: identity.public},
            recipient=EVERYONE,
            kinds=(LetterKind.ANNOUNCEMENT,),
            number=0,
            study=None,
        )


@FEW
@given(content=st.dictionaries(st.text(max_size=8), VALUES, max_size=8))
def test_any_mapping_is_an_announcement_or_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match=r"^here: the announcement is not valid"):
        Announcement.decode(wire.encode(content), where="here")
