"""Files of one folder by name, size and hash; nothing outside of it is ever opened."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedassay.artefacts.stored import entries, number, words
from fedassay.data.findings import shown
from fedassay.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HASH = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class HashedFile:
    """What a file was: its name in the folder, its length and the SHA-256 of its bytes."""

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
        """What a certificate says of a file; anything else is refused with one sentence (`UsageError`)."""
        given = entries(content, ("name", "bytes", "sha256"), "files")
        number(given["bytes"], "bytes")
        return cls(
            name=words(given["name"], "name"), bytes=given["bytes"], sha256=words(given["sha256"], "sha256")
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in a certificate."""
        return asdict(self)


def plain_name(name: str) -> str:
    """The name, if it can only mean a file in the folder itself.

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
    """The file of this name as it is now. Raises `UsageError` if there is none, or it is not an ordinary file."""
    with _opened(folder, name) as file:
        digest, length = hashlib.sha256(), 0
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            length += len(chunk)
    return HashedFile(name=name, bytes=length, sha256=digest.hexdigest())


def content_of(folder: Path, name: str, *, largest: int) -> bytes:
    """The bytes of a file, of at most `largest`; the same refusals as `hashed`."""
    with _opened(folder, name) as file:
        content: bytes = file.read(largest + 1)
    if len(content) > largest:
        raise UsageError(f"{name}: got more than {largest:,} bytes, no artefact is that large.")
    return content


def _opened(folder: Path, name: str) -> Any:
    """The file, opened so that a link is not followed and a pipe does not keep us waiting."""
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
