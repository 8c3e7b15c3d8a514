"""The clock of the progress bar runs until the work is done, not until the first leg is."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from fedassay.cli import output


class Watch:
    """A clock that the test moves, and the bars that go by it."""

    now = 0.0

    def __init__(self) -> None:
        self.bars: list[Progress] = []

    def bar(self, *columns: Any, **how: Any) -> Progress:
        self.bars.append(Progress(*columns, get_time=lambda: self.now, **how))
        return self.bars[-1]

    def shown(self) -> str:
        console = Console(width=80)
        with console.capture() as seen:
            console.print(self.bars[0].make_tasks_table(self.bars[0].tasks))
        return seen.get()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch()
    monkeypatch.setattr("rich.progress.Progress", found.bar)
    monkeypatch.setattr("rich.console.Console", partial(Console, force_terminal=True, width=80))
    return found


def test_the_clock_goes_on_between_legs(watch: Watch) -> None:
    with output.progress(quiet=False) as advance:
        for leg in range(3):
            watch.now += 10
            advance(leg, 5, 5)
            assert f"0:00:{watch.now:02.0f}" in watch.shown()
            watch.now += 5  # the server computes: nothing advances
            assert f"0:00:{watch.now:02.0f}" in watch.shown()
    assert len(watch.bars) == 1


def test_rounds_are_counted_with_the_time_that_is_left(watch: Watch) -> None:
    with output.rounds(quiet=False) as advance:
        for begun in range(1, 38):
            advance(0, begun, 200)
            watch.now += 1
        assert "round  37 of 200" in watch.shown()
        assert "02:44 left" in watch.shown()  # 164 rounds of one second
        advance(0, 3, 0)
        assert "sum 3" in watch.shown()
        assert "left" not in watch.shown()
