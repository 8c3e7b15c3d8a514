"""Flower's simulation on Ray: the same messages as in a deployment, all nodes on this machine.

The rows of a simulation on disk, one file per column, so that each simulated client reads only its own.

Ray runs clients in other processes. Handing them the whole federation with every message would cost its size
each time; instead the columns lie in a temporary folder as plain `.npy` files (never pickled), sorted by client.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from numpy.typing import NDArray

from fedassay.crypto.keys import KeyPair
from fedassay.data.federation import Federation
from fedassay.data.tables import ArrayRows, batch_length
from fedassay.errors import FederationError, UsageError
from fedassay.kernel.client import Client, Site
from fedassay.kernel.endpoint import Endpoint
from fedassay.kernel.envelope import MOST_PREKEYS, Envelope
from fedassay.kernel.helper import Helper
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Message as WireMessage
from fedassay.runtimes import flower
from fedassay.runtimes.flower.card import FlowerSimulation
from fedassay.runtimes.flower.post import HELLO, REQUEST, Frame, NodeLetter, Out, Post
from fedassay.runtimes.flower.runtime import LEG_TIMEOUT, Directory, FlowerRuntime, answer_hello
from fedassay.runtimes.simulated import SERVERS, Progress, SimulatedFederation, SimulatedRuntime, silent

# --- the rows of a simulation on disk -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spool:
    """Beginning and end of each client's rows in the columns of a folder."""

    folder: Path
    places: Mapping[str, tuple[int, int]] = field(repr=False)

    @classmethod
    def write(cls, federation: Federation, folder: Path) -> Spool:
        """Write all rows, client by client."""
        ends = np.cumsum(federation.rows_per_client).tolist()
        places = {
            name: (end - int(rows), end)
            for name, rows, end in zip(federation.clients, federation.rows_per_client, ends, strict=True)
        }
        columns: dict[str, NDArray[Any]] = {}
        for name, (start, _) in places.items():
            for batch in federation.rows_of(name).batches():
                stop = start + batch_length(batch)
                for role, values in batch.items():
                    if role not in columns:
                        columns[role] = np.lib.format.open_memmap(
                            folder / f"{role}.npy",
                            mode="w+",
                            dtype=values.dtype,
                            shape=(federation.row_count, *values.shape[1:]),
                        )
                    columns[role][start:stop] = values
                start = stop
        for column in columns.values():
            column.flush()  # type: ignore[attr-defined]
        return cls(folder=folder, places=places)

    def rows_of(self, client: str) -> ArrayRows:
        """Return the rows of one client, mapped from the disk."""
        start, stop = self.places[client]
        return ArrayRows(
            columns={
                path.stem: np.load(path, mmap_mode="r", allow_pickle=False)[start:stop]
                for path in sorted(self.folder.glob("*.npy"))
            }
        )

    def note(self, client: str) -> Path:
        """Return the file in which a client notes how many rows it left out."""
        return self.folder / f"{self.places[client][0]}-{self.places[client][1]}.truncated"

    def noted(self) -> int:
        """Return the rows that all clients left out, in their latest measurements."""
        return sum(int(path.read_text(encoding="ascii")) for path in self.folder.glob("*.truncated"))


# --- flower's simulation on Ray -----------------------------------------------------------------------------

MOST_CLIENTS = 1000
"""Largest number of clients: a node costs about 10 ms of processor time a round; above, use the in-process runtime."""

_STARTUP = 120.0
_STATE = "fedassay"

_Source = SecureRandomness | SimulatedRandomness


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Participants of a simulation. It is sent to the Ray processes, so it must be small.

    `endpoint(name, request)` makes the party of this name that is to answer this request; what it
    remembers from earlier requests is put into its store afterwards. `local` is a helper in the driving process.
    """

    clients: Sequence[str]
    endpoint: Callable[[str, bytes], Endpoint]
    helpers: Sequence[str] = ()
    local: Endpoint | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Parties, in the order of Flower's partitions."""
        return (*self.clients, *self.helpers)


@dataclass(frozen=True, kw_only=True)
class SpooledClients:
    """The clients of a federation whose rows lie in a folder, and the second server."""

    spool: Spool
    randomness: _Source = field(repr=False)
    split_key: bytes = field(repr=False)
    holdout: float

    def __call__(self, name: str, request: bytes) -> Endpoint:
        """Make the party of this name."""
        # A seeded stream would start anew with every message; each leg has a stream of its own instead.
        asked = wire.decode(request)
        path = f"client/{name}/{asked.get('exchange', b'').hex()}/{asked.get('leg')}"
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
                holdout=self.holdout,
            ),
        )


class _Counted(Client):
    """A client that notes how many rows it left out; only a simulation may know."""

    def __init__(self, note: Path, site: Site) -> None:
        super().__init__(site)
        self._note = note

    def reply(self, opened: Envelope, state: WireMessage) -> tuple[WireMessage, WireMessage]:
        """Reply as `Client` does, and note how many rows were left out."""
        answered = super().reply(opened, state)
        if self.truncated:
            self._note.write_text(str(self.truncated), encoding="ascii")
        return answered


