"""Run the whole suite with its stated numbers, part by part, and join the parts into `docs/verification.md`.

A part is a file with full tests, or what remains of a folder. Each leaves a record with commit and date. A part that
passed at this commit is not run again: the command continues where it was interrupted. Each part rewrites the page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "pytest.mark." + "full"  # in two words: this file is no part
PAGE = "docs/verification.md"
RECORDS = ".verification"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Tests that one process runs."""

    name: str
    arguments: tuple[str, ...]


def parts(root: Path) -> Iterator[Part]:
    """Each file with full tests, then the rest of each folder, then the doctests."""
    tests = root / "tests"
    files = [path.relative_to(root).as_posix() for path in sorted(tests.rglob("test_*.py"))]
    large = [name for name in files if MARK in (root / name).read_text(encoding="utf-8")]
    for name in large:
        yield Part(name=name, arguments=(name,))
    for folder in sorted({Path(name).parts[1] for name in files if len(Path(name).parts) > 2}):
        inside = f"tests/{folder}/"
        if any(name.startswith(inside) for name in files if name not in large):
            left_out = (f"--ignore={name}" for name in large if name.startswith(inside))
            yield Part(name=f"tests/{folder}", arguments=(inside, *left_out))
    if top := [name for name in files if len(Path(name).parts) == 2 and name not in large]:
        yield Part(name="tests", arguments=tuple(top))
    if (root / "src").is_dir():
        yield Part(name="src", arguments=("src", "-p", "conftest"))  # which counts and has the options


def commit_of(root: Path) -> tuple[str, bool]:
    """The short name of the commit, and whether the files are those of the commit."""
    said = [
        subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
        for words in (
            ("rev-parse", "--short", "HEAD"),
            ("status", "--porcelain", "--", ".", f":!{PAGE}", f":!{RECORDS}"),
        )
    ]
    return said[0], not said[1]


def run(root: Path, part: Part, *, workers: int, limit: float) -> dict[str, Any]:
    """Run a part in a process of its own and return its record."""
    commit, clean = commit_of(root)
    kept = root / RECORDS / "running.json"
    kept.parent.mkdir(exist_ok=True)
    kept.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--full", "--record", str(kept), *part.arguments]
    started, ended = time.monotonic(), "ended"
    process = subprocess.Popen(
        [*command, *(["-n", str(workers)] if workers else [])],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "tests"), *_path()])},
        start_new_session=True,
    )
    try:
        process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        ended = f"stopped after {limit:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if ended == "ended" and process.returncode not in (0, 1):
        ended = f"pytest ended with code {process.returncode}"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    kept.unlink(missing_ok=True)
    return {
        "part": part.name,
        "commit": commit if clean else f"{commit} and changes",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "seconds": time.monotonic() - started,
        "end": ended,
        **({"passed": 0, "skipped": 0, "failed": [], "numbers": []} | found),
    }


def _path() -> list[str]:
    return [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []


def passed(record: Mapping[str, Any]) -> bool:
    return record["end"] == "ended" and not record["failed"]


def record_of(root: Path, part: Part) -> Path:
    return root / RECORDS / f"{part.name.replace('/', '.')}.json"


def read(root: Path, part: Part) -> dict[str, Any] | None:
    """The last record of a part."""
    path = record_of(root, part)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def page(records: Sequence[Mapping[str, Any]], missing: Sequence[str]) -> str:
    """The page: every stated number, then every part, each with commit and date."""
    numbers = sorted(
        (claim, measured, outcome, f"`{test}`", f"{seconds:.0f}", r["commit"], r["date"])
        for r in records
        for claim, measured, outcome, test, seconds in r["numbers"]
    )
    rows = [
        (
            f"`{r['part']}`",
            r["end"] if r["end"] != "ended" else ("passed" if passed(r) else "failed"),
            str(r["passed"]),
            ", ".join(f"`{name}`" for name in r["failed"]) or "none",
            str(r["skipped"]),
            f"{r['seconds']:.0f}",
            r["commit"],
            r["date"],
        )
        for r in records
    ]
    return "\n".join(
        [
            "# Verification",
            "",
            "The stated numbers of every guarantee. Written by `make test-full`; nothing here is typed in.",
            "",
            f"{len(records)} of {len(records) + len(missing)} parts have run, {sum(map(passed, records))} of them "
            f"passed; {sum(r['passed'] for r in records):,} tests passed, {sum(len(r['failed']) for r in records)} "
            f"failed, {sum(r['skipped'] for r in records)} were skipped; {len(numbers)} numbers.",
            *(["", f"Not run: {', '.join(f'`{name}`' for name in missing)}."] if missing else []),
            "",
            *_table(("claim", "measured", "outcome", "test", "seconds", "commit", "date"), numbers),
            "",
            "## Parts",
            "",
            *_table(("part", "result", "passed", "failed", "skipped", "seconds", "commit", "date"), rows),
            "",
        ]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="names of parts; all of them if none is given")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--workers", type=int, default=2, help="processes of a part; 0: the part's own")
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds that a part may take")
    asked = parser.parse_args(arguments)
    root: Path = asked.root
    every = list(parts(root))
    if unknown := set(asked.only) - {part.name for part in every}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    for number, part in enumerate(every, 1):
        commit, clean = commit_of(root)
        before = read(root, part)
        done = before is not None and clean and before["commit"] == commit and passed(before)
        if not done and (not asked.only or part.name in asked.only):
            print(f"{number}/{len(every)} {part.name}", flush=True)
            record = run(root, part, workers=asked.workers, limit=asked.limit)
            record_of(root, part).write_text(json.dumps(record, indent=1), encoding="utf-8")
        found = [(each, read(root, each)) for each in every]
        records = [record for _, record in found if record is not None]
        missing = [each.name for each, record in found if record is None]
        (root / PAGE).parent.mkdir(exist_ok=True)
        (root / PAGE).write_text(page(records, missing), encoding="utf-8")
    print(f"{PAGE}: {len(records)} of {len(every)} parts")
    return int(bool(missing) or not all(map(passed, records)))


if __name__ == "__main__":
    sys.exit(main())
