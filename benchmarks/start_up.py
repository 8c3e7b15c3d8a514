"""Start-up of the command line against the import of `sklearn.metrics`: processor time and modules, in fresh processes.

python benchmarks/start_up.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys

REPEATS = 7

MEASURED = """
import time
began = time.process_time()
{work}
took = time.process_time() - began
import sys
print(took, sum(name.partition(".")[0] == "fedassay" for name in sys.modules))
"""

COMMAND = """
import contextlib, io
from fedassay.cli import run_command
with contextlib.redirect_stdout(io.StringIO()):
    run_command({words!r})
"""


def measured(work: str) -> tuple[float, int]:
    """Median processor time in seconds, and how many of our modules were imported."""
    found = []
    for _ in range(REPEATS):
        done = subprocess.run(
            [sys.executable, "-c", MEASURED.format(work=work)], capture_output=True, text=True, check=True
        )
        found.append(done.stdout.split())
    return statistics.median(float(one[0]) for one in found), int(found[0][1])


def main() -> None:
    """Print a line for each."""
    peer, _ = measured("import sklearn.metrics")
    print(f"import sklearn.metrics     {peer:5.2f} s")
    for words in (
        ["--version"],
        ["--help"],
        ["evaluate", "--help"],
        ["conformal", "--help"],
        ["aggregate", "--help"],
    ):
        took, modules = measured(COMMAND.format(words=words))
        name = f"fedassay {' '.join(words)}"
        print(f"{name:<26} {took:5.2f} s, {took / peer:.2f} of the import, {modules} of our modules")


if __name__ == "__main__":
    main()
