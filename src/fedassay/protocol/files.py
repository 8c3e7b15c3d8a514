"""Files that must be right after a crash: one owner at a time, and on the disk once it is said."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fedassay.errors import UsageError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a write without room: on the disk, in a quota, or in a file."""

_FIXES: Mapping[int | None, str] = {
    errno.ENOENT: "give a folder that exists",
    errno.EISDIR: "give a file",
}

PATIENCE = 10.0
"""Seconds to wait for another process to let go of a lock."""


class Lock:
    """An exclusive lock on a file (made if need be), held until `close` or until this object is gone.

    Another process, or another `Lock` in this one, waits a few seconds and then gets a `UsageError`. The lock
    of a process that dies is free at once.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unwritable(path, error) from error
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
        """Release the lock."""
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


def unwritable(path: Path | str, error: OSError) -> UsageError:
    """The error to raise for a file that cannot be written, with what to do about it.

    Examples
    --------
    >>> print(unwritable(Path("out.json"), OSError(errno.ENOSPC, "No space left on device")))
    out.json: cannot be written (No space left on device); make room and run it again.
    """
    fix = (
        "make room and run it again" if error.errno in FULL else _FIXES.get(error.errno, "give another place")
    )
    return UsageError(f"{path}: cannot be written ({error.strerror or error}); {fix}.")


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Name a file to write, which takes the place of `path` when the block ends without an error.

    Guarantee: only content is replaced, never what a name stands for. Behind a symbolic link it is the file that the
    link leads to. A device or a pipe is written to directly. A plain file is never seen half written, and after an
    error it is as it was before.

    Raises
    ------
    UsageError
        In place of any `OSError`.
    """
    partial: Path | None = None
    try:
        if _is_plain(path):
            target = Path(os.path.realpath(path))
            partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
            yield partial
            partial.replace(target)
        else:
            yield path
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()


def _is_plain(path: Path) -> bool:
    """True if a path leads to a plain file, or to nothing yet."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True


def write_atomically(path: Path, text: str) -> None:
    """Write a text file as `replacement` does."""
    with replacement(path) as partial:
        partial.write_text(text, encoding="utf-8")
