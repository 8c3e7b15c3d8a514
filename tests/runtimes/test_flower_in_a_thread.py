"""Flower's simulation, driven from outside: whatever ends first, nothing is left and the right error goes on.

Flower itself is played here by a few lines that call the ServerApp as it does, in a thread; the contract runs the real
one.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

from fedassay.errors import FederationError
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.runtimes.flower import simulation
from fedassay.runtimes.flower.runtime import FlowerRuntime

pytestmark = pytest.mark.filterwarnings("ignore")

SOON = 10.0
"""Seconds: far below those for which replies, or nodes, would be awaited."""


def no_endpoint(name: str, request: bytes) -> Any:
    raise AssertionError("nobody is asked")


CAST = simulation.Cast(clients=("a", "b"), endpoint=no_endpoint)


class EmptyGrid:
    """A grid without nodes."""

    def get_node_ids(self) -> list[int]:
        return []


class PlayedFlower:
    """What `run_simulation` does, without Ray: the ServerApp in a thread, and `meanwhile` until it has ended."""

    def __init__(self) -> None:
        self.started = self.ended = False
        self.before: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def __call__(self, server_app: Any, client_app: Any, **options: Any) -> None:
        self.started = True
        self.before()
        server = threading.Thread(target=server_app, args=(EmptyGrid(), None), name="played-server")
        server.start()
        self.meanwhile()
        server.join()
        self.after()
        self.ended = True


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedFlower]:
    """A played Flower, which must not leave a thread behind."""
    flower = PlayedFlower()
    monkeypatch.setattr(simulation, "run_simulation", flower)
    before, level = set(threading.enumerate()), logging.getLogger("flwr").level
    yield flower
    deadline = time.monotonic() + SOON
    while set(threading.enumerate()) > before and time.monotonic() < deadline:
        time.sleep(0.01)  # a server thread may take a moment to return
    assert set(threading.enumerate()) <= before
    assert logging.getLogger("flwr").level == level


@contextmanager
def simulated() -> Iterator[FlowerRuntime]:
    with simulation.simulated(CAST, randomness=SimulatedRandomness(1)) as runtime:
        yield runtime


def broken() -> None:
    raise RuntimeError("Ray has died")


def test_the_runtime_lives_as_long_as_its_context(played: PlayedFlower) -> None:
    with simulated() as runtime:
        assert (list(runtime.clients), runtime.name, runtime.mode) == (["a", "b"], "flower", "simulation")
        assert played.started
        assert not played.ended
    assert played.ended


def test_what_the_body_raises_goes_on_when_the_simulation_has_ended(played: PlayedFlower) -> None:
    with pytest.raises(ZeroDivisionError), simulated():
        raise ZeroDivisionError
    assert played.ended


def test_an_interrupt_ends_the_simulation(played: PlayedFlower) -> None:
    with pytest.raises(KeyboardInterrupt), simulated():
        signal.raise_signal(signal.SIGINT)
    assert played.ended


@pytest.mark.parametrize("delay", [0.0, 0.2])
def test_an_interrupt_while_flower_is_starting(played: PlayedFlower, delay: float) -> None:
    """As early as the thread has begun, or while the grid is awaited."""
    starting = threading.Event()

    def begin() -> None:
        starting.set()
        time.sleep(0.5)

    def interrupt() -> None:
        starting.wait()
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    played.before = begin
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt), simulated():
        pytest.fail("there is no grid yet")
    assert played.ended


def test_a_flower_that_cannot_start_says_why(played: PlayedFlower) -> None:
    played.before = broken
    with pytest.raises(FederationError, match="Ray has died") as failure, simulated():
        pytest.fail("there is no grid")
    assert isinstance(failure.value.__cause__, RuntimeError)


def test_a_flower_that_leaves_the_process_does_not_take_it_along(played: PlayedFlower) -> None:
    def leave() -> None:
        raise SystemExit(700)

    played.before = leave
    with pytest.raises(FederationError), simulated():
        pytest.fail("there is no grid")


def test_nobody_waits_for_replies_of_a_flower_that_has_broken_off(played: PlayedFlower) -> None:
    played.meanwhile = broken
    started = time.monotonic()
    with pytest.raises(FederationError, match="Ray has died"), simulated() as runtime:
        runtime.connect()
    assert time.monotonic() - started < SOON


def test_a_flower_that_breaks_when_it_ends_is_not_passed_over(played: PlayedFlower) -> None:
    played.after = broken
    with pytest.raises(FederationError, match="Ray has died"), simulated():
        pass


def test_the_error_of_the_body_comes_first(played: PlayedFlower) -> None:
    played.after = broken
    with pytest.raises(ZeroDivisionError), simulated():
        raise ZeroDivisionError
