"""Sites with files of their own, asked over any runtime without its machinery: what each makes of a request."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import sealed_requests
from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.kernel import envelope
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import FileStore
from fedassay.kernel.sites import COORDINATOR, SiteFile
from fedassay.privacy.ledger.refusals import RefusedRequest
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    Budget,
    Message,
    Part,
    Party,
    Plan,
    Protection,
    Query,
    Request,
    Setting,
    Sum,
    Summary,
    TrustModel,
)
from fedassay.runtimes.file_drop.letters import LetterKind
from fedassay.runtimes.file_drop.participant import CheckedRequest, Participant
from fedassay.runtimes.file_drop.study import FileDropStudy
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.released import Proposal
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.plain import Plain

SECURE = SecureRandomness()
ROWS = 50
HISTOGRAM = ScoreHistogram(transform="uniform", height=3)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question, from all its parts; a whole study if it is driven to its end."""

    summary: Summary[Any] = HISTOGRAM
    kind: type[Query[Any]] = Sum
    trust: TrustModel = field(default_factory=Plain)
    budget: Budget | None = None
    protection: Protection = field(default_factory=Protection)
    task: str = "evaluate"
    cohort: int = 4
    part: Part = Part.ALL

    @property
    def announced(self) -> dict[str, Any]:
        """Parameters of an evaluation that asks for this histogram: sites judge what is announced, too."""
        if self.task != "evaluate" or not isinstance(self.summary, ScoreHistogram):
            return {}
        asked = self.summary
        return {
            "transform": asked.transform,
            "height": asked.height,
            "thresholds": asked.thresholds or (0.5,),
            "buckets": 2,
        }

    def plan(self, clients: int) -> Plan:
        setting = Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=clients)
        return self.trust.plan(self.kind(of=self.summary, part=self.part), setting)

    def body(self, recipient: str, *, clients: int = 4, exchange: bytes | None = None) -> bytes:
        """The first message of an exchange that a client sees."""
        request = Request(
            exchange=exchange or SECURE.bytes(16),
            plans=(self.plan(clients),),
            cohort=self.cohort,
            leg=self.trust.first_client_leg,
            recipient=recipient,
            message={},
        )
        return sealed_requests.packed(study="s", trust=self.trust, tasks=(self.task,), request=request)


class Sites:
    """Everything lies below `root`, one folder per site; each has its policy in a file of its own."""

    def __init__(self, root: Path, names: Sequence[str] = ("a", "b", "c", "d")) -> None:
        self.root, self.names = root, tuple(names)
        self.identities = {name: Identity.draw(SECURE) for name in (COORDINATOR, *names)}
        keys = {name: key_to_text(one.public) for name, one in self.identities.items()}
        roster = "[roster]\n" + "".join(f"{name} = {json.dumps(key)}\n" for name, key in keys.items())
        self.asker = keys[COORDINATOR]
        for number, name in enumerate(names):
            place = root / name
            place.mkdir()
            self.identities[name].save(place / "site.key")
            rng = np.random.default_rng(number)
            rows = np.column_stack([rng.random(ROWS), rng.integers(0, 2, ROWS)])
            np.savetxt(place / "rows.csv", rows, delimiter=",", header="p,y", comments="", fmt=["%.6f", "%d"])
            (place / "site.toml").write_text(
                f'name = "{name}"\ndataset = "{name}/rows"\ndata = "rows.csv"\nkey = "site.key"\nstate = "state"\n'
                f'policy = "policy.toml"\n[columns]\nscore = "p"\nlabel = "y"\n{roster}'
            )
            self.allow(name)

    def allow(self, name: str, policy: str = "", *, trust_models: Sequence[str] = ("plain",)) -> Path:
        path = self.root / name / "policy.toml"
        path.write_text(f"trust_models = {json.dumps(trust_models)}\n{policy}")
        return path

    def credentials(self, name: str) -> Credentials:
        return Credentials(
            identity=self.identities[name], roster={who: one.public for who, one in self.identities.items()}
        )

    def open(self, name: str) -> Client:
        return SiteFile.read(self.root / name / "site.toml").open()

    def refusals(self, name: str) -> Sequence[RefusedRequest]:
        client = self.open(name)
        close(client)
        assert client.site.records is not None
        return client.site.records.refusals()


