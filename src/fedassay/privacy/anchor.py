"""The head of a ledger, kept in a small file of its own: what shows that records at the end are missing."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedassay.errors import LedgerUnusable
from fedassay.files import sync_folder
from fedassay.privacy.chain import Head

_LINE = re.compile(rb"fedassay-ledger-head ([0-9]{20}) ([0-9a-f]{64})\n")
_LARGEST = 2**63 - 1
"""What databases call a whole number."""


@dataclass(frozen=True)
class Anchor:
    """A file with one line: how far the ledger went when this machine last used it, and the hash there.

    It is also the lock under which the processes of this machine use the ledger one after the other; the operating
    system frees it when a process ends, however it ends.

    The line is overwritten in place, in one write of fewer bytes than a disk's sector, after the record is safe. So a
    killed process leaves the old line or the new one, and either is fine: a ledger may be ahead of its anchor, never
    behind. The line is not forced to the disk each time (that would double what a charge costs): after a power loss it
    may be older than the ledger by what the operating system had not yet written, seconds usually.
    """

    path: Path

    @contextmanager
    def locked(self) -> Iterator[HeldAnchor]:
        """The anchor while no other process, thread or ledger object of this machine has it."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerUnusable(
                f"{self.path}: cannot be opened ({error.strerror}); check the folder."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield HeldAnchor(path=self.path, descriptor=descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class HeldAnchor:
    """An anchor that nobody else can read or write now."""

    path: Path
    descriptor: int

    def read(self) -> Head | None:
        """The head, or None if none was ever written."""
        line = os.pread(self.descriptor, 4096, 0)
        if not line:
            return None
        found = _LINE.fullmatch(line)
        if found is None or int(found[1]) > _LARGEST:
            raise LedgerUnusable(f"{self.path}: is not the head of a ledger; restore its newest good copy.")
        return Head(sequence=int(found[1]), hash=found[2].decode())

    def write(self, head: Head) -> None:
        """Overwrite the head. The first time it is forced to the disk, before there is a record."""
        first = not os.fstat(self.descriptor).st_size
        os.pwrite(
            self.descriptor, b"fedassay-ledger-head %020d %s\n" % (head.sequence, head.hash.encode()), 0
        )
        if first:
            os.fsync(self.descriptor)
            sync_folder(self.path.parent)
