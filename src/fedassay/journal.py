"""The driver's record of a run, so that a crashed run is replayed without asking, or spending, again.

Three kinds of entries, each written before what follows from it: `begun` (an exchange has its identity and
cohort), `heard` (who answered a leg), `released` (the values, with their noise). A replayed run skips what is
released, and repeats an unfinished exchange under its old identity: clients recognise it and give the same
replies, ledgers recognise it and charge nothing.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from pathlib import Path

from fedassay import wire
from fedassay.errors import ProtocolError
from fedassay.protocol import Message


class Journal(ABC):
    """An append-only list of entries."""

    @abstractmethod
    def entries(self) -> list[Message]:
        """Everything recorded so far."""

    @abstractmethod
    def append(self, entry: Message) -> None:
        """Record one more entry; when this returns it is recorded."""

    def find(self, kind: str, **key: object) -> Message | None:
        """The entry of this kind with these values, if there is one."""
        wanted = {"kind": kind, **key}
        return next(
            (entry for entry in self.entries() if all(entry.get(k) == v for k, v in wanted.items())), None
        )


class MemoryJournal(Journal):
    """Forgets with the process: for simulations, and for tests of replay."""

    def __init__(self) -> None:
        self._entries: list[Message] = []

    def entries(self) -> list[Message]:
        """Everything recorded so far."""
        return list(self._entries)

    def append(self, entry: Message) -> None:
        """Record one more entry."""
        self._entries.append(wire.decode(wire.encode(entry)))


class FileJournal(Journal):
    """One file; each entry is its length, its SHA-256, and its bytes, flushed to the disk.

    A tail that was cut by a crash is ignored; a changed byte before it is a `ProtocolError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries, sound = _read(path.read_bytes()) if path.exists() else ([], 0)
        if path.exists() and path.stat().st_size != sound:
            with path.open("r+b") as file:
                file.truncate(sound)

    def entries(self) -> list[Message]:
        """Everything recorded so far."""
        return list(self._entries)

    def append(self, entry: Message) -> None:
        """Record one more entry; it is on the disk when this returns."""
        data = wire.encode(entry)
        with self.path.open("ab") as file:
            file.write(len(data).to_bytes(8, "little") + hashlib.sha256(data).digest() + data)
            file.flush()
            os.fsync(file.fileno())
        self._entries.append(wire.decode(data))


def _read(data: bytes) -> tuple[list[Message], int]:
    entries: list[Message] = []
    at = 0
    while at + 40 <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        body = data[at + 40 : at + 40 + length]
        if len(body) < length:
            break
        if hashlib.sha256(body).digest() != data[at + 8 : at + 40]:
            raise ProtocolError(
                f"journal: entry {len(entries)} has been changed; delete the file to start over."
            )
        entries.append(wire.decode(body))
        at += 40 + length
    return entries, at