def close(client: Client) -> None:
    assert isinstance(client.store, FileStore)
    client.store.close()


class Transport(ABC):
    """How a request reaches a site; `begin` is called once for each question."""

    study_name = "s"

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.reply_pair = sealed_requests.REPLY_PAIR

    def begin(self, ask: Ask, names: Sequence[str]) -> None:  # noqa: B027 (most announce nothing)
        """Nothing, unless the runtime announces studies."""

    def said(self, name: str, body: bytes, number: int) -> Message:
        """What is in the site's sealed and signed answer, of a study that is under way here."""
        body = wire.encode(
            {**wire.decode(body), "study": self.study_name, "reply_key": self.reply_pair.public}
        )
        reply = self.answer(name, body, number)
        believed = self.sites.credentials(COORDINATOR)
        return wire.decode(
            envelope.opened(reply, self.reply_pair, request=body, sender=name, credentials=believed)
        )

    @abstractmethod
    def answer(self, name: str, body: bytes, number: int) -> bytes:
        """The bytes with which the site answers."""


class InProcess(Transport):
    """Clients of the in-process runtime that are made from real site files."""

    def answer(self, name: str, body: bytes, number: int) -> bytes:
        client = self.sites.open(name)
        try:
            return dict(Faithful([client], asker=self.sites.asker).ask(Party.CLIENTS, {name: body}, number))[
                name
            ]
        finally:
            close(client)


class FileDrop(Transport):
    """A study by files: announced, signed, and read by the site's own participant."""

    def __init__(self, sites: Sites) -> None:
        super().__init__(sites)
        self.studies = 0

    def begin(self, ask: Ask, names: Sequence[str]) -> None:
        self.studies += 1
        self.drop = self.sites.root / f"drop-{self.studies}"
        self.drop.mkdir()
        self.study = FileDropStudy.begin(
            self.drop,
            state=self.sites.root / "coordinator-state",
            identity=self.sites.identities[COORDINATOR],
            proposal=Proposal(
                name="s",
                agenda=Agenda.of(ask.task, ask.announced),
                trust=ask.trust,
                protection=ask.protection,
                budget=ask.budget,
            ),
            roster={name: self.sites.identities[name].public for name in names},
            randomness=SECURE,
        )
        self.study_name = self.study.announcement.study
        self.reply_pair = self.study.reply_pair

    def answer(self, name: str, body: bytes, number: int) -> bytes:
        self.study.write(name, LetterKind.REQUEST, number + 1, body)
        client = self.sites.open(name)
        participant = Participant(
            drop=self.drop,
            name=name,
            credentials=self.sites.credentials(name),
            state=self.sites.root / name / "state",
        )
        try:
            request = participant.asked()
            assert isinstance(request, CheckedRequest)
            return participant.answer(request, client)
        finally:
            close(client)


class Direct(MessagingRuntime):
    """Drives a whole exchange over a transport; nobody else is in between."""

    name = "direct"
    mode = "messages"
    simulated = False

    def __init__(self, transport: Transport, names: Sequence[str], *, silent: Sequence[str] = ()) -> None:
        sites = transport.sites
        super().__init__(
            reply_pair=transport.reply_pair, credentials=sites.credentials(COORDINATOR), asker=sites.asker
        )
        self.transport, self.clients, self.silent = transport, list(names), silent
        """Those who are `silent` do not speak in the first leg."""

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        for name in names:
            file = SiteFile.read(self.transport.sites.root / name / "site.toml")
            self.keep(name, file.offer(1, asker=self.asker))
        return super().prekeys(names)

    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Iterator[tuple[str, bytes]]:
        for name, body in requests.items():
            if leg > 0 or name not in self.silent:
                yield name, self.transport.answer(name, body, leg)


def code_of(reply: Message) -> str | None:
    """The code of a refusal; None if it is an answer."""
    code = reply.get("refusal")
    return None if code is None else str(code)
