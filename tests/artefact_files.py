"""What tests of every artefact need: the sentence about a bad file, and the memory that applying one takes."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import strategies as st

from fedassay.errors import DataError, UsageError

NOT_JSON: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "not JSON"),
    "half": ("{", "not JSON"),
    "binary": (b"\x80\x04\x95", "not JSON"),
    "NaN": ('{"level": NaN}', "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "many digits": ('{"format": ' + "9" * 5000 + "}", "not JSON"),
}
"""Contents that no loader takes, and what is said of them."""

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text()
    | st.sampled_from([10**400, "\ud800"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
"""Whatever may stand in an entry of a file."""

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


def with_entry(content: Any, path: str | Sequence[str], value: Any) -> Any:
    """A copy of a document in which the entry at this place is another one; `path` has names and numbers."""
    changed = copy.deepcopy(content)
    *parents, last = path.split(".") if isinstance(path, str) else path
    place = changed
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    place[last] = value
    return changed


def sentence_about(path: Path, content: str | bytes, load: Callable[[Path], Any]) -> str:
    """What is said when a file with this content is loaded: one sentence that begins with its name."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as refused:
        load(path)
    sentence = str(refused.value)
    assert sentence.startswith(str(path))
    assert sentence.endswith(".")
    assert sentence.isprintable()
    assert len(sentence) < 500 + len(str(path))
    return sentence


def refusal(apply: Callable[..., Any], made: Any, data: Any, out: Path, **options: Any) -> str:
    """What is said when an artefact cannot be applied to these data: one sentence, and nothing is left behind."""
    before = {path: path.stat().st_mtime_ns for path in out.parent.glob("*")}
    with pytest.raises((UsageError, DataError)) as error:
        apply(made, data, out, **options)
    after = {path: path.stat().st_mtime_ns for path in out.parent.glob("*")}
    assert after == before, "something was left behind"
    assert "\n" not in str(error.value)
    return str(error.value)


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
