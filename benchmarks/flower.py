"""A secure sum of 100,000 values with a fifth of the clients lost: on Flower, in process, and by Flower's SecAgg+.

    python benchmarks/flower.py                  # about five minutes
    python benchmarks/flower.py simulation       # or: in-process, deployment

Needs the extra `flower`. The lines of `simulation` are measured in one run, one after the other, on the same Ray.
All totals are checked: ours must be exact over the clients that are left; SecAgg+'s must be the average of those, up to
its quantisation. SecAgg+ quantises and clips floats and takes its masks from a Mersenne Twister with a 32-bit seed; it
is measured as it is. The last line is a real deployment on loopback: a SuperLink, three SuperNodes, seconds per leg.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from double_masking.graph import parameters
from fedassay.kernel.client import Client, Site
from fedassay.kernel.run import Job, Runtime, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.policy.judgement import AllowAll
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Batch,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Setting,
    Sum,
    Summary,
    Vector,
)
from fedassay.runtimes.flower.runtime import FlowerRuntime
from fedassay.runtimes.flower.simulation import Cast, _backend, _quiet, simulated
from fedassay.runtimes.in_process.card import LARGEST_FAITHFUL
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.trust.secure_sum import SecureSum

LENGTH = 100_000
DROPOUT = 0.2


@dataclass(frozen=True, kw_only=True)
class Ones(Summary[Vector]):
    """A vector of ones from every client."""

    size: int
    name: ClassVar[str] = "ones"
    columns: ClassVar[tuple[str, ...]] = ()

    @property
    def length(self) -> int:
        """As long as asked."""
        return self.size

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Ones."""
        return np.ones(self.size, dtype=np.int64), memory

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """As counts."""
        return Sensitivity.of_counts(protection, multipliers=(1,) * self.size)

    def read(self, total: Vector) -> Vector:
        """The total."""
        return total


@dataclass(frozen=True)
class NoRows:
    """A client without rows."""

    def batches(self) -> Iterator[Batch]:
        """Nothing."""
        return iter(())


@dataclass(frozen=True)
class Ask:
    """One query."""

    def steps(self, setting: Setting) -> Any:
        """Ask once."""
        released = yield Sum(of=Ones(size=LENGTH))
        return released


def client(name: str) -> Client:
    site = Site(
        name=name,
        dataset=name,
        rows=NoRows,
        policy=AllowAll(),
        ledger=MemoryLedger(None),
        randomness=SecureRandomness(),
        split_key=bytes(32),
    )
    return Client(site, summaries={"ones": Ones}, trust_models={"secure-sum": SecureSum})


def is_lost(name: str, leg: int = 0) -> bool:
    """Every fifth client, in either leg."""
    return int(name.rpartition("-")[2]) % 5 == 0


def endpoint(name: str, request: bytes) -> Client:
    if "leg" in wire.decode(request) and is_lost(name):  # who says "hello" is not lost yet
        raise ConnectionError("lost")
    return client(name)


def names(clients: int) -> list[str]:
    return [f"client-{i:04d}" for i in range(clients)]


def released_by(runtime: Runtime, clients: int) -> tuple[float, int]:
    """Seconds, and how many clients are in the release."""
    if isinstance(runtime, FlowerRuntime):
        runtime.connect()  # Ray has started when the nodes have been found
    trust = SecureSum(dropout=DROPOUT)
    if clients > LARGEST_FAITHFUL:
        # As simulations do; with the very first client, one member too many would be lost.
        trust = trust.with_members(names(clients)[1:])
    setting = Setting(trust=trust, protection=Protection(), budget=None, clients=clients)
    started = perf_counter()
    released = run(
        [Job(name="ask", task=Ask(), setting=setting)],
        runtime=runtime,
        ledger=MemoryLedger(None),
        randomness=SecureRandomness(),
        study="benchmark",
    )["ask"]
    taken = perf_counter() - started
    assert (released.value == released.clients).all()
    assert released.clients == clients - clients // 5
    return taken, released.clients


def row(what: str, clients: int, kept: int, taken: float) -> str:
    return f"{what:<44} {clients:>8,} {clients - kept:>6,} {taken:>9.1f}s"


