"""Flower's simulation on Ray: the same messages as in a deployment, all nodes on this machine."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedassay.client import Client, Site
from fedassay.data.federation import Federation
from fedassay.endpoint import Endpoint
from fedassay.envelope import Envelope
from fedassay.errors import FederationError, UsageError
from fedassay.helper import Helper
from fedassay.privacy.ledger import MemoryLedger
from fedassay.privacy.policy import AllowAll
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol import Message as WireMessage
from fedassay.runtimes.flower.directory import Directory, answer_hello
from fedassay.runtimes.flower.frames import HELLO, REQUEST, Frame
from fedassay.runtimes.flower.post import Post
from fedassay.runtimes.flower.runtime import LEG_TIMEOUT, FlowerRuntime, silent
from fedassay.runtimes.flower.spool import Spool
from fedassay.runtimes.in_process import SERVERS, Progress

MOST_CLIENTS = 1000
"""A node costs about 10 ms of processor time a round: more than this is a task for the in-process runtime."""

_STARTUP = 120.0
_STATE = "fedassay"

Answer = TypeVar("Answer")
Source = SecureRandomness | SimulatedRandomness


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who takes part in a simulation. It is sent to the Ray processes, so it must be small.

    `endpoint(name, request)` makes the party of this name that is to answer this request; what it
    remembers from earlier requests is put into its store afterwards. `local` is a helper in the driving process.
    """

    clients: Sequence[str]
    endpoint: Callable[[str, bytes], Endpoint]
    helpers: Sequence[str] = ()
    local: Endpoint | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Everyone, in the order of Flower's partitions."""
        return (*self.clients, *self.helpers)


@dataclass(frozen=True, kw_only=True)
class SpooledClients:
    """The clients of a federation whose rows lie in a folder, and the second server."""

    spool: Spool
    randomness: Source = field(repr=False)
    split_key: bytes = field(repr=False)
    held_out: float

    def __call__(self, name: str, request: bytes) -> Endpoint:
        """The party of this name."""
        # A seeded stream would start anew with every message; each request has a stream of its own instead.
        path = f"client/{name}/{hashlib.sha256(request).hexdigest()}"
        if name == SERVERS[1]:
            return Helper(name, randomness=self.randomness.child(path))
        return _Counted(
            self.spool.note(name),
            Site(
                name=name,
                dataset=name,
                rows=partial(self.spool.rows_of, name),
                policy=AllowAll(),
                ledger=MemoryLedger(None),
                randomness=self.randomness.child(path),
                split_key=self.split_key,
                held_out=self.held_out,
            ),
        )


class _Counted(Client):
    """A client that notes how many rows it left out; only a simulation may know."""

    def __init__(self, note: Path, site: Site) -> None:
        super().__init__(site)
        self._note = note

    def reply(self, opened: Envelope, state: WireMessage) -> tuple[WireMessage, WireMessage]:
        """See `Client`."""
        answered = super().reply(opened, state)
        if self.truncated:
            self._note.write_text(str(self.truncated), encoding="ascii")
        return answered


def client_app(cast: Cast) -> ClientApp:
    """The ClientApp of a simulation: the node of partition i is the i-th of the cast."""
    app = ClientApp()
    names, endpoint = cast.names, cast.endpoint

    def hello(message: Message, context: Context) -> Message:
        name = names[int(context.node_config["partition-id"])]
        body = answer_hello(Frame.unpack(message).body, name=name, node=context.node_id)
        return Message(Frame(body=body).pack(), reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        name, request = names[int(context.node_config["partition-id"])], Frame.unpack(message).body
        party = endpoint(name, request)
        if _STATE in context.state:
            party.store.restore(context.state.config_records[_STATE]["store"])  # type: ignore[arg-type]
        reply = party.answer(request)
        context.state[_STATE] = ConfigRecord({"store": party.store.dump()})
        return Message(Frame(body=reply).pack(), reply_to=message)

    app.query(HELLO.partition(".")[2])(hello)
    app.query(REQUEST.partition(".")[2])(answer)
    return app


def simulate(
    cast: Cast,
    body: Callable[[FlowerRuntime], Answer],
    *,
    randomness: Source,
    timeout: float = LEG_TIMEOUT,
    progress: Progress | None = None,
) -> Answer:
    """Call `body` with a runtime whose clients are Flower nodes on Ray, and return what it returns.

    Whatever `body` raises is raised here. Assumption: nothing here is protected from anything: one machine
    holds all rows.
    """
    outcome: list[Answer] = []
    failure: list[BaseException] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        post = Post(grid=grid, interval=0.1, together=len(cast.names))
        directory = Directory(
            post=post, expected=cast.names, randomness=randomness.child("hello"), wait=_STARTUP
        )
        runtime = FlowerRuntime(
            clients=cast.clients,
            directory=directory,
            simulated=True,
            local=cast.local,
            helpers=cast.helpers,
            timeout=timeout,
            progress=progress or silent,
        )
        try:
            outcome.append(body(runtime))
        except BaseException as error:  # it belongs to the caller, not to Flower's thread
            failure.append(error)

    with _quiet():
        run_simulation(app, client_app(cast), num_supernodes=len(cast.names), backend_config=_backend())
    if failure:
        raise failure[0]
    if not outcome:
        raise FederationError("flower: the simulation ended before the run did; see the messages above.")
    return outcome[0]


def simulate_federation(
    federation: Federation,
    body: Callable[[FlowerRuntime], Answer],
    *,
    randomness: Source,
    split_key: bytes,
    held_out: float,
    two_servers: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """`simulate` over the clients of a federation."""
    if federation.client_count > MOST_CLIENTS:
        raise UsageError(
            f"--runtime flower: got {federation.client_count:,} clients, expected at most {MOST_CLIENTS:,}; "
            "name the clients with --client, or use the in-process runtime."
        )
    with tempfile.TemporaryDirectory(prefix="fedassay-") as folder:
        clients = SpooledClients(
            spool=Spool.write(federation, Path(folder)),
            randomness=randomness,
            split_key=split_key,
            held_out=held_out,
        )
        first, second = SERVERS
        cast = Cast(
            clients=tuple(federation.clients),
            endpoint=clients,
            helpers=(second,) if two_servers else (),
            local=Helper(first, randomness=randomness.child(f"helper/{first}")) if two_servers else None,
        )

        def counted(runtime: FlowerRuntime) -> Answer:
            answer = body(runtime)
            runtime.truncated = clients.spool.noted()
            return answer

        return simulate(cast, counted, randomness=randomness, progress=progress)


def _backend() -> dict[str, Any]:
    return {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"},
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Flower reports every step to standard error; here the caller decides what is said."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
