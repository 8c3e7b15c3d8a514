"""What tests of every artefact need: the sentence about a bad file, and the memory that applying one takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from fedassay.errors import UsageError

_PROGRAM = """
import sys, fedassay
from fedassay.artefacts.{module} import {function} as apply
from fedassay.data import tables

tables.BATCH_VALUES //= {smaller}

def most():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

artefact, peaks = fedassay.{load}(sys.argv[1]), []
for path in sys.argv[2:]:
    apply(artefact, path, path + ".out.parquet")
    peaks.append(most())
print(peaks[1] - peaks[0])
"""


def sentence_about(path: Path, content: str | bytes, load: Callable[[Path], Any]) -> str:
    """What is said when a file with this content is loaded: one sentence that begins with its name."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as refused:
        load(path)
    sentence = str(refused.value)
    assert sentence.startswith(str(path))
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def repeated(table: pa.Table, times: Sequence[int], folder: Path) -> list[Path]:
    """Files that hold a table so many times."""
    paths = [folder / f"{count}.parquet" for count in times]
    for path, count in zip(paths, times, strict=True):
        with parquet.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
            for _ in range(count):
                writer.write_table(table)
    return paths


def memory_growth(artefact: Path, paths: Sequence[Path], *, smaller: int = 1, **names: str) -> int:
    """How much larger the peak is after the second of these files has been applied than after the first.

    `smaller` batches make of a small file what a large one is otherwise.
    """
    program = _PROGRAM.format(smaller=smaller, **names)
    command = [sys.executable, "-c", program, str(artefact), *map(str, paths)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