def on_flower(clients: int) -> str:
    cast = Cast(clients=tuple(names(clients)), endpoint=endpoint)
    started = perf_counter()
    with simulated(cast, randomness=SecureRandomness(), timeout=170) as runtime:
        taken, kept = released_by(runtime, clients)
    whole = perf_counter() - started
    return row(f"here, Flower simulation (and {whole - taken:.0f} s for Ray)", clients, kept, taken)


def in_process(clients: int) -> str:
    taken, kept = released_by(Faithful(map(client, names(clients)), drops=is_lost), clients)
    return row("here, in process", clients, kept, taken)


def secagg_plus(clients: int) -> str:
    """Flower's own protocol with as many neighbours, the same clients lost at the same point."""
    from flwr.client import NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp import ClientApp
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    class Fit(NumPyClient):
        def __init__(self, lost: bool) -> None:  # noqa: FBT001
            self.lost = lost

        def fit(self, parameters: Any, config: Any) -> Any:
            if self.lost:
                raise ConnectionError("lost")
            return [sent], 1, {}

    class Noting(FedAvg):
        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            (mean,) = parameters_to_ndarrays(results[0][1].parameters)
            kept.append(len(results))
            errors.append(float(np.abs(mean - sent).max()))
            return super().aggregate_fit(server_round, results, failures)

    def client_fn(context: Any) -> Any:
        return Fit(is_lost(names(clients)[int(context.node_config["partition-id"])])).to_client()

    k, threshold, _, _ = parameters(clients, DROPOUT, 0.1)
    spent: list[float] = []
    kept: list[int] = []
    errors: list[float] = []
    sent = np.linspace(0, 1, LENGTH)  # by every client, so that the average is known
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        while len(list(grid.get_node_ids())) < clients:
            time.sleep(0.1)
        strategy = Noting(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_available_clients=clients,
            initial_parameters=ndarrays_to_parameters([np.ones(LENGTH)]),
        )
        legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=1), strategy=strategy)
        workflow = SecAggPlusWorkflow(
            num_shares=k + 1,
            reconstruction_threshold=threshold,
            max_weight=1,
            timeout=170,
        )
        started = perf_counter()
        DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
        spent.append(perf_counter() - started)

    with _quiet():
        run_simulation(
            app, ClientApp(client_fn=client_fn, mods=[secaggplus_mod]), clients, backend_config=_backend()
        )
    assert kept == [clients - clients // 5]
    assert errors[0] < 1e-3  # what its quantisation may lose
    return row(f"Flower SecAgg+, simulation (error {errors[0]:.1g})", clients, kept[0], spent[0])


def deployment() -> list[str]:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "runtimes"))
    from flower_lab import Lab, hospitals, running

    from fedassay.runtimes.flower.study import FlowerStudy
    from fedassay.runtimes.flower.submission import submit

    begun: list[float] = []

    def heard(event: dict[str, Any]) -> None:
        if event["event"] == "result" or event.get("done") == 0:
            begun.append(perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab", hospitals(["a", "b", "c"]), tls=True)
        with running(lab):
            started = perf_counter()
            submit(lab.app, FlowerStudy(name="s"), lab.connection, heard=heard)
            whole = perf_counter() - started
    legs = ", ".join(f"{seconds:.1f}" for seconds in np.diff(begun))
    return [f"3 SuperNodes, TLS: {whole:.0f} s from submission to result; seconds per leg: {legs}"]


PARTS = {
    "simulation": ((on_flower, 100), (secagg_plus, 100)),
    "in-process": ((in_process, 100), (in_process, 1000)),
    "deployment": (),
}


def main() -> None:
    logging.getLogger("fedassay.flower").setLevel(logging.ERROR)
    logging.getLogger("flwr").addFilter(lambda record: False)  # clients are lost on purpose
    parts = sys.argv[1:] or list(PARTS)
    print(f"Secure sum of {LENGTH:,} values")
    print(f"{'':<44} {'clients':>8} {'lost':>6} {'seconds':>10}")
    for part in parts:
        for work, clients in PARTS[part]:
            print(work(clients), flush=True)
    if "deployment" in parts:
        print("Deployment on loopback")
        print("\n".join(deployment()))


if __name__ == "__main__":
    main()
