"""The store of a server: a file for each exchange, on the disk before a reply leaves, and not for ever."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.errors import FederationError, UsageError
from fedassay.kernel import endpoint
from fedassay.kernel import helper as server_store
from fedassay.kernel.helper import DAYS_KEPT, ServerStore, forget_old
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import files, wire
from fedassay.protocol.vocabulary import Budget, Points, Protection, Sum
from two_server_driver import Cells, Town, UpTo, counts_of, lists, plans_of, setting, values

NOISY = Budget(epsilon=0.05)
SUM = plans_of(Sum(of=Cells()))
POINTS = plans_of(Points(of=UpTo(), at=(3, 7)), of=setting(budget=NOISY))


def town_on(store: ServerStore, plans: Any = POINTS, *, seed: int = 1, **more: Any) -> Town:
    """A town whose second server has this store."""
    town = Town(plans=plans, counts=counts_of(plans), seed=seed, **more)
    town.helpers["helper"] = town.helper("helper", SimulatedRandomness(seed), store)
    return town


def reopened(town: Town, store: ServerStore, *, seed: int = 77) -> ServerStore:
    """Another process goes on, with other random numbers."""
    store.close()
    after = ServerStore(store.folder)
    town.helpers["helper"] = town.helper("helper", SimulatedRandomness(seed), after)
    return after


def at(*places: int) -> Points[Any]:
    return Points(of=UpTo(), at=places)


def age(folder: Path, *, days: float) -> None:
    then = time.time() - days * 86_400
    for path in folder.iterdir():
        os.utime(path, (then, then))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


# --- what is on the disk ------------------------------------------------------------------------------------


def test_another_process_goes_on_after_every_message(tmp_path: Path) -> None:
    store = [ServerStore(tmp_path / "exchanges")]
    town = town_on(store[0], SUM)

    def restart(name: str, leg: int, message: Any) -> Any:
        if name == "helper" and leg:
            store[0] = reopened(town, store[0], seed=leg)
        return message

    town.to = restart
    assert values(town.go()) == lists(town.exact())
    store[0].close()


def test_noise_and_answers_stay(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    town = town_on(store)
    (before,) = town.go()
    reply = town.helpers["helper"].answer(town.asked["helper", 6])
    store = reopened(town, store)
    assert town.helpers["helper"].answer(town.asked["helper", 6]) == reply
    (after,) = town.go(at(3, 7))
    np.testing.assert_array_equal(before.value, after.value)
    store.close()


def test_only_the_exchange_that_is_asked_about_is_written_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ServerStore(tmp_path)
    towns = [town_on(store, seed=seed) for seed in (1, 2, 3)]
    for town in towns:
        town.go()
    store = reopened(towns[1], store)
    contents = {path.name: path.read_bytes() for path in tmp_path.glob("*.talk")}
    assert len(contents) == 3
    read: list[str] = []
    original = Path.read_bytes

    def note(path: Path) -> bytes:
        read.append(path.name)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", note)
    towns[1].go(at(1))
    changed = [path.name for path in tmp_path.glob("*.talk") if contents[path.name] != original(path)]
    assert changed == read == [f"{towns[1].id.hex()}.talk"]
    store.close()


def test_only_its_owner_may_read_it_and_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.0)
    folder = tmp_path / "new" / "exchanges"
    store = ServerStore(folder)
    town_on(store).go()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    with pytest.raises(UsageError, match="another process"):
        ServerStore(folder)
    store.close()
    ServerStore(folder).close()


def test_a_torn_write_is_as_if_the_message_had_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine stops as the noise is on its way to the disk: nothing has left, and what was there is whole."""
    store = ServerStore(tmp_path)
    town = town_on(store)
    town.go()
    path = tmp_path / f"{town.id.hex()}.talk"
    before = path.read_bytes()

    def torn(self: Path, target: Path) -> Path:
        self.write_bytes(self.read_bytes()[:100])
        raise OSError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", torn)
        with pytest.raises(FederationError, match="helper did not answer"):
            town.go(at(1))
    assert path.read_bytes() == before
    assert (tmp_path / f"{path.name}.partial").stat().st_size == 100
    store = reopened(town, store)
    assert names(tmp_path) == [path.name]
    talk = store.find(town.id)
    assert talk is not None
    assert talk.state["drawn"][0]["of"].tolist() == [3, 7, 12]
    town.go(at(1))
    store.close()


