"""What a check says about the features of a regression and about its target at each client."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.features import list_names
from fedassay.data.findings import Finding, listed, warning
from fedassay.data.numbers import LocalClients
from fedassay.data.scan import Chunk
from fedassay.data.schema import FEATURES, Columns

TARGET = "target"
MOST_LISTED = 5

_PENDING = 2**20


class FeaturesLook:
    """The features of all rows, and the target of each client, in one pass.

    `tables` are the names of the columns of each table. Memory is a few numbers per feature and per client.
    """

    def __init__(self, label: str, columns: Columns, tables: Iterable[tuple[str, ...]]) -> None:
        self._label, self._columns = label, columns
        found = (columns.in_table(names).get(FEATURES, ()) for names in tables)
        self._found = next((names for names in found if names), ())
        self._rows = 0
        self._smallest: NDArray[np.float64] = np.empty(0)
        self._largest: NDArray[np.float64] = np.empty(0)
        self._prints: list[Any] = []
        self._targets = _TargetsByClient()

    def add(self, chunk: Chunk) -> None:
        """Look at some more rows."""
        target = chunk.columns.get(TARGET)
        if FEATURES in self._columns.names and chunk.clients is not None and target is not None:
            self._targets.add(chunk.clients, target, ~chunk.is_bad(TARGET))
        features = chunk.good(FEATURES)
        if features is None or not features.size:
            return
        if not self._rows:
            width = features.shape[1]
            self._smallest, self._largest = np.full(width, np.inf), np.full(width, -np.inf)
            self._prints = [hashlib.blake2b() for _ in range(width)]
        self._rows += len(features)
        self._smallest = np.minimum(self._smallest, features.min(axis=0))
        self._largest = np.maximum(self._largest, features.max(axis=0))
        for place, seen in enumerate(self._prints):
            seen.update((features[:, place] + 0.0).tobytes())  # -0.0 is 0.0

    def profile(self) -> dict[str, int | float]:
        """How many features there are, and at how many clients the target is constant."""
        found: dict[str, int | float] = {"features": len(self._prints)} if self._rows else {}
        constant, clients = self._targets.constant()
        return found | ({"clients_with_one_target": constant} if clients else {})

    def findings(self) -> list[Finding]:
        """Columns that do not vary, columns that say the same, clients whose target does not vary."""
        names = self._names()
        constant = self._smallest == self._largest
        found = []
        if self._rows > 1:
            found += [self._constant(names[place]) for place in np.flatnonzero(constant)]
            alike: dict[bytes, list[str]] = {}
            for place in np.flatnonzero(~constant):
                alike.setdefault(self._prints[place].digest(), []).append(names[place])
            found += [self._alike(several) for several in alike.values() if len(several) > 1]
        alone, clients = self._targets.constant()
        if alone and not self._targets.same_everywhere():
            found.append(
                warning(
                    what=f"{self._label}, column {self._columns.names[TARGET]!r} ({TARGET})",
                    got=f"one value in all rows of {alone} of {clients} clients",
                    expected="different targets at each client",
                    fix="check these clients; a pooled fit can use them, but their own rows tell nothing about the "
                    "features",
                )
            )
        return found

    def _names(self) -> tuple[str, ...]:
        named, width = self._columns.named(FEATURES) if self._rows else (), len(self._prints)
        if len(named) > 1:
            return named
        return self._found if len(self._found) == width or not named else list_names(named[0], width)

    def _constant(self, name: str) -> Finding:
        return warning(
            what=f"{self._label}, column {name!r} (feature)",
            got="one value in all rows",
            expected="different numbers",
            fix="leave it out of the features; it cannot be told from the intercept",
        )

    def _alike(self, names: list[str]) -> Finding:
        return warning(
            what=f"{self._label}, columns {listed(names, most=MOST_LISTED)} (features)",
            got="the same numbers in all rows",
            expected="columns that differ",
            fix="keep one of them; their coefficients cannot be told apart",
        )


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """The rows, the smallest and the largest target of some clients."""

    names: Any
    rows: NDArray[np.int64]
    smallest: NDArray[np.float64]
    largest: NDArray[np.float64]


class _TargetsByClient:
    """The ends of each client's targets, in memory proportional to the number of clients."""

    def __init__(self) -> None:
        self._parts: list[_Ends] = []
        self._pending = 0

    def add(self, clients: LocalClients, target: NDArray[np.float64], good: NDArray[np.bool_]) -> None:
        """Take account of some more rows; those without a client or a good target are left out."""
        usable = good & (clients.codes >= 0)
        codes, values = clients.codes[usable], target[usable]
        ones = np.ones(len(codes), dtype=np.int64)
        self._parts.append(_ends(clients.names, codes, ones, values, values))
        self._pending += len(clients.names)
        if self._pending > max(_PENDING, len(self._parts[0].names)):
            self._merge()

    def _merge(self) -> None:
        if len(self._parts) > 1:
            parts = self._parts
            encoded = pa.concat_arrays([part.names for part in parts]).dictionary_encode()
            rows, smallest, largest = (
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("rows", "smallest", "largest")
            )
            self._parts = [_ends(encoded.dictionary, encoded.indices.to_numpy(), rows, smallest, largest)]
        self._pending = 0

    def constant(self) -> tuple[int, int]:
        """How many clients with at least two rows have one target only, and how many have at least two rows."""
        self._merge()
        if not self._parts:
            return 0, 0
        (all_of_them,) = self._parts
        several = all_of_them.rows > 1
        one = several & (all_of_them.smallest == all_of_them.largest)
        return int(np.count_nonzero(one)), int(np.count_nonzero(several))

    def same_everywhere(self) -> bool:
        """Whether all targets of all clients are the same, which is said about the column already."""
        self._merge()
        return all(part.smallest.min() == part.largest.max() for part in self._parts)


def _ends(
    names: Any,
    codes: NDArray[Any],
    rows: NDArray[np.int64],
    smallest: NDArray[np.float64],
    largest: NDArray[np.float64],
) -> _Ends:
    size = len(names)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, codes, smallest)
    np.maximum.at(high, codes, largest)
    # Sums of whole numbers below 2^53 are exact in floats.
    counts = np.bincount(codes, weights=rows, minlength=size).astype(np.int64)
    return _Ends(names=names, rows=counts, smallest=low, largest=high)
