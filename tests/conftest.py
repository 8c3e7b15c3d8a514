"""Shared by all tests: where real data may be, the dose of the large ones, and the page of stated numbers."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from stated import Verify

REPOSITORY = Path(__file__).resolve().parent.parent

# What commands print is plain and 80 characters wide wherever tests are run. Typer looks when it is imported.
for _name in (
    *("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS"),
    *("TERMINAL_WIDTH", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
):
    os.environ.pop(_name, None)
os.environ["COLUMNS"] = "80"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the stated large numbers too")
    parser.addoption("--verification", metavar="FILE", help="write what was measured to this page")


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis: the same examples in every ordinary run, on machines of any speed; new ones with --full."""
    settings.register_profile(
        "house",
        deadline=None,
        derandomize=not config.getoption("--full"),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("house")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    large = [item for item in items if "full" in item.keywords]
    items[:] = [item for item in items if "full" not in item.keywords]
    config.hook.pytest_deselected(items=large)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Keys and other bytes may be random: the names of tests must be the same in every process."""
    return argname if isinstance(val, bytes) and len(val) > 8 else None


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The folder with real data; tests that need it are skipped where it does not exist."""
    folder = Path(os.environ.get("FEDASSAY_DATA", REPOSITORY.parent / "shared" / "datasets"))
    if not folder.is_dir():
        pytest.skip("real data: there is no such folder; set FEDASSAY_DATA to run this test")
    return folder


@pytest.fixture
def verify(record_property: Callable[[str, object], None]) -> Verify:
    """Record a claim and what this run measured for it."""

    def record(claim: str, measured: str) -> None:
        record_property("claim", claim)
        record_property("measured", measured)

    return record


_stated: list[tuple[str, str, str, str, float]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call":
        return
    names = [value for key, value in report.user_properties if key == "claim"]
    measured = [value for key, value in report.user_properties if key == "measured"]
    for claim, number in zip(names, measured, strict=True):
        test = report.nodeid.split("::")
        _stated.append((str(claim), str(number), report.outcome, f"`{test[0]}`", report.duration))


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--verification")
    if path is None or hasattr(session.config, "workerinput"):
        return
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=REPOSITORY, check=False
    ).stdout.strip()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    lines = [
        "# Verification",
        "",
        "The stated numbers of every guarantee, as `make test-full` last measured them. Written by the tests;",
        "nothing here is typed in.",
        "",
        f"{today}, commit {commit or 'unknown'}, {len(_stated)} numbers.",
        "",
        "| claim | measured | outcome | test | seconds |",
        "|---|---|---|---|---|",
        *(f"| {c} | {m} | {o} | {t} | {s:.0f} |" for c, m, o, t, s in sorted(_stated)),
        "",
    ]
    Path(path).write_text("\n".join(lines), encoding="utf-8")
