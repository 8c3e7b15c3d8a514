"""docs/how-to/flower.md, followed to the letter on one machine: every command in it is run as it stands there."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

from flower_lab import descendants, die_with_parent, free_port, until

import fedassay
from fedassay.crypto.identity import Identity, key_to_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "flower.md"
SITES = ("hospital-a", "hospital-b", "hospital-c")

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


class Reader:
    """A person at a terminal, who does what the page says; for site a, then for b and c."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        self.node_ports = {site: str(free_port()) for site in SITES}
        self.background: list[subprocess.Popen[bytes]] = []
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": tools, "FLWR_HOME": str(folder / "flwr")}

    def adapted(self, text: str, site: str) -> str:
        """The page's command with this machine's free ports, for one of the sites."""
        text = text.replace("8443", self.port).replace("9101", self.node_ports[site])
        return text.replace("hospital-a", site)

    def run(self, text: str, site: str = "hospital-a") -> None:
        command = self.adapted(text, site)
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def start(self, text: str, site: str = "hospital-a") -> None:
        log = (self.folder / f"{site}.log").open("ab")
        with log:
            self.background.append(
                subprocess.Popen(
                    [
                        "bash",
                        "-euc",
                        re.sub("^flower-", "exec flower-", self.adapted(text, site), flags=re.M),
                    ],
                    cwd=self.folder,
                    env={**self.environment, "FLWR_HOME": str(self.folder / f"home-{site}")},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent,
                )
            )

    def listens(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", int(self.port))) == 0

    def end(self) -> None:
        for process in self.background:
            for pid in (process.pid, *descendants(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(timeout=20)


def data(folder: Path) -> pd.DataFrame:
    rng = np.random.default_rng(9)
    risk = rng.random(900)
    frame = pd.DataFrame(
        {"hospital": np.repeat(SITES, 300), "risk": risk, "died": (rng.random(900) < risk).astype(int)}
    )
    for site in SITES:
        frame[frame.hospital == site].to_csv(folder / f"{site}.csv", index=False)
    frame.to_csv(folder / "scores.csv", index=False)
    return frame


def write_what_people_type(folder: Path) -> None:
    """The two files of the page that are written by hand, with the dots filled in."""
    roster, settings = blocks("toml")
    for name in ("coordinator", *SITES):
        public = key_to_text(Identity.load(folder / f"{name}.key").public)
        roster = roster.replace(f'{name} = "…"', f'{name} = "{public}"')
    assert "…" not in roster
    (folder / "roster.toml").write_text(roster)
    (folder / "flwr").mkdir()
    (folder / "flwr" / "config.toml").write_text(settings.replace("/absolute/path/to", str(folder)))


def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    reader, frame = Reader(tmp_path), data(tmp_path)
    quiet, keys, certificates, app, superlink, node_key, site, register, node, submit, simulate = blocks(
        "bash"
    )
    assert "TELEMETRY" in quiet
    try:
        reader.run(keys)
        write_what_people_type(tmp_path)
        config = tmp_path / "flwr" / "config.toml"
        config.write_text(config.read_text().replace("8443", reader.port))
        reader.run(certificates)
        reader.run(app)
        reader.start(superlink)
        until(reader.listens, seconds=60, what="the SuperLink does not listen")
        for name in SITES:
            reader.run(node_key, name)
            reader.run(site, name)
            reader.run(register, name)
            reader.start(node, name)
        reader.run(submit)
        document = json.loads((tmp_path / "result.json").read_text())
        expected = fedassay.evaluate(
            {name: frame[name].to_numpy() for name in frame},
            client="hospital",
            score="risk",
            label="died",
            thresholds=[0.2],
        )
        assert document["results"] == json.loads(expected.to_json())["results"]
        assert document["cohort"]["clients"] == 3
        assert (tmp_path / "result.html").stat().st_size > 1000
        stored = tmp_path / "coordinator-state" / "results" / "spring-2026.json"
        assert json.loads(stored.read_text()) == document
    finally:
        reader.end()
    time.sleep(1)
    reader.run(simulate)
