"""The clients of a simulation, from one table or a folder of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.findings import Finding, listed, raise_first
from fedassay.data.lists import Width
from fedassay.data.names import Roster, RowNames, SortedNames
from fedassay.data.partition import DealtRows, Partition
from fedassay.data.scan import Scan
from fedassay.data.schema import ROLES, Columns
from fedassay.data.sources import Folder, Source, left_out, not_read, open_source
from fedassay.data.stores import ClientRows, Gathered, MemoryStore, RowStore, SiteTable, StreamStore
from fedassay.data.tables import PooledRows
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import Rows

MEMORY_LIMIT = 2**30

EACH_ROW_A_SITE = (
    "No column names the site, so that every row counts as a site of its own; name the column with --client (in Python "
    "and in studies: client)."
)


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Clients and their rows. `clients` makes names on demand: there may be a hundred million.

    Names are sorted by code point; where each row is a client, they are the row numbers in order. `label` is how errors
    call the data.
    """

    clients: Sequence[str]
    rows_per_client: NDArray[np.int64] = field(repr=False)
    label: str = "the data"
    warnings: tuple[str, ...] = ()
    store: ClientRows = field(repr=False)
    one_row_each: bool = False
    """True if every row is a client of its own, because no column says otherwise."""

    not_read: tuple[Finding, ...] = ()
    """Findings about files among those of the sites that are not read; `warnings` has them too."""

    missing: int | None = None
    """Number of rows that were left out, as a value is missing; None where such rows are an error."""

    @property
    def client_count(self) -> int:
        """The number of clients, those without rows included."""
        return len(self.clients)

    @property
    def row_count(self) -> int:
        """The number of rows of all clients."""
        return int(self.rows_per_client.sum())

    def __repr__(self) -> str:
        return f"Federation(clients={self.client_count}, rows={self.row_count})"

    def rows_of(self, client: str) -> Rows:
        """Return the rows of one client, in the order of the data. A client without rows gives no batches."""
        try:
            position = self.clients.index(client)
        except ValueError:
            known = list(self.clients[:1000])
            close = difflib.get_close_matches(str(client), known, n=1)
            fix = f"did you mean {close[0]!r}?" if close else f"the first are {listed(known, most=3)}."
            raise UsageError(
                f"client: got {client!r}, expected one of {self.client_count} names; {fix}"
            ) from None
        return self.store.rows_of(position)

    def pooled(self) -> PooledRows:
        """Return all rows, in the order of the data, for the aggregate mode of a simulation."""
        return PooledRows(
            clients=self.clients, rows=self.store.pooled(), by_client=self.store.pooled_by_client()
        )


def load(
    data: Any,
    *,
    client: str | Partition | None = None,
    columns: Mapping[str, str],
    memory_limit: int = MEMORY_LIMIT,
    empty_is_fine: bool = False,
) -> Federation:
    """Read, check and arrange `data` by client.

    Each row belongs to the client named in the column `client`. Without it, each file of a folder is one
    client, and each row of a single table is its own client. A `Partition` deals all rows to simulated clients,
    afresh each time unless it has a seed. `columns` says which column plays which role.

    Every value is checked in one pass before anything else happens. If the columns take at most
    `memory_limit` bytes they stay in memory (arranging them takes up to as much again, and so does handing them out
    client by client, up to 256 MiB, which is then done once only); otherwise later
    passes read the data again, and memory is bounded by a few batches plus the names and counts of the
    clients (with a `Partition`, plus a few bytes per row). The rows are the same in both cases.

    No rows at all is an error, unless `empty_is_fine`: a site that answers for its own rows must not let
    the others see that it has none.

    Raises
    ------
    UsageError
        If the data cannot be opened or a role is unknown.
    DataError
        If a column is missing, a value is not what its role asks for, or there are no rows.

    Examples
    --------
    >>> data = {"site": ["b", "a", "b"], "p": [0.1, 0.9, 0.4], "y": [0, 1, 1]}
    >>> federation = load(data, client="site", columns={"score": "p", "label": "y"})
    >>> federation
    Federation(clients=2, rows=3)
    >>> [batch["score"].tolist() for batch in federation.rows_of("b").batches()]
    [[0.1, 0.4]]
    """
    if isinstance(client, Partition) and client.column is not None:
        client = client.column
    partition = client.seeded(None) if isinstance(client, Partition) else None
    wanted = Columns(names=columns, client=None if isinstance(client, Partition) else client)
    if not columns:
        raise UsageError(f"columns: got none, expected some of {', '.join(ROLES)}; name at least one.")
    skewed = None if partition is None else partition.label_role(columns)
    source = open_source(data)
    sites = sites_of(source, wanted) if partition is None else _undivided(source)
    for site in sites:
        raise_first(Scan(site.table, wanted).absent)
    roster = Roster(site.client for site in sites if site.client is not None)
    gathered, row_count, width = Gathered(wanted, memory_limit), 0, None
    for site in sites:
        scan = Scan(site.table, wanted, width)
        for chunk in site.chunks(scan):
            row_count += chunk.length
            gathered.add(chunk)
            if chunk.clients is not None:
                roster.add(chunk.clients, np.zeros(chunk.length, dtype=np.bool_))
        raise_first(scan.findings())
        width = scan.width
    without = left_out([site.table for site in sites])
    if row_count == 0 and not empty_is_fine:
        got = "no rows" if without is None else f"no row to use: {without.words}"
        raise DataError(f"{source.label}: got {got}, expected at least one; export the data again.")
    names: SortedNames | RowNames = RowNames(row_count)
    counts: NDArray[np.int64] = np.broadcast_to(np.int64(1), row_count)
    if partition is None and (isinstance(source, Folder) or wanted.client is not None):
        known = roster.counts()
        names, counts = known.names, known.rows
    found = _arranged(names, counts, gathered, sites=sites, columns=wanted, width=width)
    if partition is not None:
        found = _dealt(found, partition, skewed)
    others = tuple(not_read(source))
    gaps = (f"Left out: {without.words}.",) if without is not None and without.missing else ()
    warnings = (*(finding.sentence() for finding in others), *gaps, *found.warnings)
    missing = None if without is None else without.missing
    return replace(found, label=source.label, warnings=warnings, not_read=others, missing=missing)


