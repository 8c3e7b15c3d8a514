"""The clock of the progress bar runs until the work is done, not until the first leg is."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from fedassay.cli import output


def test_the_clock_goes_on_between_legs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, bars = [0.0], []

    class Watched(Progress):
        def __init__(self, *columns: Any, **how: Any) -> None:
            super().__init__(*columns, get_time=lambda: now[0], **how)
            bars.append(self)

    def terminal(**how: Any) -> Console:
        return Console(force_terminal=True, width=80, **how)

    def shown() -> str:
        console = Console(width=80)
        with console.capture() as seen:
            console.print(bars[0].make_tasks_table(bars[0].tasks))
        return seen.get()

    monkeypatch.setattr("rich.progress.Progress", Watched)
    monkeypatch.setattr("rich.console.Console", terminal)
    with output.progress(quiet=False) as advance:
        for leg in range(3):
            now[0] += 10
            advance(leg, 5, 5)
            assert f"0:00:{now[0]:02.0f}" in shown()
            now[0] += 5  # the server computes: nothing advances
            assert f"0:00:{now[0]:02.0f}" in shown()
    assert len(bars) == 1


def test_rounds_are_counted_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, bars = [0.0], []

    class Watched(Progress):
        def __init__(self, *columns: Any, **how: Any) -> None:
            super().__init__(*columns, get_time=lambda: now[0], **how)
            bars.append(self)

    def terminal(**how: Any) -> Console:
        return Console(force_terminal=True, width=80, **how)

    def shown() -> str:
        console = Console(width=80)
        with console.capture() as seen:
            console.print(bars[0].make_tasks_table(bars[0].tasks))
        return seen.get()

    monkeypatch.setattr("rich.progress.Progress", Watched)
    monkeypatch.setattr("rich.console.Console", terminal)
    with output.rounds(quiet=False) as advance:
        for begun in range(1, 38):
            advance(0, begun, 200)
            now[0] += 1
        assert "round  37 of 200" in shown()
        assert "02:44 left" in shown()  # 164 rounds of one second
        advance(0, 3, 0)
        assert "sum 3" in shown()
        assert "left" not in shown()
