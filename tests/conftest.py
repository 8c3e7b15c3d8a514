"""Shared by all tests: where real data may be, the dose of the large ones, and the record of stated numbers."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from stated import Verify

REPOSITORY = Path(__file__).resolve().parent.parent

# What commands print is plain and 80 characters wide wherever tests are run.
for _name in (
    *("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS"),
    *("TERMINAL_WIDTH", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
):
    os.environ.pop(_name, None)
os.environ["COLUMNS"] = "80"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the stated large numbers too")
    parser.addoption("--record", metavar="FILE", help="write outcomes and stated numbers to this file")


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


@pytest.fixture(scope="module", autouse=True)
def rehearsals(request: pytest.FixtureRequest) -> Iterator[None]:
    """Studies do without the one of made-up rows that goes first, which is three more runs and all that they leave.

    It is there with `--full`, and for the contracts and the tests about it, which override this.
    """
    full = request.config.getoption("--full")
    with nullcontext() if full else mock.patch("fedassay.api.study.require_writable"):
        yield


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


_seconds: Counter[str] = Counter()
_numbers: list[tuple[object, object, str, str, float]] = []
_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds["/".join(Path(report.nodeid.split("::")[0]).parts[:2])] += report.duration
    if report.failed or report.when == "call" or (report.when == "setup" and report.skipped):
        _outcomes[report.nodeid] = report.outcome
    if report.when != "call":
        return
    names = [value for key, value in report.user_properties if key == "claim"]
    measured = [value for key, value in report.user_properties if key == "measured"]
    test = report.nodeid.split("::")[0]
    for claim, number in zip(names, measured, strict=True):
        _numbers.append((claim, number, report.outcome, test, report.duration))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The time of each part, where there is more than one minute to divide."""
    if sum(_seconds.values()) > 60:
        terminalreporter.section("seconds of each part, of one process")
        for part, seconds in _seconds.most_common(25):
            terminalreporter.line(f"{seconds:6.0f} {part}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--record")
    if path is None or hasattr(session.config, "workerinput"):
        return
    ends = list(_outcomes.values())
    failed = [name for name, end in _outcomes.items() if end == "failed"]
    found = {"passed": ends.count("passed"), "skipped": ends.count("skipped"), "failed": failed}
    Path(path).write_text(json.dumps({**found, "numbers": _numbers}), encoding="utf-8")
