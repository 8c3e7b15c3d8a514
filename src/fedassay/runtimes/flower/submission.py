"""Submission of the app to a SuperLink with Flower's own command, and return of the result.

What a ServerApp tells the person who submitted it, through the run's log: marked lines of JSON.

The result itself travels so too, in numbered parts, and is believed only if its SHA-256 is the one announced:
the submitting machine needs no access to the coordinator's disk.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedassay.errors import FedassayError, FederationError, ProtocolError, Refused, UsageError
from fedassay.protocol.files import write_atomically
from fedassay.protocol.result import Result
from fedassay.runtimes.flower import QUIET, require
from fedassay.runtimes.flower.card import FlowerDeployment
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.runtimes.released import StudyRun
from fedassay.runtimes.simulated import Progress
from fedassay.version import VERSION

# --- the Flower app of fedassay -----------------------------------------------------------------------------

COMPONENTS = {
    "serverapp": "fedassay.runtimes.flower.server_app:app",
    "clientapp": "fedassay.runtimes.flower.client_app:app",
}


def write_app(folder: Path, *, components: dict[str, str] | None = None) -> Path:
    """Write the app. It names no file of any machine: the submitter could change what it names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be created ({error.strerror}).") from error
    path = folder / "pyproject.toml"
    if path.exists() and "fedassay" not in path.read_text(encoding="utf-8"):
        raise UsageError(f"{path}: exists and is not an app of fedassay; give another folder.")
    # A user who names another trust model must not inherit the parameters of this one.
    config = FlowerStudy(name="study").to_config() | {"privacy-parameters": "{}"}
    lines = [
        "# Written by `fedassay flower app`. fedassay must be installed on the SuperLink's machine,",
        "# on every node, and where `fedassay flower submit` is called.",
        "[project]",
        'name = "fedassay-app"',
        f"version = {to_toml(VERSION)}",
        'description = "Federated evaluation under formal privacy"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "",
        "[tool.flwr.app]",
        'publisher = "fedassay"',
        "",
        "[tool.flwr.app.components]",
        *(f"{name} = {to_toml(value)}" for name, value in (components or COMPONENTS).items()),
        "",
        "[tool.flwr.app.config] # every entry can be overridden when the app is submitted",
        *(f"{name} = {to_toml(value)}" for name, value in config.items()),
        "",
    ]
    write_atomically(path, "\n".join(lines))
    return path


def to_toml(value: str | int | float | list[str]) -> str:
    r"""Write a value as TOML; JSON's spelling is TOML's too, for these types.

    Examples
    --------
    >>> to_toml('{"thresholds": [0.5]}'), to_toml(0.0)
    ('"{\\"thresholds\\": [0.5]}"', '0.0')
    """
    return json.dumps(value, ensure_ascii=False)


# --- what a ServerApp tells the person who submitted it -----------------------------------------------------

MARK = "FEDASSAY "
_PART = 24_000
_LARGEST = 1 << 28

RunEvent = dict[str, Any]


def line(kind: str, **fields: Any) -> str:
    """Write an event as a line of a log."""
    return MARK + json.dumps({"event": kind, **fields})


def event_in(text: str) -> RunEvent | None:
    """Read the event in a line of a log, if there is one."""
    _, mark, content = text.partition(MARK)
    if not mark:
        return None
    try:
        event = json.loads(content)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def result_lines(document: str, *, path: str) -> Iterator[str]:
    """Yield the lines that carry a result: its parts, then its hash and where it lies at the coordinator."""
    packed = base64.b64encode(zlib.compress(document.encode())).decode()
    parts = [packed[start : start + _PART] for start in range(0, len(packed), _PART)]
    for index, part in enumerate(parts):
        yield line("part", index=index, data=part)
    digest = hashlib.sha256(document.encode()).hexdigest()
    yield line("result", parts=len(parts), sha256=digest, path=path)


@dataclass
class Inbox:
    """Collector of a result from the events of a log.

    Examples
    --------
    >>> inbox = Inbox()
    >>> for text in result_lines("the result", path="/somewhere"):
    ...     inbox.add(event_in("INFO: " + text))
    >>> inbox.document
    'the result'
    """

    document: str | None = None
    _parts: dict[int, str] = field(default_factory=dict, repr=False)

    def add(self, event: RunEvent | None) -> None:
        """Take one event; `document` is there once the result is complete, or `ProtocolError`."""
        if event is None:
            return
        if event["event"] == "part":
            self._parts[int(event["index"])] = str(event["data"])
        elif event["event"] == "result":
            self.document = self._complete(event)

    def _complete(self, event: RunEvent) -> str:
        try:
            packed = "".join(self._parts[index] for index in range(int(event["parts"])))
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(base64.b64decode(packed), _LARGEST)
        except (KeyError, ValueError, zlib.error):
            data = b""
        if hashlib.sha256(data).hexdigest() != event.get("sha256"):
            raise ProtocolError(
                f"result: what came through the log is not what was written; fetch {event.get('path')} from "
                f"the coordinator's machine and compare its SHA-256 with {event.get('sha256')}."
            )
        return data.decode()


# --- submits the app to a SuperLink with Flower's own command and brings ------------------------------------

