"""Submits the app to a SuperLink with Flower's own command and brings the result back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedassay.errors import FedassayError, FederationError, Refused, UsageError
from fedassay.runtimes.flower import QUIET, require
from fedassay.runtimes.flower.app_bundle import to_toml
from fedassay.runtimes.flower.events import Event, Inbox, event_in
from fedassay.runtimes.flower.study import Study

_CONNECTION = "fedassay"
_ERRORS: dict[int, type[FedassayError]] = {2: UsageError, 3: Refused, 4: FederationError}
_KEPT_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach the SuperLink: an address with its root certificate, or a name in Flower's own settings."""

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
        """Flower's settings file for this connection."""
        lines = ["[superlink]", f"default = {to_toml(_CONNECTION)}", "", f"[superlink.{_CONNECTION}]"]
        lines.append(f"address = {to_toml(str(self.address))}")
        if self.root_certificates is None:
            lines.append("insecure = true")
        else:
            lines.append(f"root-certificates = {to_toml(str(self.root_certificates.absolute()))}")
        return "\n".join(lines) + "\n"


def submit(
    app: Path, study: Study, connection: Connection, *, heard: Callable[[Event], None] = lambda event: None
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
def _running(app: Path, study: Study, connection: Connection) -> Iterator[Iterator[str]]:
    """The lines of `flwr run --stream`; the command is ended when nobody reads on."""
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
