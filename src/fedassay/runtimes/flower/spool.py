"""The rows of a simulation on disk, one file per column, so that each simulated client reads only its own.

Ray runs clients in other processes. Handing them the whole federation with every message would cost its size
each time; instead the columns lie in a temporary folder as plain `.npy` files (never pickled), sorted by client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.federation import Federation
from fedassay.data.rows import ArrayRows, batch_length


@dataclass(frozen=True, kw_only=True)
class Spool:
    """Where the rows of each client begin and end, in the columns of a folder."""

    folder: Path
    places: Mapping[str, tuple[int, int]] = field(repr=False)

    @classmethod
    def write(cls, federation: Federation, folder: Path) -> Spool:
        """Write all rows, client by client."""
        ends = np.cumsum(federation.rows_per_client).tolist()
        places = {
            name: (end - int(rows), end)
            for name, rows, end in zip(federation.clients, federation.rows_per_client, ends, strict=True)
        }
        columns: dict[str, NDArray[Any]] = {}
        for name, (start, _) in places.items():
            for batch in federation.rows_of(name).batches():
                stop = start + batch_length(batch)
                for role, values in batch.items():
                    if role not in columns:
                        columns[role] = np.lib.format.open_memmap(
                            folder / f"{role}.npy",
                            mode="w+",
                            dtype=values.dtype,
                            shape=(federation.row_count, *values.shape[1:]),
                        )
                    columns[role][start:stop] = values
                start = stop
        for column in columns.values():
            column.flush()  # type: ignore[attr-defined]
        return cls(folder=folder, places=places)

    def rows_of(self, client: str) -> ArrayRows:
        """The rows of one client, mapped from the disk."""
        start, stop = self.places[client]
        return ArrayRows(
            columns={
                path.stem: np.load(path, mmap_mode="r", allow_pickle=False)[start:stop]
                for path in sorted(self.folder.glob("*.npy"))
            }
        )

    def note(self, client: str) -> Path:
        """Where a client notes how many rows it left out."""
        return self.folder / f"{self.places[client][0]}-{self.places[client][1]}.truncated"

    def noted(self) -> int:
        """The rows that all clients left out, in their latest measurements."""
        return sum(int(path.read_text(encoding="ascii")) for path in self.folder.glob("*.truncated"))
