"""A ledger in one file, for a site or a coordinator that has no database."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedassay.errors import ProtocolError
from fedassay.files import sync_folder
from fedassay.privacy.ledger import Charge, Ledger, admit, compose
from fedassay.protocol import Budget, Neighbours, Part, Unit


class FileLedger(Ledger):
    """One line of JSON per charge, appended and flushed to the disk under a lock on the file.

    Guarantee: once `charge` returns, the record survives a crash; concurrent processes behave as if they
    came one after the other. A last line that was cut by a crash belongs to a charge that never
    returned, so nothing was sent for it: it is dropped. Any other unreadable line refuses everything.

    Parameters
    ----------
    budget : holds for each data set by itself; None only records.
    allow_exact : whether releases without noise pass; see `MemoryLedger`.
    """

    def __init__(self, path: Path, budget: Budget | None, *, allow_exact: bool = False) -> None:
        self.path = path
        self.budget = budget
        self.allow_exact = allow_exact or budget is None

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything recorded."""
        with self._locked() as file:
            return tuple(self._read(file))

    def charge(self, charges: Sequence[Charge]) -> None:
        """Record the charges, or raise before anything is recorded."""
        with self._locked() as file:
            recorded = {charge.id: charge for charge in self._read(file)}
            new = admit(charges, recorded, budget=self.budget, allow_exact=self.allow_exact)
            file.write(b"".join(json.dumps(asdict(charge)).encode() + b"\n" for charge in new))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)

    def has(self, id: str | bytes) -> bool:  # noqa: A002
        """Whether a charge with this id is recorded."""
        return any(charge.id == id for charge in self.charges)

    def spent(self, dataset: str, delta: float) -> float:
        """The epsilon that the releases of this data set add up to, at this delta."""
        return compose((charge for charge in self.charges if charge.dataset == dataset), delta)

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _read(self, file: Any) -> list[Charge]:
        """All charges; leaves the file at the end of the last whole line."""
        file.seek(0)
        whole, _, cut = file.read().rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        try:
            charges = [_charge(json.loads(line)) for line in lines]
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(f"{self.path}: a line of the ledger cannot be read; restore it.") from error
        if cut and not cut.startswith(b"{"):
            raise ProtocolError(f"{self.path}: the end of the ledger is not a charge; restore it.")
        if cut:
            file.truncate(file.tell() - len(cut))
        file.seek(0, os.SEEK_END)
        return charges


def _charge(content: dict[str, Any]) -> Charge:
    return Charge(
        **{
            **content,
            "part": Part(content["part"]),
            "unit": Unit(content["unit"]),
            "neighbours": Neighbours(content["neighbours"]),
        }
    )
