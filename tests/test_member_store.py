"""What a member remembers: prekeys for one answer each, whatever processes and copies there are."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fedassay.crypto.identity import Credentials
from fedassay.crypto.prekeys import DAY, DAYS_APART, DAYS_NAMED, DAYS_VALID, Prekey
from fedassay.errors import PolicyRefusal, ProtocolError, UsageError
from fedassay.kernel.member_store import DAYS_REPRINTED, MemberStore
from secure_sum_driver import Seeded, credentials_of, identity_of

MEMBER = "a"


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> MemberStore:
    return MemberStore(tmp_path / "a.prekeys", clock=clock)


def own() -> Credentials:
    return credentials_of(MEMBER, ["a", "b"])


def issued(store: MemberStore, coordinator: str = "key of c", seed: object = 0) -> Prekey:
    return store.issue(1, coordinator=coordinator, credentials=own(), randomness=Seeded(seed))[0]


def answered(store: MemberStore, prekey: Prekey, **changes: object) -> bytes:
    given = {
        "session": b"s" * 32,
        "digest": b"d" * 32,
        "public": prekey.public,
        "opened": ("rows", frozenset({"a", "b", "c"})),
        "rule": lambda earlier: None,
    }
    return store.answer(b"reply", **{**given, **changes})  # type: ignore[arg-type]


def test_a_statement_is_believed_from_its_member_for_its_coordinator_only(store: MemberStore):
    prekey = issued(store)
    assert Prekey.unpacked(prekey.packed()) == prekey
    believed = credentials_of("b", ["a", "b"])
    assert prekey.is_of("a", coordinator="key of c", credentials=believed)
    assert not prekey.is_of("a", coordinator="another", credentials=believed)
    assert not prekey.is_of("b", coordinator="key of c", credentials=believed)
    for change in (
        {"expires": prekey.expires + 1},
        {"issued": 5},
        {"for_any": True},
        {"public": bytes(31) + b"\x01"},
    ):
        assert not replace(prekey, **change).is_of("a", coordinator="key of c", credentials=believed)
    for malformed in (None, b"", prekey.packed() + b"x", b"\x02" + prekey.packed()[1:]):
        with pytest.raises(ProtocolError, match="prekey"):
            Prekey.unpacked(malformed)


def test_a_card_is_for_all_coordinators_and_given_again_while_it_lasts(store: MemberStore, clock: Clock):
    card = store.card(own(), Seeded(1))
    believed = credentials_of("b", ["a", "b"])
    assert card.is_of("a", coordinator="whatever", credentials=believed)
    assert Prekey.from_text(card.to_text(), whose="a") == card
    assert store.card(own(), Seeded(2)) == card
    clock.now += (DAYS_REPRINTED + 1) * DAY
    assert store.card(own(), Seeded(3)) != card
    assert store.pair(card.public) is not None  # the old one is valid until it expires
    with pytest.raises(UsageError, match="card of a"):
        Prekey.from_text("AAAA", whose="a")


def test_an_answer_deletes_a_one_time_key_and_leaves_a_card(store: MemberStore):
    prekey, card = issued(store), store.card(own(), Seeded(1))
    pair = store.pair(prekey.public)
    assert pair is not None
    assert answered(store, prekey) == b"reply"
    assert store.pair(prekey.public) is None
    assert answered(store, card, session=b"t" * 32) == b"reply"
    assert store.pair(card.public) is not None
    assert store.path is not None
    files = [store.path, *store.path.parent.glob("a.prekeys-*")]
    assert not any(
        pair.private.data in file.read_bytes() for file in files
    )  # written over, not only unlinked


def test_a_session_is_answered_once(store: MemberStore):
    prekey = issued(store)
    answered(store, prekey)
    assert store.answered(b"s" * 32, b"d" * 32) == b"reply"
    assert answered(store, prekey) == b"reply"  # the same bytes again, without the key
    for later in (
        lambda: store.answered(b"s" * 32, b"e" * 32),
        lambda: answered(store, prekey, digest=b"e" * 32),
    ):
        with pytest.raises(ProtocolError, match="another set"):
            later()
    with pytest.raises(ProtocolError, match="used or has expired"):
        answered(store, prekey, session=b"t" * 32)


def test_a_refused_set_changes_nothing(store: MemberStore):
    prekey = issued(store)

    def refuse(earlier: object) -> None:
        raise PolicyRefusal("no")

    with pytest.raises(PolicyRefusal):
        answered(store, prekey, rule=refuse)
    assert store.sets("rows") == ()
    assert store.pair(prekey.public) is not None
    seen: list[object] = []
    answered(store, prekey, rule=seen.append)
    answered(store, issued(store, seed=2), session=b"t" * 32, rule=seen.append)
    assert seen == [(), (frozenset({"a", "b", "c"}),)]


def test_noisy_totals_leave_no_set(store: MemberStore):
    answered(store, issued(store), opened=None)
    assert store.sets("rows") == ()


def test_a_coordinator_that_asks_for_ever_fills_no_disk(store: MemberStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fedassay.kernel.member_store.MOST_KEPT", 3)
    card, other = store.card(own(), Seeded(1)), issued(store, "another", seed=2)
    asked = [issued(store, seed=("many", i)) for i in range(5)]
    assert [store.pair(prekey.public) is not None for prekey in asked] == [False, False, True, True, True]
    assert store.pair(card.public) is not None
    assert store.pair(other.public) is not None


def test_keys_that_expire_are_gone(store: MemberStore, clock: Clock):
    prekey = issued(store)
    clock.now += DAYS_VALID * DAY + 1
    assert store.pair(prekey.public) is None
    with pytest.raises(ProtocolError, match="expired"):
        answered(store, prekey)


def test_others_prekeys_must_be_fresh(store: MemberStore, clock: Clock):
    def prekey(issued: float, expires: float) -> Prekey:
        return Prekey(
            public=bytes(32), issued=int(issued), expires=int(expires), for_any=False, signature=bytes(64)
        )

    now = clock.now
    until = int(now + DAY)
    good = prekey(now - 10 * DAY, now + 80 * DAY)
    store.require_fresh([("b", good)], coordinator="c", until=until)
    for wrong, words in (
        (prekey(now, now + DAY / 2), "not valid until"),
        (prekey(now + 2 * DAY, now + 80 * DAY), "not valid until"),
        (prekey(now - (11 + DAYS_APART) * DAY, now + DAY), "much older"),
    ):
        with pytest.raises(ProtocolError, match=words):
            store.require_fresh([("b", wrong)], coordinator="c", until=until)
    store.require_fresh([("b", prekey(now - 45 * DAY, now + DAY))], coordinator="another", until=until)
    with pytest.raises(ProtocolError, match="deadline"):
        store.require_fresh([("b", good)], coordinator="c", until=int(now) - 1)


def test_what_an_honest_coordinator_names_is_never_refused_as_too_old(
    store: MemberStore, clock: Clock
) -> None:
    """Also beside the newest that a member could have issued, by a clock that is an hour ahead."""
    until = clock.now + 60 * DAY
    old = issued(store)
    for days in (0, DAYS_NAMED - 0.1, DAYS_NAMED + 0.1):
        now = clock.now + days * DAY
        assert old.may_be_named(now=now, until=until) == (days < DAYS_NAMED)
    newest = replace(old, issued=int(clock.now + (DAYS_NAMED - 0.1) * DAY + 3_600))
    assert newest.may_be_named(now=clock.now + (DAYS_NAMED - 0.1) * DAY, until=until)
    clock.now += (DAYS_NAMED - 0.1) * DAY
    for prekey in (newest, old):
        store.require_fresh([("a", prekey)], coordinator="key of c", until=int(until))
    for wrong in (
        {"issued": int(clock.now + 7_200)},
        {"expires": int(until) - 1},
        {"public": bytes(32)},
        {"public": old.public[:31] + bytes([old.public[31] | 0x80])},  # the same point in other bytes
    ):
        assert not replace(old, **wrong).may_be_named(now=clock.now, until=until)


def test_two_processes_of_one_site_answer_once(store: MemberStore, clock: Clock):
    """Both have computed their answers, to different sets, before either has recorded one."""
    prekey, outcomes = issued(store), list[object]()
    barrier = threading.Barrier(2)

    def process(digest: bytes) -> None:
        mine = MemberStore(store.path, clock=clock)
        assert mine.pair(prekey.public) is not None
        barrier.wait()
        try:
            outcomes.append(answered(mine, prekey, digest=digest))
        except ProtocolError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=process, args=(bytes([n]) * 32,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(map(type, outcomes), key=str) == [bytes, str]
    assert any("another set" in str(one) for one in outcomes)


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_folder_that_is_put_back_is_void(clock: Clock, tmp_path: Path, keep_times: bool):
    """The copy holds keys that the original has answered with; with them it would answer for another set."""
    place, copy = tmp_path / "keys", shutil.copy2 if keep_times else shutil.copy
    place.mkdir()
    store = MemberStore(place / "a.prekeys", clock=clock)
    prekey = issued(store)
    shutil.copytree(place, tmp_path / "backup", copy_function=copy)
    answered(store, prekey)
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "backup", place, copy_function=copy)
    restored = MemberStore(place / "a.prekeys", clock=clock)
    assert restored.pair(prekey.public) is None
    with pytest.raises(ProtocolError, match="used or has expired"):
        answered(restored, prekey, digest=b"e" * 32)
    assert restored.pair(issued(restored, seed=9).public) is not None  # new ones are as good as ever


def test_a_file_that_is_copied_over_the_one_in_use_is_void(store: MemberStore, clock: Clock) -> None:
    """The file stays the same one, as far as names and inodes go; what it has answered since is not in it."""
    prekey, other = issued(store), issued(store, seed=2)
    assert store.path is not None
    old = store.path.read_bytes()
    answered(store, prekey)
    store.path.write_bytes(old)  # as `cp backup a.prekeys` does
    restored = MemberStore(store.path, clock=clock)
    assert restored.pair(prekey.public) is None
    assert restored.pair(other.public) is None
    with pytest.raises(ProtocolError, match="used or has expired"):
        answered(restored, prekey, digest=b"e" * 32)
    fresh = issued(restored, seed=9)
    assert answered(restored, fresh, session=b"u" * 32) == b"reply"
    assert MemberStore(store.path, clock=clock).answered(b"u" * 32, b"d" * 32) == b"reply"


def test_a_crash_between_the_answer_and_its_count_voids_nothing(store: MemberStore, clock: Clock) -> None:
    prekey, other = issued(store), issued(store, seed=2)
    answered(store, prekey)
    assert store.path is not None
    count = store.path.with_name("a.prekeys-count")
    assert count.read_text() == "1"
    for before in ("0", None):
        if before is None:
            count.unlink()
        else:
            count.write_text(before)
        again = MemberStore(store.path, clock=clock)
        assert again.answered(b"s" * 32, b"d" * 32) == b"reply"
        assert again.pair(other.public) is not None
        assert count.read_text() == "1"
    count.write_text("no number")
    with pytest.raises(PolicyRefusal, match="cannot be used"):
        store.pair(other.public)


def test_a_rehearsal_leaves_the_file_alone(store: MemberStore):
    prekey = issued(store)
    copy = store.copied()
    answered(copy, prekey)
    assert copy.pair(prekey.public) is None
    assert store.pair(prekey.public) is not None
    assert store.sets("rows") == ()


def test_a_file_that_cannot_be_used_is_a_refusal(tmp_path: Path, clock: Clock):
    path = tmp_path / "a.prekeys"
    path.write_bytes(b"no database at all, and longer than a page's header needs to be" * 20)
    with pytest.raises(PolicyRefusal, match="cannot be used"):
        MemberStore(path, clock=clock).pair(bytes(32))


def test_the_file_is_its_owners_alone(store: MemberStore):
    issued(store)
    assert store.path is not None
    assert store.path.stat().st_mode & 0o077 == 0
    with sqlite3.connect(store.path) as database:
        assert database.execute("SELECT count(*) FROM keys").fetchone() == (1,)


def test_secrets_are_not_printed(store: MemberStore):
    prekey = issued(store)
    pair = store.pair(prekey.public)
    assert pair is not None
    assert pair.private.data.hex() not in repr((store, prekey, pair, identity_of("a")))
