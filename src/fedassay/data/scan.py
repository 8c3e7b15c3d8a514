"""One validating pass over a table: canonical columns batch by batch, and their defects.

Memory is bounded: a tally keeps counts, one row number and a handful of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.findings import FOR_GAPS, ColumnTally, Finding
from fedassay.data.lists import Width
from fedassay.data.numbers import LocalClients, to_clients
from fedassay.data.schema import CLASS, CLIENT, FEATURES, LOGITS, Columns, Role
from fedassay.data.tables import NoRows, Table
from fedassay.data.wide import FeaturesReader, LogitsReader
from fedassay.protocol.vocabulary import Batch

_ROW = re.compile(r"row (\d+) \(counting from 0\)")


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some rows of a table. `bad` has a mask for each column with unacceptable rows, by role."""

    length: int
    columns: Batch = field(repr=False)
    bad: Mapping[str, NDArray[np.bool_]] = field(repr=False)
    clients: LocalClients | None = field(repr=False)

    def is_bad(self, role: str) -> NDArray[np.bool_]:
        """Return which rows are unacceptable in this role."""
        return self.bad.get(role, np.zeros(self.length, dtype=np.bool_))

    def good(self, role: str) -> NDArray[Any] | None:
        """Return the acceptable values in this role, if there is such a column."""
        values = self.columns.get(role)
        return values if values is None or role not in self.bad else values[~self.bad[role]]


class Scan:
    """One pass over one table. Read `chunks` to the end; then `findings` are complete.

    Columns that are missing are left out of the chunks, so that the others can still be looked at. `width` is
    the number of logits or features of the rows of the other tables, if it is known.
    """

    def __init__(self, table: Table, columns: Columns, width: Width | None = None) -> None:
        self._table, self._columns = table, columns
        self._absent = (
            {} if isinstance(table, NoRows) else columns.missing_from(table.names, where=table.label)
        )
        self._found = {role: found for role in columns.names if (found := self._usable(role))}
        self._tallies = {role.name: self._tally(role) for role in columns.roles if not role.wide}
        self._tallies[CLIENT] = ColumnTally(
            what=f"{table.label}, column {columns.client!r} (client)",
            expected="the name or number of a client in every row, without NUL bytes",
            fix="fill in the client or remove these rows",
        )
        self._wide = self._reader(width)

    def _usable(self, role: str) -> tuple[str, ...]:
        """Return the columns of the table that play this role; of several named ones those that are there."""
        named = self._columns.named(role)
        if len(named) == 1 and named[0] in self._absent:
            return ()
        found = self._columns.in_table(self._table.names)[role]
        return tuple(name for name in found if name not in self._absent)

    def _reader(self, width: Width | None) -> FeaturesReader | LogitsReader:
        label = self._table.label
        if FEATURES in self._columns.names:
            names, found = self._columns.named(FEATURES), self._found.get(FEATURES, ())
            return FeaturesReader(label=label, names=names, columns=found, agreed=width)
        name, found = self._columns.names.get(LOGITS, ""), self._found.get(LOGITS, ())
        return LogitsReader(label=label, name=name, columns=found, agreed=width)

    def _tally(self, role: Role) -> ColumnTally:
        return ColumnTally(
            what=f"{self._table.label}, column {self._columns.names[role.name]!r} ({role.name})",
            expected=role.expected,
            fix=role.fix,
            lists_values=role.lists_values,
            for_gaps="" if role.name == "group" else FOR_GAPS,
        )

    @property
    def absent(self) -> list[Finding]:
        """The columns that are missing or ambiguous, known before any row is read."""
        return list(self._absent.values())

    @property
    def width(self) -> Width | None:
        """Number of logits or features of a row, as far as it is known by now and matters."""
        return self._wide.width

    def findings(self) -> list[Finding]:
        """Return everything found so far that makes the table unusable."""
        tallied = [tally.finding() for tally in self._tallies.values()]
        found = self._wide.findings() + [finding for finding in tallied if finding is not None]
        return self.absent + [self._with_line(finding) for finding in found]

    def _with_line(self, finding: Finding) -> Finding:
        """Add the line of the file to the number of the row in a finding, where there are lines."""
        row = _ROW.search(finding.got)
        line = None if row is None else self._table.line_of(int(row[1]))
        if row is None or line is None:
            return finding
        return replace(finding, got=f"{finding.got} (line {line} of the file)")

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, converted; unacceptable values are marked and counted, not raised."""
        needed = [name for names in self._found.values() for name in names]
        if self._columns.client is not None and self._columns.client not in self._absent:
            needed.append(self._columns.client)
        if not needed:  # any column tells how many rows there are
            needed = [name for name in self._table.names if self._table.names.count(name) == 1][:1]
        if not needed:
            return
        needed = list(dict.fromkeys(needed))
        for batch in self._table.batches(needed):
            if len(batch):
                yield self._chunk({name: batch.column(i) for i, name in enumerate(needed)}, len(batch))

    def _chunk(self, raw: Mapping[str, Any], length: int) -> Chunk:
        read = {}
        for wide in (LOGITS, FEATURES):  # first: logits say how many classes there are
            if wide in self._found:
                read[wide] = self._wide.read([raw[name] for name in self._found[wide]])
        for role in self._columns.roles:
            if role.name in self._found and not role.wide:
                (name,) = self._found[role.name]
                values, wrong = self._bounded(role, *role.convert(raw[name]))
                self._tallies[role.name].add(raw[name], wrong)
                read[role.name] = values, wrong
        columns = {role: read[role][0] for role in self._columns.names if role in read}
        bad = {role: wrong for role, (_, wrong) in read.items() if wrong.any()}
        clients = None
        owner = self._columns.client
        if owner is not None and owner in raw:
            clients = to_clients(raw[owner])
            nameless = clients.codes < 0
            self._tallies[CLIENT].add(raw[owner], nameless)
            if nameless.any():
                bad[CLIENT] = nameless
        return Chunk(length=length, columns=columns, bad=bad, clients=clients)

    def _bounded(
        self, role: Role, values: NDArray[Any], wrong: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Mark the classes that have no logit."""
        if role.name != CLASS or LOGITS not in self._columns.names or self.width is None:
            return values, wrong
        classes = self.width.numbers
        self._tallies[CLASS].expect(
            f"a whole number from 0 to {classes - 1} in every row, one of the {classes} classes of the logits"
        )
        return values, wrong | (values >= classes)


