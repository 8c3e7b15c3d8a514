"""A file that is larger than the memory it may use, measured in a process of its own."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

ROWS = 12_000_000
ALLOWED = 128 * 2**20

READER = """
import json, sys
import numpy as np
from fedassay.data.selection import limit_pooled
from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.data.selection import select_pooled_part
from fedassay.data.sql import Database
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Part, Unit

def bytes_of(field):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(field)]
    return int(line.split()[1]) * 1024

def total(rows):
    return [sum(len(b["score"]) for b in rows.batches()), sum(int(b["label"].sum()) for b in rows.batches())]

path, limit = sys.argv[1], int(sys.argv[2])
if path.endswith(".db"):
    path = Database(url="sqlite:///" + path, query="select * from t")
columns = {"score": "p", "label": "y"}
load({"p": [0.5], "y": [1]}, columns=columns)  # imports and pools that any use needs
before = bytes_of("VmRSS")
federation = load(path, client="c", columns=columns, memory_limit=limit)
held_out = select_pooled_part(federation, Part.HELD_OUT, key=b"0" * 16, unit=Unit.EXAMPLE)
limited, dropped = limit_pooled(federation.pooled(), 1000, SimulatedRandomness(1))
found = {
    "clients": federation.client_count,
    "pooled": total(federation.pooled()),
    "client": total(federation.rows_of("3")),
    "held out": total(held_out),
    "limited": [total(limited)[0], dropped],
    "profile": check(path, client="c", columns=columns).profile["rows"],
}
print(json.dumps([found, bytes_of("VmHWM") - before]))
"""


def write_rows(path: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    clients, labels = rng.integers(0, 7, rows).astype(np.int32), rng.integers(0, 2, rows).astype(np.int8)
    columns = {"c": clients, "p": rng.random(rows), "y": labels, "unused": rng.random(rows)}
    if path.suffix == ".npz":
        np.savez(path, **columns)
    elif path.suffix == ".db":
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("create table t (c, p, y, unused)")
            for start in range(0, rows, 2**17):
                part = zip(
                    *(values[start : start + 2**17].tolist() for values in columns.values()), strict=True
                )
                database.executemany("insert into t values (?, ?, ?, ?)", part)
    elif path.suffix == ".csv":
        arrow_csv.write_csv(pa.table(columns), path)
    else:  # one row group, the worst case
        parquet.write_table(pa.table(columns), path, row_group_size=rows, compression="none")
    return clients, labels


def read_apart(path: Path, limit: int) -> tuple[dict[str, object], int]:
    done = subprocess.run(
        [sys.executable, "-c", READER, str(path), str(limit)], capture_output=True, text=True, check=True
    )
    found, peak = json.loads(done.stdout)
    return found, peak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    "suffix", ["parquet", *(pytest.param(s, marks=pytest.mark.full) for s in ("npz", "csv", "db"))]
)
def test_a_file_larger_than_the_memory_it_may_use(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows.{suffix}"
    clients, labels = write_rows(path, ROWS)
    # The reader of CSV keeps several blocks of text in flight, and a copy of a query its first rows.
    allowed = ALLOWED * {"csv": 2, "db": 1.5}.get(suffix, 1)
    assert path.stat().st_size > 1.3 * allowed
    streamed, peak = read_apart(path, 16 * 2**20)
    assert peak < allowed
    assert streamed["clients"] == 7
    assert streamed["pooled"] == [ROWS, int(labels.sum())]
    assert streamed["client"] == [int((clients == 3).sum()), int(labels[clients == 3].sum())]
    assert streamed["limited"] == [7000, ROWS - 7000]
    assert streamed["profile"] == ROWS
    # The measurement notices rows that stay in memory, and they are the same rows.
    kept, peak = read_apart(path, 2**40)
    assert peak > 1.2 * allowed
    assert kept == streamed


LOGITS_READER = """
import json, sys
from fedassay.data.check import check
from fedassay.data.federation import load

def bytes_of(field):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(field)]
    return int(line.split()[1]) * 1024

columns = {"class": "y", "logits": "z"}
load({"y": [1], "z": [[0.5, 1.0]]}, columns=columns)
before = bytes_of("VmRSS")
federation = load(sys.argv[1], client="c", columns=columns, memory_limit=int(sys.argv[2]))
kinds = (federation.pooled(), federation.rows_of("3"))
found = [sum(float(b["logits"].sum()) for b in rows.batches()) for rows in kinds]
found.append(check(sys.argv[1], client="c", columns=columns).profile["accuracy"])
print(json.dumps([found, bytes_of("VmHWM") - before]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("suffix", ["parquet", pytest.param("npz", marks=pytest.mark.full)])
def test_logits_are_streamed_or_held_once(tmp_path: Path, suffix: str) -> None:
    rows, classes = 300_000, 100
    rng = np.random.default_rng(1)
    z = rng.standard_normal((rows, classes), dtype=np.float32).astype(np.float64)
    columns = {"c": rng.integers(0, 7, rows), "y": rng.integers(0, classes, rows)}
    path = tmp_path / f"rows.{suffix}"
    if suffix == "npz":
        np.savez(path, **columns, z=z)
    else:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(z.reshape(-1)), classes)
        parquet.write_table(pa.table({**columns, "z": lists}), path, row_group_size=rows, compression="none")
    outcomes = []
    for limit in (0, 2**40):
        done = subprocess.run(
            [sys.executable, "-c", LOGITS_READER, str(path), str(limit)],
            capture_output=True,
            text=True,
            check=True,
        )
        outcomes.append(json.loads(done.stdout))
    (streamed, low), (held, high) = outcomes
    assert streamed[2] == held[2] == pytest.approx((z.argmax(axis=1) == columns["y"]).mean())
    assert streamed[:2] == pytest.approx(held[:2], abs=1e-6)
    assert streamed[0] == pytest.approx(z.sum(), abs=1e-6)
    assert low < ALLOWED + z.nbytes / 10
    assert z.nbytes < high < 1.75 * z.nbytes  # one copy, one client, what the reader needs
