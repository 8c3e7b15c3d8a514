"""Files in folders that others can write to: read with a limit, written once, never half."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedassay.errors import ProtocolError, UsageError
from fedassay.files import Lock, sync_folder
from fedassay.runtimes.file_drop.letters import LARGEST_FILE

SUFFIX = ".fedassay"
ANNOUNCEMENT = f"study{SUFFIX}"


def request_path(drop: Path, site: str, number: int) -> Path:
    """Where the coordinator puts letter `number` for a site."""
    return drop / f"to-{site}" / f"{number}{SUFFIX}"


def reply_path(drop: Path, site: str, number: int) -> Path:
    """Where a site puts its reply to letter `number`."""
    return drop / f"from-{site}" / f"{number}{SUFFIX}"


def latest(drop: Path, site: str) -> int | None:
    """The highest number of a letter for this site, or None if there is none. Other names are ignored."""
    try:
        names = [path.name for path in (drop / f"to-{site}").iterdir()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{drop / f'to-{site}'}: cannot be read ({error.strerror}).") from error
    stems = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    # One spelling per number: 007 or ٧ would be other files of the same number.
    return max((int(s) for s in stems if s.isascii() and s.isdigit() and str(int(s)) == s), default=None)


def read(path: Path, *, largest: int = LARGEST_FILE) -> bytes | None:
    """The bytes of a regular file of bounded size, or None if there is no such file.

    Links are not followed and devices and pipes are not waited for: a stranger may have put them there.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ProtocolError(f"{path}: is not a plain file; remove it.")
            if status.st_size > largest:
                raise ProtocolError(f"{path}: got {status.st_size:,} bytes, expected at most {largest:,}.")
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read(status.st_size)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProtocolError(f"{path}: cannot be read ({error.strerror}); expected a plain file.") from error


def put(path: Path, data: bytes, *, private: bool = False) -> bool:
    """Write a file that is complete or not there; whether it was not there before.

    The same content again is no change; other content is never overwritten: `ProtocolError`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "from-a" / "1.fedassay"
    >>> put(path, b"words"), put(path, b"words"), read(path)
    (True, False, b'words')
    """
    if _same(path, data):
        return False
    # Others may write to a drop: a name they cannot guess, never through a link that they have laid there.
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}.partial")
    try:
        path.parent.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
        if path.parent.is_symlink():
            raise ProtocolError(f"{path.parent}: is a link, expected a folder; remove it and run again.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(partial, flags, 0o600 if private else 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _move(partial, path)
    except FileExistsError:
        return not _same(path, data)  # somebody was faster
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); free it and run again.") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return True


def _same(path: Path, data: bytes) -> bool:
    there = read(path)
    if there is not None and there != data:
        raise ProtocolError(
            f"{path}: exists with other content and is not overwritten; if nobody knows why it is there, "
            "remove it and run again."
        )
    return there is not None


def _move(partial: Path, path: Path) -> None:
    """Give the file its name, without replacing another where the file system can promise that."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # USB sticks and some network folders have no links
        partial.rename(path)
    with suppress(OSError):  # some network folders cannot be flushed
        sync_folder(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the (private) folder and hold it alone: two commands at once could answer the same thing twice."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = Lock(folder / "lock")
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be used ({error.strerror}); expected a private folder."
        ) from error
    try:
        yield
    finally:
        lock.close()
