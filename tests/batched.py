"""Rows of one client in batches, from columns that are cut or from rows that are listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedassay.data.tables import StreamedRows
from fedassay.protocol.vocabulary import Batch
from fedassay.summaries.grouped_histogram import fingerprints


def batched(columns: Mapping[str, Any], *cuts: int) -> StreamedRows:
    """The columns, cut at these rows; a cut that stands twice leaves an empty batch."""
    pieces = zip(*(np.split(np.asarray(column), cuts) for column in columns.values()), strict=True)
    batches = [dict(zip(columns, piece, strict=True)) for piece in pieces]
    return StreamedRows(read=lambda: iter(batches))


def listed(rows: Sequence[tuple[Any, ...]], *roles: str, batch: int = 1000) -> StreamedRows:
    """Rows with a value for each role, so many in a batch; no batch where there are no rows."""

    def read() -> Iterator[Batch]:
        for start in range(0, len(rows), batch):
            values = dict(zip(roles, zip(*rows[start : start + batch], strict=True), strict=True))
            yield {role: column(role, entries) for role, entries in values.items()}

    def column(role: str, entries: tuple[Any, ...]) -> np.ndarray:
        if role == "group":
            return fingerprints(entries)
        return np.array(entries, dtype=np.int8 if role == "label" else None)

    return StreamedRows(read=read)