def test_a_damaged_file_is_refused_and_no_other(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    towns = [town_on(store, seed=seed) for seed in (1, 2)]
    for town in towns:
        town.go()
    path = tmp_path / f"{towns[0].id.hex()}.talk"
    path.write_bytes(path.read_bytes()[:-1])
    store.close()
    store = ServerStore(tmp_path)
    for town, good in zip(towns, (False, True), strict=True):
        town.helpers["helper"] = town.helper("helper", SimulatedRandomness(7), store)
        if good:
            town.go(at(1))
        else:
            with pytest.raises(FederationError, match="helper did not answer"):
                town.go(at(1))
    store.close()


def test_many_exchanges_are_more_than_a_message_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one file, the sixth of these exchanges ended all others too; the limits stand for 256 MB."""
    monkeypatch.setattr(wire, "LARGEST_MESSAGE", 1 << 16)
    store = ServerStore(tmp_path)
    plans = plans_of(
        Points(of=UpTo(), at=(3, 7)), of=setting(budget=NOISY, protection=Protection(rows_per_client=40))
    )
    towns = [town_on(store, plans, seed=seed) for seed in range(6)]
    first = [town.go()[0].value.tolist() for town in towns]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > wire.LARGEST_MESSAGE
    assert [town.go(at(3, 7))[0].value.tolist() for town in towns] == first
    store.close()


def test_a_full_store_begins_nothing_new_and_goes_on_with_the_rest(tmp_path: Path) -> None:
    store = ServerStore(tmp_path, largest=1000)
    old = town_on(store)
    old.go()
    new = town_on(store, seed=2)
    with pytest.raises(FederationError, match="helper did not answer"):
        new.go()
    assert "expected at most 1,000 before another exchange begins" in str(new.helpers["helper"].reason)
    assert names(tmp_path) == [f"{old.id.hex()}.talk"]
    old.go(at(1))
    store.close()


# --- how long -------------------------------------------------------------------------------------------------


def test_of_a_total_that_is_answered_no_keys_are_left(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    town = town_on(store, SUM)
    town.go()
    talk = wire.decode((tmp_path / f"{town.id.hex()}.talk").read_bytes())
    assert talk["state"] == {"step": "over"}
    assert names(tmp_path) == [f"{town.id.hex()}.talk"]
    store.close()


def broken_off(name: str, leg: int, message: Any) -> Any:
    return None if (name, leg) == ("helper", 6) else message


@pytest.mark.parametrize(("days", "kept"), [(DAYS_KEPT - 0.1, True), (DAYS_KEPT + 0.1, False)])
def test_keys_are_deleted_after_some_days(tmp_path: Path, days: float, kept: bool) -> None:
    """Those that could be asked again, and those of an exchange that was broken off; what it was marked for stays."""
    store = ServerStore(tmp_path)
    asked, broken = town_on(store), town_on(store, SUM, seed=2, to=broken_off)
    asked.go()
    with pytest.raises(FederationError):
        broken.go()
    store.close()
    age(tmp_path, days=days)
    store = ServerStore(tmp_path)
    talks = [f"{town.id.hex()}.talk" for town in (asked, broken)]
    assert names(tmp_path) == sorted([*(talks if kept else []), f"{broken.id.hex()}.doubt"])
    asked.helpers["helper"] = asked.helper("helper", SimulatedRandomness(7), store)
    if kept:
        asked.go(at(1))
    else:
        with pytest.raises(FederationError, match="helper did not answer"):
            asked.go(at(1))
    store.close()


def test_stores_that_nobody_opens_can_be_cleared_too(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    town_on(store).go()
    (tmp_path / "half.talk.partial").write_bytes(b"")
    forget_old(tmp_path)
    assert len(names(tmp_path)) == 2
    age(tmp_path, days=DAYS_KEPT + 1)
    forget_old(tmp_path)
    assert names(tmp_path) == []
    store.close()


# --- marks ------------------------------------------------------------------------------------------------------


def test_an_exchange_is_marked_while_it_is_in_doubt(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    marks: list[int] = []

    def look(name: str, leg: int, reply: Any) -> Any:
        if name == "helper":
            marks.append(len(store.doubts()))
        return reply

    town_on(store, SUM, back=look).go()
    assert marks == [0, 0, 0, 1, 0]
    store.close()


def test_a_mark_that_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    """A client was left out, somebody has asked why, and more points are asked for."""
    store = ServerStore(tmp_path)
    town = town_on(store)
    town.plans, town.counts = POINTS, counts_of(POINTS)

    def spoil(name: str, leg: int, message: Any) -> Any:
        if (name, leg) == ("coordinator", 3):
            helper = town.helpers["coordinator"].store.conversations[town.id]
            helper.state["halves"][0][0, 0] ^= np.uint64(1)
        return message

    town.to = spoil
    assert town.go()[0].clients == 3
    assert store.doubts() == ["1 clients did not pass the check"]
    (mark,) = tmp_path.glob(f"*{server_store.MARK}")
    mark.unlink()
    for _ in range(2):
        town.go(at(1))
        store = reopened(town, store)
    assert store.doubts() == []
    store.close()


def test_a_crash_leaves_a_mark_too_many_and_never_one_too_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the last write was that came through."""
    original = endpoint.write_durably
    for survives in range(8):
        folder = tmp_path / str(survives)
        store = ServerStore(folder)
        left = [survives]

        def write(path: Path, data: bytes, left: list[int] = left) -> None:
            if not left[0]:
                raise OSError("the power is gone")
            left[0] -= 1
            original(path, data)

        with monkeypatch.context() as patched:
            patched.setattr(server_store, "write_durably", write)
            town = town_on(store, SUM)
            try:
                town.go()
            except FederationError:
                pass
        store.close()
        talk = ServerStore(folder).find(town.id)
        doubted = talk is not None and "doubt" in talk.state
        assert len(list(folder.glob("*.doubt"))) >= doubted
    assert not list(folder.glob("*.doubt"))