def client_app(cast: Cast) -> ClientApp:
    """Return the ClientApp of a simulation: the node of partition i is the i-th of the cast."""
    app = ClientApp()
    names, endpoint = cast.names, cast.endpoint

    def hello(message: Message, context: Context) -> Message:
        name = names[int(context.node_config["partition-id"])]
        request = Frame.unpack(message).body
        party = endpoint(name, request)
        prekeys = party.offer(MOST_PREKEYS, asker="")
        body = answer_hello(request, name=name, node=context.node_id, prekeys=prekeys)
        _keep(party, context)
        return Message(Frame(body=body).pack(), reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        name, request = names[int(context.node_config["partition-id"])], Frame.unpack(message).body
        party = endpoint(name, request)
        if _STATE in context.state:
            kept = context.state.config_records[_STATE]
            party.store.restore(kept["store"])  # type: ignore[arg-type]
            if isinstance(party, Client):
                party.site.prekeys.restore(kept["prekeys"])  # type: ignore[arg-type]
        reply = party.answer(request)
        _keep(party, context)
        return Message(Frame(body=reply).pack(), reply_to=message)

    app.query(HELLO.partition(".")[2])(hello)
    app.query(REQUEST.partition(".")[2])(answer)
    return app


def _keep(party: Endpoint, context: Context) -> None:
    """Keep what a party remembers until its next message."""
    prekeys = party.site.prekeys.dump() if isinstance(party, Client) else b""
    context.state[_STATE] = ConfigRecord({"store": party.store.dump(), "prekeys": prekeys})


class _Flower:
    """Flower's simulation in a thread of its own, so that it can be driven from outside.

    Flower calls a ServerApp, which must not return before the run is over. This one hands out the grid, over which
    messages go, and waits until it is signalled that it is not needed any more.
    """

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._grids: Queue[Grid | None] = Queue()
        self._begun, self._over, self._ended = Event(), Event(), Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="fedassay-flower", daemon=True)

    def _run(self) -> None:
        self._begun.set()
        if not self._over.is_set():  # an interrupt may come before the thread does
            self._simulate()
        self._ended.set()

    def _simulate(self) -> None:
        app = ServerApp()

        @app.main()
        def main(grid: Grid, context: Context) -> None:
            self._grids.put(grid)
            self._over.wait()

        nodes = len(self._cast.names)
        try:
            run_simulation(app, client_app(self._cast), num_supernodes=nodes, backend_config=_backend())
        except BaseException as error:  # it belongs to the driver
            self._failure = error
        finally:
            self._over.set()
            self._grids.put(None)

    def __enter__(self) -> _Flower:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        if self._begun.is_set():
            self._ended.wait()
        if kind is None and self._failure is not None:
            raise self._broken_off() from self._failure

    def start(self) -> Grid:
        """Start it; what messages go over."""
        self._thread.start()
        grid = self._grids.get()
        if grid is None:
            raise self._broken_off() from self._failure
        return grid

    def require(self) -> None:
        """Raise if Flower has ended by itself: no client will answer any more."""
        if self._over.is_set():
            raise self._broken_off() from self._failure

    def _broken_off(self) -> FederationError:
        why = f" ({self._failure})" if self._failure is not None else ""
        return FederationError(f"flower: the simulation broke off{why}; see what Flower and Ray have logged.")


@dataclass(frozen=True, kw_only=True)
class _LivePost(Post):
    """Post of a simulation: it does not wait for replies once the simulation has ended."""

    flower: _Flower

    def look(self, out: Out) -> Iterator[tuple[str, NodeLetter, Frame | None]]:
        """Yield what has arrived; see `Post`."""
        self.flower.require()
        yield from super().look(out)


@contextmanager
def simulated(
    cast: Cast,
    *,
    randomness: _Source,
    timeout: float = LEG_TIMEOUT,
    progress: Progress = silent,
    truncated: Callable[[], int] | None = None,
) -> Iterator[FlowerRuntime]:
    """Open a runtime whose clients are Flower nodes on Ray, as long as the context lasts.

    What the body raises, Ctrl-C included, ends the simulation and goes on. If the simulation ends by itself, the
    runtime raises `FederationError`. Assumption: nothing here is protected from anything: one machine holds all rows.
    """
    with _quiet(), _Flower(cast) as flower:
        post = _LivePost(grid=flower.start(), interval=0.1, together=len(cast.names), flower=flower)
        directory = Directory(
            post=post,
            expected=cast.names,
            randomness=randomness.child("hello"),
            wait=_STARTUP,
            timeout=timeout,
        )
        yield FlowerRuntime(
            clients=cast.clients,
            directory=directory,
            reply_pair=KeyPair.draw(SecureRandomness()),
            simulated=True,
            local=cast.local,
            helpers=cast.helpers,
            progress=progress,
            truncated=truncated,
        )


@contextmanager
def simulated_federation(federation: SimulatedFederation) -> Iterator[FlowerRuntime]:
    """Open the runtime of `simulated` with the clients of a federation."""
    rows, randomness = federation.rows, federation.randomness
    if rows.client_count > MOST_CLIENTS:
        raise UsageError(
            f"runtime flower: got {rows.client_count:,} clients, expected at most {MOST_CLIENTS:,}; "
            "name the clients with `client`, or use the in-process runtime."
        )
    with tempfile.TemporaryDirectory(prefix="fedassay-") as folder:
        spool = Spool.write(rows, Path(folder))
        first, second = SERVERS
        local = Helper(first, randomness=randomness.child(f"helper/{first}")) if federation.helpers else None
        cast = Cast(
            clients=tuple(rows.clients),
            endpoint=SpooledClients(
                spool=spool, randomness=randomness, split_key=federation.split_key, holdout=federation.holdout
            ),
            helpers=(second,) if federation.helpers else (),
            local=local,
        )
        with simulated(
            cast, randomness=randomness, progress=federation.progress, truncated=spool.noted
        ) as runtime:
            yield runtime


def _backend() -> dict[str, Any]:
    return {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"},
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Flower, which reports every step to standard error; here the caller decides what is reported."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- the clients of a simulation on Flower ------------------------------------------------------------------


def start(
    parameters: FlowerSimulation, federation: SimulatedFederation
) -> AbstractContextManager[SimulatedRuntime]:
    """Start the simulation; see `RuntimeCard`. Flower and Ray are an extra."""
    flower.require("flwr", "ray")

    return simulated_federation(federation)
