"""How far a run has come, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, int], None]
"""Called with the leg, the clients done and the clients in all."""


def silent(leg: int, done: int, total: int) -> None:
    """No progress."""
