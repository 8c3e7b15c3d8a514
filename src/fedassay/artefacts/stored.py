"""Common functions of artefact files: plain JSON from a stranger, read without executing anything."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fedassay.data.findings import shown
from fedassay.errors import UsageError
from fedassay.protocol.files import write_atomically

T = TypeVar("T")

LARGEST = 64 * 2**20
LONGEST_TEXT = 10_000

_EXPECTED = "expected a file that `fedassay calibrate --out` or `fedassay conformal --out` has written."


def read_artefact(path: str | os.PathLike[str]) -> Any:
    """Return the JSON in a file; refuse other, too large or unreadable files with one sentence (`UsageError`)."""
    where = Path(path)
    try:
        if where.stat().st_size > LARGEST:
            raise UsageError(f"{where}: got {where.stat().st_size:,} bytes, no artefact is that large.")
        return json.loads(where.read_text(encoding="utf-8"), parse_constant=no_constant)
    except OSError as error:
        raise UsageError(f"{where}: cannot be read ({error.strerror}), {_EXPECTED}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: got something that is not JSON, {_EXPECTED}") from error


@contextmanager
def errors_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the name of the file to a `UsageError`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def load_artefact(path: str | os.PathLike[str], make: Callable[[object], T]) -> T:
    """Return the result of `make` for the JSON in a file; a refusal names the file."""
    content = read_artefact(path)
    with errors_of(path):
        return make(content)


def save_artefact(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write plain values, one line for each entry; the file is complete or it is not there.

    Lists of numbers are not spread over lines, so that a map of 1,000 classes is not mostly blanks. Content
    that `read_artefact` would refuse to read is not written.
    """
    try:
        lines = [
            f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in content.items()
        ]
    except ValueError as error:
        raise UsageError(f"{path}: got NaN or an infinite number to write, expected finite ones.") from error
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if len(text) > LARGEST:  # every character is one byte: JSON escapes the others
        raise UsageError(f"{path}: the artefact has {len(text):,} bytes, expected at most {LARGEST:,}.")
    write_atomically(Path(path), text)


def no_constant(name: str) -> NoReturn:
    """Refuse constants that Python reads as numbers and JSON does not."""
    raise ValueError(f"{name} is not a number")


def entries(content: object, keys: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return a mapping with exactly these keys; refuse anything else.

    Examples
    --------
    >>> entries({"a": 1, "c": 2}, ("a", "b"), "score")
    Traceback (most recent call last):
    fedassay.errors.UsageError: the entry 'b' of score is missing or unknown.
    """
    found = named_entries(content, what)
    strange = sorted(set(found) ^ set(keys), key=str)
    if strange:
        raise UsageError(f"the entry {shown(strange[0])} of {what} is missing or unknown.")
    return found


def named_entries(content: object, what: str) -> dict[str, Any]:
    """Return a mapping with any entries; refuse anything else."""
    if not isinstance(content, dict):
        raise UsageError(f"the entry {what!r} holds {_kind(content)}, expected one with named entries.")
    return content


def number(value: object, what: str) -> float:
    """Return a finite number; refuse anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if math.isfinite(found):
            return found
    raise UsageError(f"the entry {what!r} holds {_kind(value)}, expected a finite number.")


def truth(value: object, what: str) -> bool:
    """Return a truth value; refuse anything else."""
    if not isinstance(value, bool):
        raise UsageError(f"the entry {what!r} holds {_kind(value)}, expected true or false.")
    return value


def name(value: object, what: str) -> str:
    """Return a name of a column, client or group: any text that can be written to a file."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT:
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise UsageError(f"the entry {what!r} holds {_kind(value)}, expected a name.")


def words(value: object, what: str) -> str:
    """Return a printable sentence: without line breaks or control characters, which terminals would obey."""
    if isinstance(value, str) and len(value) <= LONGEST_TEXT and value.isprintable():
        return value
    raise UsageError(f"the entry {what!r} holds {_kind(value)}, expected printable text.")


def column_names(content: object) -> dict[str, str | None]:
    """Return names of columns by role; None for a role without a column."""
    if not isinstance(content, dict):
        raise UsageError(f"the entry 'columns' holds {_kind(content)}, expected names of columns.")
    return {
        name(role, "columns"): None if column is None else name(column, "columns")
        for role, column in content.items()
    }


def privacy_terms(content: object) -> dict[str, Any] | None:
    """Return the `privacy` part of a result: sentences, numbers and truth values by name."""
    if content is None:
        return None
    if not isinstance(content, dict):
        raise UsageError(f"the entry 'privacy' holds {_kind(content)}, expected what a result says about it.")
    for key, value in content.items():
        name(key, "privacy")
        if isinstance(value, str):
            words(value, "privacy")
        elif value is not None and not isinstance(value, bool):
            number(value, "privacy")
    return content


def _kind(value: object) -> str:
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    if value is None:
        return "nothing"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return "a number that is too large"
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else repr(value)


# --- files of one folder by name ----------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class HashedFile:
    """Name of a file in the folder, its length and the SHA-256 of its bytes when they were read."""

    name: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        plain_name(self.name)
        if type(self.bytes) is not int or self.bytes < 0 or not _HASH.fullmatch(self.sha256):
            raise UsageError(
                f"the file {self.name}: got a length or a SHA-256 that is none, expected both as written."
            )

    @classmethod
    def from_json(cls, content: object) -> HashedFile:
        """Return the file of an entry of a certificate; refuse anything else with one sentence (`UsageError`)."""
        given = entries(content, ("name", "bytes", "sha256"), "files")
        number(given["bytes"], "bytes")
        return cls(
            name=words(given["name"], "name"), bytes=given["bytes"], sha256=words(given["sha256"], "sha256")
        )

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a certificate."""
        return asdict(self)


def plain_name(name: str) -> str:
    """Return the name, if it can only mean a file in the folder itself.

    Examples
    --------
    >>> plain_name("result.json")
    'result.json'
    >>> plain_name("../result.json")
    Traceback (most recent call last):
    fedassay.errors.UsageError: file name: got '../result.json', expected letters, digits, '.', '_' and '-' ...
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"file name: got {shown(name)}, expected letters, digits, '.', '_' and '-' only: files lie in the folder "
            "itself."
        )
    return name


def hashed(folder: Path, name: str) -> HashedFile:
    """Hash the file of this name as it is now. Raise `UsageError` if it is missing or not an ordinary file."""
    with _opened(folder, name) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return HashedFile(name=name, bytes=file.tell(), sha256=digest)


def content_of(folder: Path, name: str, *, largest: int) -> bytes:
    """Return the bytes of a file, at most `largest`; refuse the same files as `hashed`."""
    with _opened(folder, name) as file:
        content: bytes = file.read(largest + 1)
    if len(content) > largest:
        raise UsageError(f"{name}: got more than {largest:,} bytes, no artefact is that large.")
    return content


def _opened(folder: Path, name: str) -> Any:
    """Open the file, without following a link or waiting for a pipe."""
    path = folder / plain_name(name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UsageError(f"{name}: it is missing from {folder}.") from None
    except OSError as error:
        if path.is_symlink():
            raise UsageError(
                f"{name}: got a symbolic link, expected the file itself; links are not followed."
            ) from None
        raise UsageError(f"{name}: cannot be read ({error.strerror}).") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{name}: got something that is not a file, expected the file itself.")
    return os.fdopen(descriptor, "rb")
