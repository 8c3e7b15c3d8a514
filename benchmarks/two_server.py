"""What `two-server` costs: seconds per phase, and bytes, from 10^2 to 10^4 rows and 2^6 to 2^10 leaves.

    python benchmarks/two_server.py

All parties run in this process, one after the other; what is shown is the time of one of them. (Two servers work at
the same time, and so do all clients.) Ten clients hold the rows, and messages pass through bytes as on any runtime.
Times are the best of a few runs.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Message, Party, Points, Protection, Sum

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from two_server_driver import SERVERS, Cells, Town, UpTo, plans_of, setting

CLIENTS = 10
ROWS = (100, 1_000, 10_000)
LEAVES = (64, 256, 1024)

PHASES = {2: "check of all keys", 6: "noise", 7: "noise"}
"""The legs in which a server works; in the others it hands on a few numbers for each client."""


class Timed(Town):
    """A town with a clock."""

    def ask(self, to: Party, name: str, message: Message) -> Message | None:
        """Ask, and add up how long it takes one party."""
        started = perf_counter()
        reply = super().ask(to, name, message)
        seconds = self.__dict__.setdefault("seconds", defaultdict(float))
        phase = "a client" if to is Party.CLIENTS else PHASES.get(self.leg, "the rest")
        seconds[phase] += (perf_counter() - started) / (CLIENTS if to is Party.CLIENTS else len(SERVERS))
        return reply


def town(rows: int, leaves: int, query: Any) -> Timed:
    each = rows // CLIENTS
    terms = setting(protection=Protection(rows_per_client=each), clients=CLIENTS)
    plans = plans_of(query, of=terms)
    generator = np.random.default_rng(rows + leaves)
    counts = {
        f"client{i}": (np.bincount(generator.integers(0, leaves, each), minlength=leaves),)
        for i in range(CLIENTS)
    }
    return Timed(plans=plans, counts=counts)


def whole_totals() -> list[str]:
    lines = [
        f"One total over {CLIENTS} clients: seconds of each party that works, and what a client sends",
        f"{'rows':>8} {'leaves':>8} {'a client':>10} {'check':>10} {'noise':>10} {'the rest':>10} "
        f"{'ns per row and leaf':>20} {'KB per client':>14}",
    ]
    for rows in ROWS:
        for leaves in LEAVES:
            taken = []
            for _ in range(3 if rows * leaves < 4_000_000 else 2):
                run = town(rows, leaves, Sum(of=Cells(cells=leaves)))
                assert run.go()[0].value.tolist() == run.exact()[0].tolist()
                taken.append(run.__dict__["seconds"])
            best = {phase: min(one[phase] for one in taken) for phase in taken[0]}
            check, total = best[PHASES[2]], best[PHASES[6]]
            size = len(wire.encode(run.said["client0", 1])) / 1000
            lines.append(
                f"{rows:>8,} {leaves:>8,} {best['a client']:>9.4f}s {check:>9.3f}s {total:>9.3f}s "
                f"{best['the rest']:>9.3f}s {(check + total) / rows / leaves * 1e9:>20.0f} {size:>14.1f}"
            )
    return lines


def later_points() -> list[str]:
    lines = [
        "One more point, of keys that the servers have kept (a step of a search): seconds of a server",
        f"{'rows':>8} {'leaves':>8} {'seconds':>10} {'µs per row':>11}",
    ]
    for rows in ROWS:
        run = town(rows, 1024, Points(of=UpTo(cells=1024), at=(511,)))
        run.go()
        taken = []
        for place in (100, 200, 300):
            run.__dict__["seconds"].clear()
            run.go(Points(of=UpTo(cells=1024), at=(place,)))
            taken.append(sum(run.__dict__["seconds"].values()))
        lines.append(f"{rows:>8,} {1024:>8,} {min(taken):>9.4f}s {min(taken) / rows * 1e6:>11.2f}")
    return lines


def main() -> None:
    for table in (whole_totals, later_points):
        print("\n".join(table()), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