_CONNECTION = "fedassay"
_ERRORS: dict[int, type[FedassayError]] = {2: UsageError, 3: Refused, 4: FederationError}
_KEPT_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Connection to the SuperLink: an address with its root certificate, or a name in Flower's own settings."""

    address: str | None = None
    root_certificates: Path | None = None
    insecure: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.address is None) == (self.name is None):
            raise UsageError("superlink: expected either an address or the name of a connection.")
        if self.address is not None and self.insecure == (self.root_certificates is not None):
            raise UsageError(
                "superlink: expected the root certificate, with which the SuperLink is recognised, or "
                "insecure for a test on one machine."
            )
        if self.root_certificates is not None and not self.root_certificates.is_file():
            raise UsageError(f"{self.root_certificates}: there is no such root certificate.")

    def settings(self) -> str:
        """Return Flower's settings file for this connection."""
        lines = ["[superlink]", f"default = {to_toml(_CONNECTION)}", "", f"[superlink.{_CONNECTION}]"]
        lines.append(f"address = {to_toml(str(self.address))}")
        if self.root_certificates is None:
            lines.append("insecure = true")
        else:
            lines.append(f"root-certificates = {to_toml(str(self.root_certificates.absolute()))}")
        return "\n".join(lines) + "\n"


def submit(
    app: Path,
    study: FlowerStudy,
    connection: Connection,
    *,
    heard: Callable[[RunEvent], None] = lambda event: None,
) -> str:
    """Run a study on a SuperLink and return the result document.

    Guarantee: the document is the one the coordinator wrote (its SHA-256 is checked), or an error says why
    there is none. A run that broke off is taken up again by submitting the same study.

    Parameters
    ----------
    heard : called with every event of the run: started, progress, warning, part, result, failed.
    """
    require("flwr")
    if not (app / "pyproject.toml").is_file():
        raise UsageError(f"{app}: there is no app; write one with `fedassay flower app {app}`.")
    inbox, said, started = Inbox(), list[str](), False
    with _running(app, study, connection) as output:
        for text in output:
            event = event_in(text)
            if event is None:
                said.append(text.strip())
                continue
            started = True
            heard(event)
            if event["event"] == "failed":
                raise _ERRORS.get(event.get("code", 4), FederationError)(str(event.get("message")))
            inbox.add(event)
            if inbox.document is not None:
                return inbox.document
    text = " ".join(line for line in said[-_KEPT_LINES:] if line)
    if not started:
        raise FederationError(f"flower: the run could not be started. Flower said: {text}")
    raise FederationError(
        f"flower: the run ended without a result; submit the same study again to go on. Flower said: {text}"
    )


@contextmanager
def _running(app: Path, study: FlowerStudy, connection: Connection) -> Iterator[Iterator[str]]:
    """Run `flwr run --stream` and yield its lines; the command is ended when they are no longer read."""
    with tempfile.TemporaryDirectory(prefix="fedassay-") as name:
        folder = Path(name)
        overrides = folder / "run-config.toml"
        overrides.write_text(
            "".join(f"{key} = {to_toml(value)}\n" for key, value in study.to_config().items()),
            encoding="utf-8",
        )
        environment = {**os.environ, **QUIET}
        if connection.name is None:
            (folder / "config.toml").write_text(connection.settings(), encoding="utf-8")
            environment["FLWR_HOME"] = str(folder)
        command = [_flwr(), "run", str(app), connection.name or _CONNECTION]
        with subprocess.Popen(
            [*command, "--run-config", str(overrides), "--stream"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=environment,
        ) as process:
            try:
                assert process.stdout is not None
                yield iter(process.stdout)
            finally:
                process.terminate()


def _flwr() -> str:
    beside = Path(sys.executable).with_name("flwr")
    found = str(beside) if beside.exists() else shutil.which("flwr")
    if found is None:
        raise UsageError("flower: the command flwr is not installed; run `pip install 'fedassay[flower]'`.")
    return found


# --- a study on a SuperLink ---------------------------------------------------------------------------------


def carry(parameters: FlowerDeployment, study: StudyRun) -> Result:
    """Submit the study and bring its result back; the same name goes on with what broke off."""
    asked = FlowerStudy(
        name=study.name,
        agenda=study.agenda,
        trust=study.trust,
        budget=study.budget,
        protection=study.protection,
        timeout=parameters.timeout,
        wait=parameters.wait,
    )
    connection = Connection(
        address=parameters.address,
        root_certificates=parameters.root_certificates,
        insecure=parameters.insecure,
        name=parameters.connection,
    )
    with study.progress() as progress:
        return watched(parameters.app, asked, connection, progress=progress, warn=study.warn)


def watched(
    app: Path, study: FlowerStudy, connection: Connection, *, progress: Progress, warn: Callable[[str], None]
) -> Result:
    """Submit a study, report how it goes, and read the document that comes back."""

    def heard(event: RunEvent) -> None:
        if event["event"] == "progress":
            progress(int(event["leg"]), int(event["done"]), int(event["total"]))
        elif event["event"] == "warning":
            warn(str(event.get("message")))

    return Result.from_json(submit(app, study, connection, heard=heard))