# --- what the scores and labels look like -------------------------------------------------------------------

BINS = 1024
"""The uniform bins in which concentration is measured: as many as a score histogram of height 10 has."""

_SMALLEST_KEPT = 2**15


class Distinct:
    """Counter of different values: exact up to 32767 of them, then estimated within about 0.6 %.

    Keeps the k smallest hashes of the values seen. If the k-th smallest of n uniform hashes in [0, 1] is h,
    (k-1)/h is an unbiased estimate of n with relative standard error about 1/√(k-2) (Beyer et al. 2007,
    "On synopses for distinct-value estimation"). The hash is a bijection of 64 bits, so it never confuses
    two values.

    Examples
    --------
    >>> seen = Distinct()
    >>> seen.add(np.array([0.5, 0.25, 0.5]))
    >>> seen.count()
    2
    """

    def __init__(self) -> None:
        self._hashes: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def add(self, values: NDArray[np.float64]) -> None:
        """Take account of some more values."""
        fresh = _mixed(np.ascontiguousarray(values).view(np.uint64))
        if len(self._hashes) == _SMALLEST_KEPT:
            fresh = fresh[fresh < self._hashes[-1]]
        self._hashes = np.unique(np.concatenate([self._hashes, fresh]))[:_SMALLEST_KEPT]

    def count(self) -> int:
        """Return the number of different values."""
        if len(self._hashes) < _SMALLEST_KEPT:
            return len(self._hashes)
        return round((_SMALLEST_KEPT - 1) * 2**64 / (int(self._hashes[-1]) + 1))


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The finaliser of splitmix64: xor-shifts and odd factors, each invertible.
    mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class ValueProfile:
    """Number of values, number of different ones, and their extent: what a range has to hold."""

    def __init__(self) -> None:
        self._distinct = Distinct()
        self.count = 0
        self.smallest, self.largest = np.inf, -np.inf

    def add(self, values: NDArray[np.float64]) -> None:
        """Take account of some more valid values."""
        if not len(values):
            return
        self.count += len(values)
        self.smallest = min(self.smallest, float(values.min()))
        self.largest = max(self.largest, float(values.max()))
        self._distinct.add(values)

    @property
    def distinct(self) -> int:
        """The number of different values, see `Distinct`; never more than there are values."""
        return min(self._distinct.count(), self.count)


class ScoreProfile(ValueProfile):
    """Number of scores, of different scores and of scores at the ends, and the share in the fullest bin."""

    def __init__(self) -> None:
        super().__init__()
        self._bins = np.zeros(BINS, dtype=np.int64)
        self.at_zero = self.at_one = 0

    def add(self, values: NDArray[np.float64]) -> None:
        """Take account of some more valid scores."""
        super().add(values)
        self.at_zero += int(np.count_nonzero(values == 0.0))
        self.at_one += int(np.count_nonzero(values == 1.0))
        self._bins += np.bincount(np.minimum((values * BINS).astype(np.int64), BINS - 1), minlength=BINS)

    @property
    def densest_bin(self) -> float:
        """The share of the scores in the fullest of the uniform bins."""
        return float(self._bins.max() / self.count)


class LabelProfile:
    """Number of labels, and of positive ones."""

    def __init__(self) -> None:
        self.count = self.positives = 0

    def add(self, labels: NDArray[np.int8]) -> None:
        """Take account of some more valid labels."""
        self.count += len(labels)
        self.positives += int(np.count_nonzero(labels))
