"""Parquet, CSV and NumPy archives as tables, streamed. No file stays open between two passes."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from fedassay.data.tables import Table, Unreadable, batch_rows, reading, to_arrow
from fedassay.errors import DataError

_READ_AHEAD, _LEAST_READ_AHEAD = 2**20, 2**16
_CSV_BLOCK = 2**21
_NPY_SUFFIX = ".npy"
_LARGEST_TRANSPOSED = 2**30


@dataclass(frozen=True, kw_only=True)
class FileTable(Table):
    """A table in one file."""

    path: Path

    @property
    def _fix(self) -> str:
        return f"check that it is a complete {self.path.suffix.lower()} file"


class ParquetTable(FileTable):
    """A Parquet file. A row group larger than memory is fine: its pages are read one after the other."""

    @classmethod
    def open(cls, path: Path) -> ParquetTable:
        """Read the schema only."""
        with reading(str(path), fix="check that it is a complete .parquet file"):
            return cls(label=str(path), path=path, names=tuple(parquet.read_schema(path).names))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        with (
            reading(self.label, fix=self._fix),
            # Without a buffer size a whole column of a row group is fetched at once.
            parquet.ParquetFile(self.path, buffer_size=_read_ahead(len(columns)), pre_buffer=False) as file,
        ):
            rows = batch_rows(_values_per_row(file.metadata, columns))
            for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False):
                yield batch.select(list(columns))


def _read_ahead(columns: int) -> int:
    """Return the buffer of each column: the more columns, the less for one."""
    return max(_LEAST_READ_AHEAD, _READ_AHEAD // max(1, columns // 16))


def _values_per_row(metadata: Any, columns: Sequence[str]) -> int:
    """Return about how many values a row of these columns of a Parquet file holds, lists included."""
    wanted, widest = set(columns), 0
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        leaves = (group.column(i) for i in range(group.num_columns))
        values = sum(leaf.num_values for leaf in leaves if leaf.path_in_schema.partition(".")[0] in wanted)
        widest = max(widest, values // max(1, group.num_rows))
    return widest


@dataclass(frozen=True, kw_only=True)
class CsvTable(FileTable):
    """A CSV file: UTF-8, commas, one header line.

    Every column is read as text and given its meaning by its role. Guessed types would depend on the first
    rows, would turn the client "007" into 7, and would end in the reader's error instead of a row number.
    """

    has_rows: bool

    @classmethod
    def open(cls, path: Path) -> CsvTable:
        """Read the header only."""
        with (
            reading(str(path), fix="check that it is text in UTF-8 with a header line and commas"),
            path.open(encoding="utf-8-sig", newline="") as file,
        ):
            lines = csv.reader(file)
            header = next((line for line in lines if line), [])
            has_rows = any(lines)
        if not header:
            raise DataError(f"{path}: got no header line, expected the names of the columns; add them.")
        if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
            raise DataError(
                f"{path}: got one column of the name {header[0]!r}, expected several; the header is not separated by "
                "commas: save the file with commas (and decimals with points)."
            )
        return cls(label=str(path), path=path, names=tuple(header), has_rows=has_rows)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        if not self.has_rows:
            return
        text = arrow_csv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: pa.large_string() for name in columns},
            strings_can_be_null=True,
        )
        with (
            reading(self.label, fix="check its separators, quotes and encoding (commas, UTF-8)"),
            arrow_csv.open_csv(
                self.path,
                read_options=arrow_csv.ReadOptions(block_size=_CSV_BLOCK),
                parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                convert_options=text,
            ) as reader,
        ):
            yield from reader

    def line_of(self, row: int) -> int | None:
        """See `Table.line_of`. Empty lines are no rows, and a text in quotes may go over several lines."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                lines, before = csv.reader(file), row + 1  # the header is before it too
                begins = 1
                for record in lines:
                    if record and not before:
                        return begins
                    before -= bool(record)
                    begins = lines.line_num + 1
        except (OSError, ValueError, csv.Error):  # it is broken, or no longer there
            pass
        return None


class NpzTable(FileTable):
    """A NumPy archive: each array is a column. Nothing is unpickled."""

    @classmethod
    def open(cls, path: Path) -> NpzTable:
        """Read the list of arrays only."""
        with (
            reading(str(path), fix="check that it was written by numpy.savez"),
            zipfile.ZipFile(path) as file,
        ):
            names = [name.removesuffix(_NPY_SUFFIX) for name in file.namelist() if name.endswith(_NPY_SUFFIX)]
        return cls(label=str(path), path=path, names=tuple(names))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        with ExitStack() as stack:
            with reading(self.label, fix=self._fix):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                members = [stack.enter_context(archive.open(name + _NPY_SUFFIX)) for name in columns]
                arrays = [_Npy(file) for file in members]
            self._check(columns, arrays)
            step = batch_rows(sum(array.width for array in arrays))
            for start in range(0, arrays[0].shape[0], step):
                count = min(step, arrays[0].shape[0] - start)
                with reading(self.label, fix=self._fix):
                    parts = [to_arrow(array.read(count)) for array in arrays]
                yield pa.RecordBatch.from_arrays(parts, names=list(columns))

    def _check(self, columns: Sequence[str], arrays: Sequence[_Npy]) -> None:
        for name, array in zip(columns, arrays, strict=True):
            if array.dtype.hasobject:
                raise DataError(
                    f"{self.label}, array {name!r}: got Python objects, expected numbers or text; "
                    "save it with a plain type (pickled objects are never opened)."
                )
            if not 1 <= len(array.shape) <= 2:
                raise DataError(
                    f"{self.label}, array {name!r}: got {len(array.shape)} dimensions, "
                    "expected one entry per row; save one array per column."
                )
        lengths = {name: array.shape[0] for name, array in zip(columns, arrays, strict=True)}
        self.require_equal("arrays", lengths, verb="save")


class _Npy:
    """One array of an archive, read from front to back."""

    def __init__(self, file: IO[bytes]) -> None:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            header = np.lib.format.read_array_header_2_0(file)
        else:
            raise Unreadable(f"array format {version[0]}.{version[1]}, only 1.0 and 2.0 are known")
        self.shape, self._columns_first, self.dtype = header
        self._file = file
        self._whole: NDArray[Any] | None = None
        self._next = 0

    @property
    def width(self) -> int:
        """Number of values that a row holds."""
        return int(np.prod(self.shape[1:], dtype=np.int64))

    def read(self, rows: int) -> NDArray[Any]:
        """Return the next rows."""
        if self._columns_first and self.width > 1:
            return self._from_columns(rows)
        return self._values(rows * self.width).reshape(rows, *self.shape[1:])

    def _from_columns(self, rows: int) -> NDArray[Any]:
        """Return the next rows of an array that is stored column by column, so that all of it is read first."""
        if self._whole is None:
            size = self.shape[0] * self.width * self.dtype.itemsize
            if size > _LARGEST_TRANSPOSED:
                raise Unreadable(
                    f"an array of {size} bytes in Fortran order has no rows to stream; save "
                    "numpy.ascontiguousarray of it"
                )
            self._whole = self._values(self.shape[0] * self.width).reshape(self.shape, order="F")
        self._next += rows
        return self._whole[self._next - rows : self._next]

    def _values(self, count: int) -> NDArray[Any]:
        return np.frombuffer(self._file.read(count * self.dtype.itemsize), dtype=self.dtype, count=count)


OPENERS: Mapping[str, Callable[[Path], FileTable]] = MappingProxyType(
    {".parquet": ParquetTable.open, ".csv": CsvTable.open, ".npz": NpzTable.open}
)
"""Openers of files, by suffix."""
