"""What a charge costs in an SQLite ledger that already has many records, at three sizes.

    python benchmarks/ledger.py [--sizes 1000,10000,100000]

A charge ends when its record is on the disk, so the floor is what the disk takes to flush: it is measured in the same
run, by appending as many bytes to a file and flushing it, before and after the charges (not in turn with them: to
flush another growing file in between was measured to slow the charges themselves). The bar: at most 5 ms with 10^5
records. Opening (the whole chain is checked and counted) and charges near the end of a budget, which are composed
tightly, are measured apart.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from fedassay.errors import BudgetExceeded
from fedassay.privacy.ledger.charges import Charge
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.vocabulary import Budget, Part

PARTS = (Part.ALL, Part.FIT, Part.HELD_OUT)
LAWS = (("discrete-laplace", 1.0), ("discrete-gaussian", 2.0), ("skellam", 2.0))
ROUNDS = 200


def release(name: str, number: int) -> Charge:
    """One of 45 kinds of small releases of one of four data sets."""
    law, sensitivity = LAWS[number % 3]
    return Charge(
        id=f"{name}/{number}",
        dataset=f"data set {number % 4}",
        study=f"study {number // 100}",
        law=law,
        scale=2.0**20 + 2.0**10 * (number % 5),
        l1=sensitivity,
        l2=sensitivity,
        trust_model="server-dp",
        part=PARTS[number // 3 % 3],
        fingerprint="0" * 64,
    )


def milliseconds(times: list[float]) -> str:
    ordered = sorted(times)
    return f"{1e3 * statistics.median(ordered):7.2f} {1e3 * ordered[int(0.95 * len(ordered))]:7.2f}"


def flushes(folder: Path) -> list[float]:
    """What appending and flushing some bytes takes."""
    times = []
    with (folder / "floor").open("wb", buffering=0) as file:
        for _ in range(ROUNDS // 2):
            started = perf_counter()
            file.write(bytes(8192))
            os.fsync(file.fileno())
            times.append(perf_counter() - started)
    return times


def measure(folder: Path, size: int) -> None:
    path, budget = folder / f"{size}.sqlite", Budget(epsilon=1.0, delta=1e-6)
    written = DatabaseLedger(path, None)
    for start in range(0, size, 1000):
        written.charge([release("before", i) for i in range(start, min(start + 1000, size))])
    del written

    started = perf_counter()
    ledger = DatabaseLedger(path, budget)
    ledger.has("nothing")
    opening = perf_counter() - started

    floor, charging, again = flushes(folder), [], []
    for number in range(ROUNDS):
        started = perf_counter()
        ledger.charge([release("now", number)])
        charging.append(perf_counter() - started)
        started = perf_counter()
        ledger.charge([release("now", number)])
        again.append(perf_counter() - started)
    floor += flushes(folder)

    tight = DatabaseLedger(path, Budget(epsilon=0.999 * ledger.spent("data set 0", 1e-6), delta=1e-6))
    tight.has("nothing")
    refusing = []
    for number in range(5):
        started = perf_counter()
        with suppress(BudgetExceeded):
            tight.charge([release("late", 4 * number)])
        refusing.append(perf_counter() - started)
    print(
        f"{size:10,} {milliseconds(floor)}   {milliseconds(charging)}   {milliseconds(again)}"
        f"   {opening:7.2f} s   {1e3 * statistics.median(refusing):8.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    print("SQLite ledger, milliseconds: median and 95 % (bar: a charge at most 5 ms with 10^5 records)")
    print("   records     one flush          a charge         sent again         opening   composed tightly")
    with tempfile.TemporaryDirectory(dir=os.environ.get("FEDASSAY_BENCH")) as folder:
        for size in sizes:
            measure(Path(folder), size)


if __name__ == "__main__":
    main()
