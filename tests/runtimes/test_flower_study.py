"""A study from the ServerApp to the sites' ClientApps and back, in one process: nobody is lost in silence."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

from flower_lab import Lab, hospitals, pooled
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedassay
from fedassay.errors import BudgetExceeded, TooFewClients
from fedassay.kernel.agenda import Agenda, Item
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Budget
from fedassay.runtimes.flower import client_app, server_app, submission
from fedassay.runtimes.flower.coordinator_file import VARIABLE
from fedassay.runtimes.flower.post import REQUEST, Frame
from fedassay.runtimes.flower.study import FlowerStudy
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP
from ledgers import recorded

SITES = hospitals(["a", "b", "c", "d"], rows=60)


class Nodes:
    """A grid whose nodes run the real ClientApp, each message at once; node i is the i-th site that is there."""

    def __init__(self, lab: Lab, there: Iterable[str]) -> None:
        self.places = [lab.folder / name / "site.toml" for name in there]
        self.replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return list(range(len(self.places)))

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(f"message-{len(self.replies)}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            node = message.metadata.dst_node_id
            context = Context(
                run_id=1,
                node_id=node,
                node_config={"site": str(self.places[node])},
                state=RecordDict(),
                run_config={},
            )
            self.replies[ids[-1]] = client_app.app(message, context)
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        return [self.replies[one] for one in ids]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Files and keys of a deployment; Flower lets only its own processes make messages: pretend to be one."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    lab = Lab(tmp_path / "lab", SITES)
    monkeypatch.setenv(VARIABLE, str(lab.folder / "coordinator.toml"))
    return lab


def run(lab: Lab, study: FlowerStudy, there: str, capsys: Any) -> tuple[dict[str, Any], list[str]]:
    """The result as it comes through the log, and the warnings before it."""
    server_app.main(Nodes(lab, there), SimpleNamespace(run_config=study.to_config()))
    inbox, warnings = submission.Inbox(), []
    for event in map(submission.event_in, capsys.readouterr().out.splitlines()):
        inbox.add(event)
        if event is not None and event["event"] == "warning":
            warnings.append(event["message"])
    assert inbox.document is not None
    return json.loads(inbox.document), warnings


def expected(names: str) -> dict[str, Any]:
    rows = pooled({name: SITES[name] for name in names})
    result = fedassay.evaluate(rows, client="site", score="score", label="label")
    results: dict[str, Any] = json.loads(result.to_json())["results"]
    return results


def test_with_everybody_there_nothing_is_said(lab: Lab, capsys: Any) -> None:
    document, warnings = run(lab, FlowerStudy(name="s", wait=0), "abcd", capsys)
    assert document["results"] == expected("abcd")
    (opening,) = document["cohort"].pop("openings")
    assert document["cohort"] == {"clients": 4, "dropped": 0, "truncated": None, "rows": 240}
    assert opening["clients"] == list(opening["members"]) == ["a", "b", "c", "d"]
    assert opening["statement"].startswith("4 of 4 members answered, 4 were needed: none spare.")
    assert not warnings


def test_a_site_that_is_not_there_is_counted_and_named(lab: Lab, capsys: Any) -> None:
    document, warnings = run(lab, FlowerStudy(name="s", wait=0), "dba", capsys)
    assert document["runtime"]["rounds"] == 2
    assert document["results"] == expected("abd")
    assert document["cohort"]["clients"] == 3
    assert document["cohort"]["dropped"] == 1
    assert warnings == ["no connected node with a valid prekey answers for c: left out."]


def test_a_site_that_refuses_is_counted_and_named(lab: Lab, capsys: Any) -> None:
    rules = lab.folder / "c" / "site.toml"
    rules.write_text(rules.read_text().replace('["secure-sum", "plain"]', '["secure-sum"]'))
    document, warnings = run(lab, FlowerStudy(name="s", wait=0, trust=Plain()), "abcd", capsys)
    assert document["cohort"]["dropped"] == 1
    assert document["results"]["histogram"]["rows"] == 180
    assert warnings == ["refused: c (policy)."]


def test_a_study_that_fails_has_named_the_lost_first(lab: Lab, capsys: Any) -> None:
    with pytest.raises(TooFewClients):
        run(lab, FlowerStudy(name="s", wait=0), "ab", capsys)
    said = [event for text in capsys.readouterr().out.splitlines() if (event := submission.event_in(text))]
    assert [event.get("message") for event in said if event["event"] == "warning"] == [
        "no connected node with a valid prekey answers for c, d: left out."
    ]
    assert said[-1]["event"] == "failed"
    assert said[-1]["code"] == 4


def test_a_node_that_dies_burns_no_study(lab: Lab, capsys: Any) -> None:
    """Killed between its two answers: nothing was revealed, and the study goes on under its name when it is back."""

    class Dying(Nodes):
        """Node 3 says who it is and speaks, and is gone before it answers as a member."""

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            ids = []
            for message in messages:
                ids += super().push_messages([message])
                body = Frame.unpack(message).body
                late = message.metadata.message_type == REQUEST and wire.decode(body)["leg"] == 1
                if late and message.metadata.dst_node_id == 3:
                    del self.replies[ids[-1]]
            return ids

        def pull_messages(self, ids: Iterable[str]) -> list[Message]:
            return [self.replies[one] for one in ids if one in self.replies]

    study = FlowerStudy(name="s", wait=0, timeout=1)
    with pytest.raises(TooFewClients, match=r"3 of 4 members answered.*under the same name"):
        server_app.main(Dying(lab, "abcd"), SimpleNamespace(run_config=study.to_config()))
    capsys.readouterr()
    document, warnings = run(lab, study, "abcd", capsys)
    assert document["results"] == expected("abcd")
    assert document["cohort"]["dropped"] == 0
    assert not warnings
    for name in "abcd":
        assert len(recorded(lab.folder / name / "state")) == 1  # paid for once


def test_a_study_that_the_coordinator_cannot_afford_asks_nobody(lab: Lab, capsys: Any) -> None:
    """Of three tasks the first two would still fit: refused half-way, the study would have spent for nothing."""
    file = lab.folder / "coordinator.toml"
    file.write_text(file.read_text().replace("[roster]", "[budget]\nepsilon = 1.0\n\n[roster]"))
    items = [Item(name=name, task=name, parameters={}, share=1 / 3) for name in ("evaluate", "calibrate")]
    items.append(
        Item(name="conformal", task="conformal", parameters={"sets": "binary", "holdout": 0.3}, share=1 / 3)
    )
    agenda = Agenda(items=tuple(items))
    study = FlowerStudy(name="s", agenda=agenda, wait=0, trust=ServerDP(), budget=Budget(epsilon=1.5))
    nodes = Nodes(lab, "abcd")
    with pytest.raises(BudgetExceeded, match=r"Cheapest change: epsilon 1\."):
        server_app.main(nodes, SimpleNamespace(run_config=study.to_config()))
    assert not nodes.replies
