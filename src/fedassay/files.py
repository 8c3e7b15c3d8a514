"""Files that must be right after a crash: one owner at a time, and on the disk when we say so."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from fedassay.errors import UsageError

PATIENCE = 10.0
"""Seconds to wait for another process to let go of a lock."""


class Lock:
    """An exclusive lock on a file (made if need be), held until `close` or until nobody holds this object.

    Another process, or another `Lock` in this one, waits a few seconds and then gets a `UsageError`. The lock
    of a process that dies is free at once.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); give a folder that can."
            ) from error
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                self.close()
                raise UsageError(f"{path}: another process is using it; wait until it has ended.") from None
            return

    def close(self) -> None:
        """Let somebody else have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.close()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder (after a rename or a new file) survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file through a neighbour and a rename, so that no half-written file is ever seen."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); give a folder that exists."
        ) from error
