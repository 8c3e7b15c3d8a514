"""The driver's record of a run, so that a crashed run is replayed without asking, or spending, again.

Four kinds of entries, each written before what follows from it: `begun` (an exchange has its identity and
cohort), `continued` (it goes on with more points), `heard` (who answered a leg), `released` (the values, with their
noise). A replayed run skips what is
released, and repeats an unfinished exchange under its old identity: clients recognise it and give the same
replies, ledgers recognise it and charge nothing.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedassay.errors import ProtocolError
from fedassay.protocol import wire
from fedassay.protocol.files import Lock, sync_folder, unwritable
from fedassay.protocol.vocabulary import Message

EXCHANGED = ("begun", "continued", "heard", "released")
"""Kinds of entries that the driver writes; the keeper of the journal may add entries of other kinds."""


class Journal(ABC):
    """An append-only list of entries; those of one exchange are found by their key without a search through all."""

    def __init__(self, entries: Iterable[Message] = ()) -> None:
        self._entries: list[Message] = []
        self._places: dict[object, list[Message]] = {}
        for entry in entries:
            self._keep(entry)

    def _keep(self, entry: Message) -> None:
        self._entries.append(entry)
        self._places.setdefault(entry.get("key"), []).append(entry)

    def entries(self, *kinds: str) -> list[Message]:
        """Return everything recorded so far, or the entries of these kinds."""
        return [entry for entry in self._entries if not kinds or entry["kind"] in kinds]

    @abstractmethod
    def append(self, entry: Message) -> None:
        """Record one more entry; when this returns it is recorded."""

    def find(self, kind: str, **key: object) -> Message | None:
        """Return the entry of this kind with these values, if there is one."""
        wanted = {"kind": kind, **key}
        among = self._places.get(key["key"], []) if "key" in key else self._entries
        return next((entry for entry in among if all(entry.get(k) == v for k, v in wanted.items())), None)

    def exchanged(self) -> list[Message]:
        """Return what was recorded about exchanges; nothing if no client was asked yet."""
        return self.entries(*EXCHANGED)

    def openings(self) -> list[Message]:
        """Return who opened each total, where members had to (`Released.opening`): one for each exchange, in order."""
        openings = (entry["values"][0]["opening"] for entry in self.entries("released"))
        return [opening for opening in openings if opening is not None]

    def answered(self, clients: int) -> int:
        """Return how many of `clients` clients were never missing when they were asked; 0 if none was asked.

        Clients that were not drawn for a cohort are not missing. Where all were asked, only that counts.
        """
        drawn = {entry["key"]: len(entry["cohort"]) for entry in self.entries("begun") if entry["drawn"]}
        released = self.entries("released")
        heard = [
            (drawn.get(entry["key"]), int(one["clients"])) for entry in released for one in entry["values"]
        ]
        every = [answered for asked, answered in heard if asked is None]
        lost = [asked - answered for asked, answered in heard if asked is not None]
        return min(every) if every else clients - max(lost) if lost else 0


class MemoryJournal(Journal):
    """Journal that is forgotten with the process: for simulations, and for tests of replay."""

    def append(self, entry: Message) -> None:
        """Record one more entry."""
        self._keep(wire.decode(wire.encode(entry)))


class FileJournal(Journal):
    """Journal in one file, flushed to the disk at each entry; one process at a time.

    An entry is its length (8 bytes), a check of all that came before and of the length (32 bytes), a check of
    the bytes (32 bytes), and the bytes. A tail that was cut by a crash is ignored; any changed byte
    before it is a `ProtocolError`: taking a change for a cut would ask again, and draw new noise, for free.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock(lock_of(path))
        known, sound, self._last = _read(path.read_bytes() if path.exists() else b"")
        super().__init__(known)
        if path.exists() and path.stat().st_size != sound:
            with path.open("r+b") as file:
                file.truncate(sound)

    def close(self) -> None:
        """Let another process go on."""
        self._lock.close()

    def append(self, entry: Message) -> None:
        """Record one more entry; it is on the disk when this returns.

        Raises
        ------
        UsageError
            If the disk is full, for instance. Nothing of the entry is left then, and the next one can follow.
        """
        data = wire.encode(entry)
        length = len(data).to_bytes(8, "little")
        last = hashlib.sha256(data).digest()
        before = self.path.stat().st_size if self.path.exists() else 0
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(length + hashlib.sha256(self._last + length).digest() + last + data)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, before)
            raise unwritable(self.path, error) from error
        self._last = last
        self._keep(wire.decode(data))


def lock_of(path: Path) -> Path:
    """Return the file whose lock shows that this journal is in use."""
    return path.with_name(path.name + ".lock")


_HEAD = 8 + 32 + 32


def _read(data: bytes) -> tuple[list[Message], int, bytes]:
    """Return the entries, where they end, and the check of the last one."""
    entries: list[Message] = []
    at, last = 0, bytes(32)
    while at + _HEAD <= len(data):
        length, head, check = data[at : at + 8], data[at + 8 : at + 40], data[at + 40 : at + 72]
        body = data[at + _HEAD : at + _HEAD + int.from_bytes(length, "little")]
        if hashlib.sha256(last + length).digest() != head:
            raise _changed(len(entries))
        if len(body) < int.from_bytes(length, "little"):
            break
        if hashlib.sha256(body).digest() != check:
            raise _changed(len(entries))
        entries.append(wire.decode(body))
        at, last = at + _HEAD + len(body), check
    return entries, at, last


def _changed(entry: int) -> ProtocolError:
    return ProtocolError(f"journal: entry {entry} has been changed; delete the file to start over.")
