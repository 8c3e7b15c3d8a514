"""A town of sites with files of their own, and a coordinator, all driven through the command line."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedassay import api
from fedassay.cli import run_command
from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.crypto.prekeys import DAY
from fedassay.kernel import envelope
from fedassay.kernel.member_store import MemberStore
from fedassay.kernel.sites import SiteFile, prekeys_of
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Message, TrustModel
from fedassay.runtimes.file_drop.letters import _MESSAGE, Letter, LetterKind
from fedassay.runtimes.file_drop.participant import Participant
from fedassay.runtimes.file_drop.study import Announcement

OPTIONS = ("--threshold", "0.3", "--threshold", "0.5", "--height", "6")
EXACT = ("secure-sum", "plain", "server-dp", "distributed-dp", "local-dp")


@dataclass
class Town:
    """Everything lies below `root`: `drop`, `coordinator/` and one folder per site."""

    root: Path
    names: tuple[str, ...] = ("a", "b", "c", "d")
    identities: dict[str, Identity] = field(default_factory=dict)
    folder: str = "drop"

    def __post_init__(self) -> None:
        (self.root / "drop").mkdir()
        everybody = ("coordinator", *self.names)
        self.identities = {name: Identity.draw(SecureRandomness()) for name in everybody}
        for number, name in enumerate(everybody):
            (self.root / name).mkdir()
            self.identities[name].save(self.root / name / f"{name}.key")
            if name != "coordinator":
                self.frame(number).to_csv(self.root / name / "scores.csv", index=False)
                self.write_site(name)
        (self.root / "coordinator" / "roster.toml").write_text(self.cards(everybody))

    @staticmethod
    def frame(number: int) -> pd.DataFrame:
        rng = np.random.default_rng(number)
        score = rng.beta(2, 3, 40 + 10 * number)
        return pd.DataFrame({"p": score, "y": (rng.random(len(score)) < score).astype(int)})

    def roster(self, names: tuple[str, ...]) -> str:
        lines = [f'{name} = "{key_to_text(self.identities[name].public)}"' for name in names]
        return "\n".join(["[roster]", *lines, ""])

    def cards(self, names: tuple[str, ...], *, days_ago: float = 0) -> str:
        """The roster with what `fedassay keys` prints, or has printed then: a key and a prekey for each."""
        lines = ["[roster]"]
        for name in names:
            store = MemberStore(
                prekeys_of(self.root / name / f"{name}.key"), clock=lambda: time.time() - days_ago * DAY
            )
            own = Credentials(identity=self.identities[name], roster={})
            card = store.card(own, SecureRandomness())
            lines.append(f'{name} = "{key_to_text(own.identity.public)} {card.to_text()}"')
        return "\n".join([*lines, ""])

    def write_site(self, name: str, policy: str = "", **changes: str) -> Path:
        entries = {
            "name": name,
            "dataset": f"{name}/rows",
            "data": "scores.csv",
            "key": f"{name}.key",
            "state": "state",
            **changes,
        }
        text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in entries.items())
        allowed = json.dumps(EXACT)
        text += f'\n[columns]\nscore = "p"\nlabel = "y"\n[policy]\ntrust_models = {allowed}\n{policy}\n'
        text += "[policy.total]\nepsilon = 3.0\n" + self.roster(("coordinator", *self.names))
        path = self.root / name / "site.toml"
        path.write_text(text)
        return path

    def hold(self, name: str, frame: pd.DataFrame, columns: str) -> None:
        """Give a site other rows, and columns of other roles."""
        frame.to_csv(self.root / name / "scores.csv", index=False)
        site = self.root / name / "site.toml"
        site.write_text(site.read_text().replace('score = "p"\nlabel = "y"', columns))

    @property
    def drop(self) -> Path:
        return self.root / self.folder

    def contribute(self, name: str, *arguments: object) -> int:
        options = ["--yes", "-q"] if not arguments else [str(argument) for argument in arguments]
        return run_command(
            ["contribute", str(self.drop), "--site", str(self.root / name / "site.toml"), *options]
        )

    def contribute_all(self, names: Iterable[str] = ()) -> None:
        """Let all sites answer, or some."""
        for name in names or self.names:
            assert self.contribute(name) == 0

    def aggregate(self, *arguments: object) -> int:
        key = self.root / "coordinator" / "coordinator.key"
        return run_command(
            ["aggregate", str(self.drop), "--key", str(key), *[str(argument) for argument in arguments]]
        )

    def begin(self, *arguments: object) -> int:
        roster = self.root / "coordinator" / "roster.toml"
        return self.aggregate("evaluate", "--roster", roster, *OPTIONS, "-q", *arguments)

    def finish(self, *, passes: int, absent: str = "", since: int = 1, until: int = 99) -> dict[str, Any]:
        """Let the sites answer pass after pass; `absent` is missing from pass `since` to pass `until`."""
        result = self.root / "result.json"
        for number in range(1, passes + 1):
            answering = [name for name in self.names if not (name == absent and since <= number <= until)]
            self.contribute_all(answering)
            closing = ["--close"] if len(answering) < len(self.names) else []
            assert self.aggregate("-q", "--json", result, *closing) == 0
            assert result.exists() == (number == passes)
        document: dict[str, Any] = json.loads(result.read_text())
        return document

    def expected(self, trust: TrustModel, names: tuple[str, ...] = ()) -> dict[str, Any]:
        """What the in-process runtime says about the same rows."""
        result = api.evaluate(
            pooled(self, names),
            client="site",
            score="p",
            label="y",
            privacy=trust,
            thresholds=(0.3, 0.5),
            height=6,
        )
        document: dict[str, Any] = json.loads(result.to_json())
        return document

    def participant(self, name: str) -> Participant:
        file = SiteFile.read(self.root / name / "site.toml")
        return Participant(drop=self.drop, name=name, credentials=file.credentials, state=file.state)

    def credentials(self, name: str) -> Credentials:
        return Credentials(
            identity=self.identities[name], roster={n: i.public for n, i in self.identities.items()}
        )

    @property
    def state(self) -> Path:
        """The study's own folder in the coordinator's state."""
        (folder,) = [
            path for path in (self.root / "coordinator" / "fedassay-state").iterdir() if path.is_dir()
        ]
        return folder

    def opened(self, name: str, number: int = 1, *, kept: bool = False) -> Message:
        """What the coordinator reads in the reply of a site to a pass, in the drop or as it was kept."""
        asked = letter_of(self.drop / f"to-{name}" / f"{number}.fedassay")
        reply = letter_of((self.state if kept else self.drop) / f"from-{name}" / f"{number}.fedassay")
        pair = KeyPair.of(Secret((self.state / "reply.key").read_bytes()))
        data = envelope.opened(
            reply.body, pair, request=asked.body, sender=name, credentials=self.credentials("coordinator")
        )
        return wire.decode(data)

    def sealed(self, name: str, reply: bytes, number: int = 1) -> bytes:
        """These bytes as this site would seal and sign them in answer to a pass."""
        asked = letter_of(self.drop / f"to-{name}" / f"{number}.fedassay")
        announced = Announcement.decode(letter_of(self.drop / "study.fedassay").body, where="")
        return envelope.sealed(
            reply,
            envelope.Addressee(announced.reply_key, asked.body),
            sender=name,
            credentials=self.credentials(name),
            randomness=SecureRandomness(),
        )


def beginning(town: Town, task: str, *arguments: object) -> int:
    """Announce a study of a task; how the command ended."""
    return town.aggregate(task, "--roster", town.root / "coordinator" / "roster.toml", "-q", *arguments)


def pooled(town: Town, names: Iterable[str] = ()) -> pd.DataFrame:
    """The rows of all sites, or of some."""
    frames = [pd.read_csv(town.root / name / "scores.csv").assign(site=name) for name in names or town.names]
    return pd.concat(frames, ignore_index=True)


def simulated_on_flower(town: Town, task: str, *arguments: object, rows: pd.DataFrame) -> dict[str, Any]:
    """The result of a task on the rows of all sites, simulated by Flower."""
    for package in ("flwr", "ray"):
        pytest.importorskip(package, reason=f"{package} is not installed; pip install 'fedassay[flower]'")
    data, out = town.root / "rows.csv", town.root / "flower.json"
    rows.to_csv(data, index=False)
    options = ["--client", "site", *map(str, arguments), "--seed", "1", "-q", "--json", str(out)]
    assert run_command([task, str(data), *options, "--runtime", "flower"]) == 0
    document: dict[str, Any] = json.loads(out.read_text())
    assert document["runtime"]["name"] == "flower"
    return document


def letter_of(path: Path) -> Letter:
    """A letter as it says of itself, whoever signed it."""
    content = wire.decode(path.read_bytes()[_MESSAGE:])
    return Letter(**{**content, "kind": LetterKind(content["kind"])})


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
