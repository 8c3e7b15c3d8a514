"""A federated platform carries fedassay's messages itself: here over HTTP, there over whatever it has.

    python examples/embed_in_a_platform.py [FOLDER]

A platform brings two things. At a site: bytes in, bytes out (`Client.answer`), and prekeys for sums to come
(`Client.offer`); the site's own file says which rows, which policy, which budget, whose keys. At the server: a runtime
that delivers requests and brings back what arrives (`ask`). What is asked, who adds which noise, what is masked and
what is charged to which ledger is none of its business, and the same for all runtimes. Replies are sealed for the
coordinator and signed by the site, whatever carries them.

A platform checks who asks: here by the coordinator's signature on each request. The public key that was checked is
handed on, `answer(request, asker=..)`, so that policies can name those who may ask. Real transports add TLS.
"""

from __future__ import annotations

import base64
import sys
import threading
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pandas as pd

import fedassay
from fedassay.cli.demo import hospitals
from fedassay.crypto.identity import Credentials, Identity, key_to_text, verifies
from fedassay.crypto.keys import KeyPair
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.client import Client
from fedassay.kernel.run import run
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.ledger.charges import Charge, MemoryLedger
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import COORDINATOR, Party, Setting
from fedassay.runtimes.messaging import MessagingRuntime

TRUST = fedassay.DistributedDP()
BUDGET = fedassay.Budget(epsilon=1.0, delta=1e-6)
SITES = 4
PURPOSE = "platform request"
"""What the coordinator's signature on a request is for."""

SITE = """\
name = "{name}"
dataset = "{name}/admissions"
data = "scores.parquet"
key = "site.key"
state = "state"

[columns]
score = "risk"
label = "outcome"

[policy]
trust_models = ["distributed-dp"]
tasks = ["evaluate"]
smallest_cohort = 3
total = {{ epsilon = 1.0, delta = 1e-6 }}

[roster]
{roster}
"""


def settle(folder: Path) -> tuple[Credentials, list[Client]]:
    """The coordinator, and each site with its rows, keys and rules, as it would be set up on its own machine."""
    rows = pd.DataFrame(hospitals(clients=SITES, patients=8000, seed=1))
    sites = {name: folder / name for name in sorted(rows.hospital.unique())}
    keys = {name: Identity.draw(SecureRandomness()) for name in (COORDINATOR, *sites)}
    roster = "\n".join(f'{name} = "{key_to_text(key.public)}"' for name, key in keys.items())
    for name, place in sites.items():
        place.mkdir(parents=True)
        keys[name].save(place / "site.key")
        rows[rows.hospital == name].to_parquet(place / "scores.parquet")
        (place / "site.toml").write_text(SITE.format(name=name, roster=roster), encoding="utf-8")
    believed = {name: key.public for name, key in keys.items()}
    coordinator = Credentials(identity=keys[COORDINATOR], roster=believed)
    return coordinator, [SiteFile.read(place / "site.toml").open() for place in sites.values()]


def serve(client: Client, coordinator: bytes) -> HTTPServer:
    """The platform's half at a site, which answers the holder of one public key."""
    asker = key_to_text(coordinator)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers["Content-Length"]))
            signature = base64.b64decode(self.headers["Signature"])
            if not verifies(coordinator, PURPOSE, request, signature):
                self.send_error(403)
            elif self.path == "/prekeys":
                self._send(wire.encode({"prekeys": list(client.offer(1, asker=asker))}))
            else:
                self._send(client.answer(request, asker=asker))

        def _send(self, reply: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class OverHttp(MessagingRuntime):
    """The platform's half at the server: site names to addresses."""

    simulated = False  # a release: seeds are refused

    def __init__(self, addresses: Mapping[str, str], coordinator: Credentials) -> None:
        super().__init__(
            reply_pair=KeyPair.draw(SecureRandomness()),
            credentials=coordinator,
            asker=key_to_text(coordinator.identity.public),
        )
        self._addresses, self._coordinator = addresses, coordinator
        self.clients = list(addresses)
        for name in addresses:  # the first ones; more come with the replies
            offered = self._post(name, b"", "/prekeys")
            self.keep(name, [] if offered is None else wire.decode(offered)["prekeys"])

    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Iterable[tuple[str, bytes]]:
        """Send all requests at once; who does not answer in time is a dropout, which the protocol survives."""
        print(f"  leg {leg}: {sum(map(len, requests.values())):,} bytes to {len(requests)} {to}")
        with ThreadPoolExecutor(len(requests)) as pool:
            replies = dict(zip(requests, pool.map(self._post, requests, requests.values()), strict=True))
        return [(name, reply) for name, reply in replies.items() if reply is not None]

    def _post(self, name: str, request: bytes, path: str = "/") -> bytes | None:
        signature = base64.b64encode(self._coordinator.sign(PURPOSE, request)).decode()
        posted = urllib.request.Request(self._addresses[name] + path, request, {"Signature": signature})
        try:
            with urllib.request.urlopen(posted, timeout=30) as reply:
                content: bytes = reply.read()
                return content
        except OSError:
            return None


def main(folder: Path) -> None:
    """Set up the sites, ask them for an evaluation, and show what it has cost them."""
    coordinator, clients = settle(folder)
    servers = {client.name: serve(client, coordinator.identity.public) for client in clients}
    addresses = {name: f"http://127.0.0.1:{one.server_port}" for name, one in servers.items()}
    runtime = OverHttp(addresses, coordinator)
    agenda = Agenda.of("evaluate", {"thresholds": [0.2]})
    setting = Setting(trust=TRUST, protection=fedassay.Protection(), budget=BUDGET, clients=len(clients))
    receipts: dict[str | bytes, Charge] = {}
    print(f"{len(clients)} sites, {TRUST.name}, epsilon {BUDGET.epsilon:g}:")
    outcome = run(
        agenda.jobs(setting),
        runtime=runtime,
        ledger=MemoryLedger(BUDGET),  # a real coordinator has one that lasts: DatabaseLedger
        randomness=SecureRandomness(),
        study="spring",
        receipts=receipts,
    )
    results = agenda.results(outcome, clients=runtime.clients, budget=BUDGET, charges=receipts.values())
    auc = results["roc_auc"]
    print(f"AUC {auc['value']:.3f} ({auc['interval'][0]:.3f} to {auc['interval'][1]:.3f}).")
    for client in clients:
        spent = client.site.ledger.spent(client.site.dataset, BUDGET.delta)
        print(f"The ledger of {client.name}: epsilon {spent:.3g} of {BUDGET.epsilon:g} is spent.")
    for server in servers.values():
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "platform"))
