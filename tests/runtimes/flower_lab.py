"""A real Flower deployment on loopback: keys, certificates, sites, a SuperLink and SuperNodes, all ended by id."""

from __future__ import annotations

import ctypes
import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedassay.crypto.identity import Identity, key_to_text
from fedassay.privacy.randomness import SecureRandomness
from fedassay.runtimes.flower import QUIET
from fedassay.runtimes.flower.coordinator_file import VARIABLE
from fedassay.runtimes.flower.submission import Connection, write_app

HOST = "127.0.0.1"
READY = 60.0

Sites = Mapping[str, Mapping[str, Any]]
"""Name to columns."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def until(condition: Any, *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    """Everything that a process has started, and what that has started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = entry.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found, todo = list[int](), [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found += new
        todo += new
    return found


def die_with_parent() -> None:
    """Called in a new process: a test run that is killed leaves nothing behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@dataclass
class Lab:
    """Everything in one folder; `tls` adds certificates and Flower's own node keys."""

    folder: Path
    sites: Sites
    tls: bool = False
    policy: str = 'trust_models = ["secure-sum", "plain"]'
    components: dict[str, str] | None = None
    helpers: tuple[str, ...] = ()
    """Nodes that hold no rows."""
    node_config: dict[str, str] = field(default_factory=dict)
    """Name to more entries of the node's configuration, for nodes of tests that misbehave."""
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    logs: list[TextIO] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.identities = {name: Identity.draw(SecureRandomness()) for name in ("coordinator", *self.nodes)}
        roster = "[roster]\n" + "".join(
            f'{name} = "{key_to_text(one.public)}"\n' for name, one in self.identities.items()
        )
        for name, columns in self.sites.items():
            place = self.folder / name
            place.mkdir()
            self.identities[name].save(place / "site.key")
            np.savez(place / "data.npz", **{role: np.asarray(column) for role, column in columns.items()})
            head = f'name = "{name}"\ndataset = "{name}/data"\ndata = "data.npz"\nkey = "site.key"\n'
            roles = "".join(f'{role} = "{role}"\n' for role in columns)
            (place / "site.toml").write_text(
                f'{head}state = "state"\n\n[columns]\n{roles}\n[policy]\n{self.policy}\n\n{roster}'
            )
        for name in self.helpers:
            place = self.folder / name
            place.mkdir()
            self.identities[name].save(place / "helper.key")
            (place / "helper.toml").write_text(
                f'name = "{name}"\nkey = "helper.key"\nstate = "state"\n\n{roster}'
            )
        self.identities["coordinator"].save(self.folder / "coordinator.key")
        head = f'key = "coordinator.key"\nstate = "state"\nhelpers = {json.dumps(self.helpers)}\n'
        (self.folder / "coordinator.toml").write_text(f"{head}\n{roster}")
        self.app = self.folder / "app"
        write_app(self.app, components=self.components)
        if self.tls:
            make_certificates(self.folder, self.nodes)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes: sites and helpers."""
        return (*self.sites, *self.helpers)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def connection(self) -> Connection:
        if self.tls:
            return Connection(address=self.address, root_certificates=self.folder / "ca.crt")
        return Connection(address=self.address, insecure=True)

    def environment(self, home: str) -> dict[str, str]:
        path = self.folder / "home" / home
        path.mkdir(parents=True, exist_ok=True)
        return {
            **os.environ,
            # The SuperLink starts its own helpers by name: they lie beside this interpreter.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            **QUIET,
            "FLWR_HOME": str(path),
            **({VARIABLE: str(self.folder / "coordinator.toml")} if home == "superlink" else {}),
            "OMP_NUM_THREADS": "1",
        }

    def start(self, name: str, command: list[str]) -> None:
        log = (self.folder / f"{name}.log").open("a")
        self.logs.append(log)
        executable = Path(sys.executable).with_name(command[0])
        self.processes[name] = subprocess.Popen(
            [str(executable), *command[1:]],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self.environment(name),
            cwd=self.folder,
            preexec_fn=die_with_parent,
        )

    def start_superlink(self, *, register: bool = True) -> None:
        options = ["--host", HOST, "--port", str(self.port), "--disable-runtime-dependency-installation"]
        options += ["--database", str(self.folder / "superlink.db")]
        if self.tls:
            options += ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt"]
            options += ["--ssl-keyfile", "server.key", "--enable-supernode-auth"]
        else:
            options += ["--insecure"]
        self.start("superlink", ["flower-superlink", *options])
        until(self._listens, seconds=READY, what="the SuperLink does not listen")
        if self.tls and register:
            with ThreadPoolExecutor() as threads:
                list(threads.map(self._register, self.nodes))

    def _register(self, name: str) -> None:
        self.flwr("supernode", "register", str(self.folder / f"{name}.pub"), "fedassay", home=f"flwr-{name}")

    def _listens(self) -> bool:
        assert self.processes["superlink"].poll() is None, (self.folder / "superlink.log").read_text()
        with socket.socket() as one:
            return one.connect_ex((HOST, self.port)) == 0

    def start_node(self, name: str) -> None:
        options = ["--superlink", self.address, "--host", HOST, "--port", str(free_port())]
        role = "helper" if name in self.helpers else "site"
        config = f'{role}="{self.folder / name / role}.toml" {self.node_config.get(name, "")}'
        options += ["--node-config", config.strip()]
        if self.tls:
            options += ["--root-certificates", "ca.crt", "--auth-supernode-private-key", f"{name}.pem"]
        else:
            options += ["--insecure"]
        self.start(name, ["flower-supernode", *options])

    def is_connected(self, name: str) -> bool:
        """Whether a node has told the SuperLink that it is there."""
        return "SuperNode ID" in self.log_of(name)

    def flwr(self, *arguments: str, home: str = "flwr") -> str:
        environment = self.environment(home)
        Path(environment["FLWR_HOME"], "config.toml").write_text(self.connection.settings())
        executable = str(Path(sys.executable).with_name("flwr"))
        done = subprocess.run(
            [executable, *arguments], capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kill(self, name: str) -> None:
        """End a process and everything it started, at once and by id, and know that it is gone."""
        process = self.processes.pop(name)
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(timeout=20)

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        for log in self.logs:
            log.close()

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@contextmanager
def running(lab: Lab) -> Iterator[Lab]:
    """The lab with its SuperLink and all nodes up; everything is ended at the end, whatever happens."""
    try:
        lab.start_superlink()
        for name in lab.nodes:
            lab.start_node(name)
        yield lab
    finally:
        lab.stop()


def make_certificates(folder: Path, names: Iterable[str]) -> None:
    """A certificate authority, a server certificate for loopback, and a P-384 key for each node."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = certificate(
        "lab authority", authority.public_key(), issuer="lab authority", key=authority, ca=True
    )
    server = certificate("localhost", key.public_key(), issuer="lab authority", key=authority, ca=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(root.public_bytes(pem))
    (folder / "server.crt").write_bytes(server.public_bytes(pem))
    (folder / "server.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    for name in names:
        own = ec.generate_private_key(ec.SECP384R1())
        (folder / f"{name}.pem").write_bytes(
            own.private_bytes(pem, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        )
        (folder / f"{name}.pub").write_bytes(
            own.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        )


def certificate(subject: str, public: Any, *, issuer: str, key: Any, ca: bool) -> x509.Certificate:
    now = datetime.datetime.now(tz=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=ca,
                crl_sign=ca,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if not ca:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(key, hashes.SHA256())


def hospitals(names: list[str], *, rows: int = 400, seed: int = 5) -> dict[str, dict[str, Any]]:
    """Rows for each site: a score and a label."""
    rng = np.random.default_rng(seed)
    sites = {}
    for name in names:
        score = rng.random(rows)
        sites[name] = {"score": score, "label": (rng.random(rows) < score).astype(np.int64)}
    return sites


def pooled(sites: Sites) -> dict[str, Any]:
    """The rows of all sites as one table with a column `site`."""
    return {
        "site": np.concatenate([[name] * len(columns["label"]) for name, columns in sites.items()]),
        "score": np.concatenate([columns["score"] for columns in sites.values()]),
        "label": np.concatenate([columns["label"] for columns in sites.values()]),
    }


def parsed(document: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(document)
    return result
