"""Records that cannot be changed, removed or swapped unseen: each one carries the hash of the one before.

The hash of a record is SHA-256 over a fixed line, the hash of the record before and the record's own text, which is
JSON in one canonical form (sorted keys, ASCII, no spaces) and holds the sequence number. So the last hash, the *head*,
stands for everything before it: a party that keeps it elsewhere can check later that nothing of that was touched.

A chain alone does not show that records at its end are missing, or that all of it was computed anew. For that the
head is kept apart (`anchor`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fedassay.errors import LedgerUnusable, UnsupportedQuery, UsageError
from fedassay.privacy.ledger.charges import Charge
from fedassay.protocol.files import sync_folder
from fedassay.protocol.vocabulary import Neighbours, Part, Unit

CHARGE = "charge"
"""The kind of a record, of which there is one so far."""

_LINE = b"fedassay ledger record 1\n"
_LONGEST_ID = 500
"""Characters of an id as it is looked up; PostgreSQL's indexes hold 2,700 bytes."""

_NUMBERS = tuple(field.name for field in fields(Charge) if field.type == "float")
_RESTORE = "nothing is released from it until its newest good copy is restored"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


@dataclass(frozen=True, kw_only=True)
class Head:
    """Length of a chain, and the hash at its end."""

    sequence: int = 0
    hash: str = "0" * 64


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record as the database holds it. `content` is the hashed text; `kind` and `id` only help to find it."""

    sequence: int
    kind: str
    id: str | None
    content: str
    previous: str
    hash: str

    @property
    def head(self) -> Head:
        """The head of a chain that ends here."""
        return Head(sequence=self.sequence, hash=self.hash)

    @property
    def time(self) -> str:
        """Time of writing: UTC, ISO 8601, by the clock of the writer. Nothing depends on it."""
        return str(self.parsed["time"])

    @property
    def body(self) -> dict[str, Any]:
        """Content of the record, as it was recorded."""
        body: dict[str, Any] = self.parsed["body"]
        return body

    @cached_property
    def parsed(self) -> dict[str, Any]:
        """The content, read once; a `ValueError` if it is not JSON, or has numbers that JSON has not."""
        content: dict[str, Any] = _JSON.decode(self.content)
        return content


def record_after(head: Head, *, kind: str, id: str | None, body: Mapping[str, Any], time: str) -> Record:  # noqa: A002
    """Return the record that follows this head.

    Examples
    --------
    >>> first = record_after(Head(), kind="charge", id="1", body={"scale": 2.0}, time="2026-01-01T00:00:00Z")
    >>> first.sequence, first.previous == Head().hash, first.hash == digest(first.previous, first.content)
    (1, True, True)
    """
    sequence = head.sequence + 1
    content = canonical({"sequence": sequence, "time": time, "kind": kind, "id": id, "body": dict(body)})
    return Record(
        sequence=sequence,
        kind=kind,
        id=id,
        content=content,
        previous=head.hash,
        hash=digest(head.hash, content),
    )


def canonical(value: Any) -> str:
    r"""Return the one JSON text of this value: sorted keys, no spaces, ASCII only, no number that is not finite.

    Examples
    --------
    >>> canonical({"b": 0.1, "a": "µ"})
    '{"a":"\\u00b5","b":0.1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(previous: str, content: str) -> str:
    """Return the hash of a record; `previous` has a fixed length, so that no two pairs give the same bytes."""
    # Not ASCII is not ours: it gets a hash too, which then is not the recorded one.
    text = f"{previous}\n{content}".encode("utf-8", "backslashreplace")
    return hashlib.sha256(_LINE + text).hexdigest()


def follow(head: Head, records: Iterable[Record], *, label: str) -> Iterator[Record]:
    """Yield the records, each checked against the one before; the first one must follow this head.

    Raises
    ------
    LedgerUnusable
        Names the first record that is missing, was changed, or stands in another's place.
    """
    for record in records:
        if record.sequence != head.sequence + 1:
            raise LedgerUnusable(f"{label}: record {head.sequence + 1} is missing; {_RESTORE}.")
        if not intact(record) or record.previous != head.hash:
            raise LedgerUnusable(f"{label}: record {record.sequence} was changed; {_RESTORE}.")
        yield record
        head = record.head


def intact(record: Record) -> bool:
    """Return whether the content is one of a record, and its hash and the search columns agree with it."""
    if not isinstance(record.content, str) or digest(record.previous, record.content) != record.hash:
        return False
    try:
        content = record.parsed
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(content, dict)
        and content.keys() == {"sequence", "time", "kind", "id", "body"}
        and isinstance(content["time"], str)
        and isinstance(content["body"], dict)
        and (content["sequence"], content["kind"], content["id"]) == (record.sequence, record.kind, record.id)
    )


def id_text(id: str | bytes) -> str:  # noqa: A002
    """Return an id as ASCII text: bytes and texts never mean the same. A long one is replaced by its hash.

    Examples
    --------
    >>> id_text("00"), id_text(bytes(1))
    ('"00"', '{"bytes":"00"}')
    """
    text = canonical(_plain_id(id))
    if len(text) > _LONGEST_ID:
        text = canonical({"sha256": hashlib.sha256(text.encode()).hexdigest()})
    return text


def body_of(charge: Charge) -> dict[str, Any]:
    """Return a charge as plain JSON values. A sensitivity may be infinite where there is no noise."""
    body = asdict(charge) | {"id": _plain_id(charge.id)}
    for name in _NUMBERS:
        number = float(body[name])
        body[name] = number if math.isfinite(number) else str(number)
    return body


def charge_of(body: Mapping[str, Any]) -> Charge:
    """Return the charge that `body_of` was made from; fields that are younger than the record have their defaults.

    Examples
    --------
    >>> exact = Charge(id=b"1", dataset="d", study="s", law="none", scale=0.0, l1=math.inf, l2=1.0, trust_model="plain")
    >>> charge_of(body_of(exact)) == exact
    True
    """
    try:
        values = dict(body) | {name: float(body[name]) for name in _NUMBERS if name in body}
        if isinstance(body["id"], dict):
            values["id"] = bytes.fromhex(body["id"]["bytes"])
        for name, kind in (("part", Part), ("unit", Unit), ("neighbours", Neighbours)):
            values[name] = kind(body[name])
        return Charge(**values)
    except (TypeError, ValueError, KeyError, OverflowError, UsageError, UnsupportedQuery):
        raise LedgerUnusable(
            "ledger: got a charge that this fedassay cannot read, expected one of its own or older; upgrade fedassay."
        ) from None


def _plain_id(id: str | bytes) -> Any:  # noqa: A002
    return {"bytes": id.hex()} if isinstance(id, bytes) else id


# --- the head of a ledger -----------------------------------------------------------------------------------

_ANCHOR_LINE = re.compile(rb"fedassay-ledger-head ([0-9]{20}) ([0-9a-f]{64})\n")
_LARGEST = 2**63 - 1
"""Largest value of a whole number in databases."""


@dataclass(frozen=True)
class Anchor:
    """A file with one line: the length of the ledger when this machine last used it, and the hash there.

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
        """Lock the anchor: no other process, thread or ledger object of this machine has it meanwhile."""
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
    """Anchor under a lock: no other process or thread can read or write it now."""

    path: Path
    descriptor: int

    def read(self) -> Head | None:
        """Return the head, or None if none was ever written."""
        line = os.pread(self.descriptor, 4096, 0)
        if not line:
            return None
        found = _ANCHOR_LINE.fullmatch(line)
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
