"""The signed file: a wire message, its sender and recipient, and a signature that is checked before parsing.

::

    8 bytes    "FEDASSAY"
    2 bytes    version of the format, little-endian (1)
    64 bytes   Ed25519 signature over the rest, with its purpose (`Identity.sign`)
    the rest   wire message {study, sender, recipient, kind, number, body}

No bytes are parsed before the signature of their expected sender has been found good.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from fedassay.crypto.identity import Identity, verifies
from fedassay.errors import ProtocolError, UsageError
from fedassay.protocol import wire
from fedassay.protocol.files import Lock, sync_folder

MAGIC = b"FEDASSAY"
VERSION = 1
PURPOSE = "file drop 1"
"""Purpose of the signature: a signature on anything else is worth nothing here, and the other way round."""

_SIGNATURE = len(MAGIC) + 2
_MESSAGE = _SIGNATURE + 64
LARGEST_FILE = _MESSAGE + wire.LARGEST_MESSAGE

EVERYONE = "*"
"""Recipient of an announcement; no party can have this name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class LetterKind(StrEnum):
    """Kind of a letter."""

    ANNOUNCEMENT = "announcement"
    REQUEST = "request"
    REPLY = "reply"
    OVER = "over"


@dataclass(frozen=True, kw_only=True)
class Letter:
    """Content of a signed file. `number` counts the passes of a study from 1; an announcement has 0.

    Examples
    --------
    >>> from fedassay.privacy.randomness import SecureRandomness
    >>> me = Identity.draw(SecureRandomness())
    >>> letter = Letter(study="demo-1", sender="a", recipient="b", kind=LetterKind.REPLY, number=1, body=b"hi")
    >>> data = letter.signed(me)
    >>> place = {"where": "from-a/1", "sender": "a", "believed": {"a": me.public}, "recipient": "b",
    ...          "kinds": (LetterKind.REPLY,), "study": "demo-1"}
    >>> open_letter(data, number=1, **place).body
    b'hi'
    >>> open_letter(data, number=2, **place)
    Traceback (most recent call last):
    fedassay.errors.ProtocolError: from-a/1: its number is 1, expected 2; it belongs to another pass and is refused.
    """

    study: str
    sender: str
    recipient: str
    kind: LetterKind
    number: int
    body: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.number < 2**32:
            raise ProtocolError(f"letter: got number {self.number}, expected one from 0 to 2^32 - 1.")

    def signed(self, identity: Identity) -> bytes:
        """Return the file: always the same bytes for the same letter and identity."""
        message = wire.encode({**asdict(self), "kind": str(self.kind)})
        return MAGIC + VERSION.to_bytes(2, "little") + identity.sign(PURPOSE, message) + message


def check_name(name: str, *, what: str) -> str:
    """Return the name, if it can be part of a path on every system; `UsageError` otherwise.

    Examples
    --------
    >>> check_name("hospital-a", what="site")
    'hospital-a'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{what}: got {name!r}, expected up to 64 letters (a to z), digits, dots, - and _, beginning with a "
            "letter or a digit."
        )
    return name


def open_letter(
    data: bytes,
    *,
    where: str,
    sender: str,
    believed: Mapping[str, bytes],
    recipient: str,
    kinds: tuple[LetterKind, ...],
    number: int,
    study: str | None,
) -> Letter:
    """Open the letter in a file, if it is exactly the one that belongs there; `ProtocolError` otherwise.

    Parameters
    ----------
    where : the file's name, for the sentence that refuses it.
    believed : public keys by name; the one of `sender` must have signed.
    study : None accepts any, which only the first look at an announcement does.
    """
    message = _checked(data, where=where, sender=sender, believed=believed)
    try:
        content = wire.decode(message)
        wanted = {"study": str, "sender": str, "recipient": str, "kind": str, "number": int, "body": bytes}
        if {key: type(value) for key, value in content.items()} != wanted:
            raise ProtocolError("its fields are not those of a letter.")
        letter = Letter(**{**content, "kind": LetterKind(content["kind"])})
    except (ProtocolError, ValueError) as error:
        raise ProtocolError(f"{where}: is signed by {sender}, but malformed ({error})") from error
    expected = {"study": study, "sender": sender, "recipient": recipient, "number": number}
    for name, value in expected.items():
        if value is not None and getattr(letter, name) != value:
            raise ProtocolError(
                f"{where}: its {name} is {getattr(letter, name)!r}, expected {value!r}; "
                f"{_LIKELY.get(name, 'put the right file there')}."
            )
    if letter.kind not in kinds:
        raise ProtocolError(f"{where}: got a letter of kind {letter.kind}, expected {' or '.join(kinds)}.")
    return letter


_LIKELY = {
    "study": "it belongs to another study and is refused",
    "recipient": "it is meant for another recipient and is refused",
    "number": "it belongs to another pass and is refused",
}


def _checked(data: bytes, *, where: str, sender: str, believed: Mapping[str, bytes]) -> bytes:
    """Return the signed bytes, after the signature."""
    if len(data) > LARGEST_FILE:
        raise ProtocolError(f"{where}: got {len(data):,} bytes, expected at most {LARGEST_FILE:,}.")
    if data[: len(MAGIC)] != MAGIC:
        raise ProtocolError(f"{where}: is not a file of fedassay; remove it or copy the right one again.")
    version = int.from_bytes(data[len(MAGIC) : _SIGNATURE], "little")
    if len(data) >= _SIGNATURE and version != VERSION:
        raise ProtocolError(
            f"{where}: got format version {version}, expected {VERSION}; both sides need the same fedassay."
        )
    signature, message = data[_SIGNATURE:_MESSAGE], data[_MESSAGE:]
    if not message:
        raise ProtocolError(f"{where}: is cut short ({len(data)} bytes); copy it again.")
    if sender not in believed:
        raise ProtocolError(f"{where}: there is no public key of {sender} in the roster; add it first.")
    if not verifies(believed[sender], PURPOSE, message, signature):
        # Only for a better message: another signature is refused in any case.
        other = next((n for n, key in believed.items() if verifies(key, PURPOSE, message, signature)), None)
        if other is not None:
            raise ProtocolError(f"{where}: is signed by {other}, expected {sender}; it is refused.")
        raise ProtocolError(
            f"{where}: was changed or cut after {sender} signed it, or signed with a key that is not in the "
            f"roster; it is refused. Copy it again, or compare the fingerprint of {sender}'s key."
        )
    return message


# --- files in folders that others can write to --------------------------------------------------------------

SUFFIX = ".fedassay"
ANNOUNCEMENT = f"study{SUFFIX}"


def request_path(drop: Path, site: str, number: int) -> Path:
    """Return the path at which the coordinator puts letter `number` for a site."""
    return drop / f"to-{site}" / f"{number}{SUFFIX}"


def reply_path(drop: Path, site: str, number: int) -> Path:
    """Return the path at which a site puts its reply to letter `number`."""
    return drop / f"from-{site}" / f"{number}{SUFFIX}"


def latest(drop: Path, site: str) -> int | None:
    """Return the highest number of a letter for this site, or None if there is none. Other names are ignored."""
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
    """Read the bytes of a regular file of bounded size, or None if there is no such file.

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
        return not _same(path, data)  # another process was faster
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
            f"{path}: exists with other content and is not overwritten; if it is not known why it is there, "
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
    with closing(lock):
        yield