def sites_of(source: Source, columns: Columns) -> tuple[SiteTable, ...]:
    """Return the tables of a source, each with its client if the file says whose rows they are."""
    if not isinstance(source, Folder) or columns.client is not None:
        return _undivided(source)
    return tuple(SiteTable(table=table, client=name) for name, table in source.sites.items())


def _undivided(source: Source) -> tuple[SiteTable, ...]:
    tables = source.sites.values() if isinstance(source, Folder) else (source,)
    return tuple(SiteTable(table=table) for table in tables)


def _arranged(
    names: SortedNames | RowNames,
    counts: NDArray[np.int64],
    gathered: Gathered,
    *,
    sites: tuple[SiteTable, ...],
    columns: Columns,
    width: Width | None,
) -> Federation:
    """Return the federation of these clients, with its rows in memory if they have been gathered."""
    each_row = isinstance(names, RowNames)
    store: ClientRows
    if not gathered.complete:
        store = StreamStore(sites=sites, columns=columns, width=width, names=names, counts=counts)
    elif isinstance(names, RowNames):
        store = RowStore(columns=gathered.take_columns())
    else:
        store = MemoryStore.of(gathered.take_columns(), gathered.take_codes(names), counts)
    warnings = (EACH_ROW_A_SITE,) if each_row else without_rows(names, counts)
    return Federation(
        clients=names, rows_per_client=counts, warnings=warnings, store=store, one_row_each=each_row
    )


def _dealt(by_row: Federation, partition: Partition, skewed: str | None) -> Federation:
    """Deal the same rows to the clients of the partition; `skewed` is the role that it looks at."""
    labels = np.zeros(by_row.row_count, dtype=np.int32)
    if skewed is not None and by_row.row_count:
        labels = np.concatenate([batch[skewed].astype(np.int32) for batch in by_row.pooled().batches()])
    owners, names = partition.deal(labels), partition.names
    counts = np.bincount(owners, minlength=len(names))
    store: ClientRows
    if isinstance(by_row.store, RowStore):
        store = MemoryStore.of(by_row.store.columns, owners, counts)
    else:
        store = DealtRows(rows=by_row.store.pooled(), owners=owners)
    return Federation(
        clients=names, rows_per_client=counts, warnings=without_rows(names, counts), store=store
    )


def without_rows(names: Sequence[str], counts: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the warning about clients without rows, if there are any."""
    silent = [names[int(position)] for position in np.flatnonzero(counts == 0)]
    if not silent:
        return ()
    one = len(silent) == 1
    who = (
        f"{len(silent)} of {len(names)} clients {'has' if one else 'have'} no rows ({listed(silent, most=5)})"
    )
    return (f"{who} and {'takes' if one else 'take'} part with nothing to count.",)
