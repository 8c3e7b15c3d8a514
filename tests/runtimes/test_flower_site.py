"""The site's side of Flower, without processes: what the ClientApp answers, refuses, and never says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

from flower_lab import Lab, hospitals
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import sealed_requests
from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.crypto.prekeys import Prekey
from fedassay.errors import ProtocolError, UsageError
from fedassay.kernel import envelope
from fedassay.kernel import envelope as sealing
from fedassay.kernel.envelope import MOST_PREKEYS, Refusal
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Protection, Request, Setting, Sum
from fedassay.runtimes.flower.client_app import app, read_node
from fedassay.runtimes.flower.post import HELLO, REQUEST, Frame, opened_reply, signed_request
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.plain import Plain
from ledgers import recorded

SITES = hospitals(["a", "b", "c"], rows=50)


@pytest.fixture(autouse=True)
def server_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower lets only a process that it has started make messages: pretend to be one."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "secret-place", SITES)


def believed(lab: Lab, name: str = "coordinator") -> Credentials:
    roster = {who: one.public for who, one in lab.identities.items()}
    return Credentials(identity=lab.identities[name], roster=roster)


def context(lab: Lab, **config: Any) -> Context:
    node_config = config or {"site": str(lab.folder / "a" / "site.toml")}
    return Context(run_id=1, node_id=77, node_config=node_config, state=RecordDict(), run_config={})


def sent(body: bytes, credentials: Credentials | None, kind: str = REQUEST) -> Message:
    message = Message(signed_request(body, credentials).pack(), 77, kind)
    message.metadata.__dict__["_message_id"] = "id"
    return message


def question(recipient: str = "a", exchange: bytes = bytes(16)) -> bytes:
    trust = Plain()
    setting = Setting(trust=trust, protection=Protection(), budget=None, clients=3)
    plan = trust.plan(
        Sum(of=ScoreHistogram(transform="uniform", height=3, thresholds=(), widths=(1,))), setting
    )
    request = Request(exchange=exchange, plans=(plan,), cohort=3, leg=0, recipient=recipient, message={})
    return sealed_requests.packed(study="s", trust=trust, tasks=("t",), request=request)


def said(frame: Frame, lab: Lab, body: bytes) -> Any:
    """What is in a site's frame for its coordinator: signed and bound to the request twice over."""
    sealed = opened_reply(frame, believed(lab), sender="a", request=body)
    inner = sealing.opened(
        sealed, sealed_requests.REPLY_PAIR, request=body, sender="a", credentials=believed(lab)
    )
    return envelope.open_reply(inner, sender="a", exchange=bytes(16), leg=0)


def test_a_site_answers_its_coordinator_and_remembers(lab: Lab) -> None:
    body = question()
    frame = Frame.unpack(app(sent(body, believed(lab)), context(lab)))
    assert not isinstance(said(frame, lab, body), Refusal)
    # Each message may run in another process: the second answer comes from the site's disk.
    assert Frame.unpack(app(sent(body, believed(lab)), context(lab))).body == frame.body
    assert len(recorded(lab.folder / "a" / "state")) == 1


def test_a_site_says_who_it_is_to_its_coordinator_only(lab: Lab) -> None:
    body = wire.encode({"nonce": bytes(32)})
    frame = Frame.unpack(app(sent(body, believed(lab), HELLO), context(lab)))
    hello = wire.decode(opened_reply(frame, believed(lab), sender="a", request=body))
    prekeys = [Prekey.unpacked(statement) for statement in hello.pop("prekeys")]
    assert hello == {"name": "a", "node": "77"}
    asker, other = (key_to_text(lab.identities[who].public) for who in ("coordinator", "b"))
    assert len({one.public for one in prekeys}) == MOST_PREKEYS == 8
    assert all(one.is_of("a", coordinator=asker, credentials=believed(lab)) for one in prekeys)
    assert not any(one.is_of("a", coordinator=other, credentials=believed(lab)) for one in prekeys)
    refused = Frame.unpack(app(sent(body, believed(lab, "b"), HELLO), context(lab)))
    assert wire.decode(refused.body)["refusal"] == Refusal.PROTOCOL


@pytest.mark.parametrize("who", [None, "b", "stranger"])
def test_a_request_that_the_coordinator_did_not_sign_is_refused_before_anything_is_opened(
    lab: Lab, who: str | None
) -> None:
    signer = None
    if who == "stranger":
        signer = Credentials(identity=Identity.draw(SecureRandomness()), roster={})
    elif who is not None:
        signer = believed(lab, who)
    reply = Frame.unpack(app(sent(question(), signer), context(lab)))
    assert wire.decode(reply.body) == {"version": envelope.VERSION, "sender": "", "refusal": "protocol"}
    assert not (lab.folder / "a" / "state").exists()


def test_what_goes_wrong_leaves_as_a_fixed_code(lab: Lab) -> None:
    wrong = [
        context(lab, site=str(lab.folder / "nowhere.toml")),
        context(lab, site="relative.toml"),
        context(lab, partition=1),
        context(lab, site=str(lab.folder / "a" / "site.toml"), helper=str(lab.folder / "a" / "site.toml")),
    ]
    for one in wrong:
        reply = Frame.unpack(app(sent(question(), believed(lab)), one))
        assert wire.decode(reply.body) == {"version": envelope.VERSION, "sender": "", "refusal": "internal"}


def test_a_broken_data_file_is_a_code_too(lab: Lab) -> None:
    (lab.folder / "a" / "data.npz").write_bytes(b"patient 4711")
    body = question()
    frame = Frame.unpack(app(sent(body, believed(lab)), context(lab)))
    assert said(frame, lab, body) is Refusal.DATA


def test_a_message_of_another_app_is_refused(lab: Lab) -> None:
    message = Message(RecordDict(), 77, REQUEST)
    message.metadata.__dict__["_message_id"] = "id"
    assert wire.decode(Frame.unpack(app(message, context(lab))).body)["refusal"] == "protocol"


def test_a_request_for_another_site_is_refused(lab: Lab) -> None:
    body = question(recipient="b")
    frame = Frame.unpack(app(sent(body, believed(lab)), context(lab)))
    assert said(frame, lab, body) is Refusal.MALFORMED


def test_run_configuration_cannot_name_a_site(lab: Lab) -> None:
    one = context(lab, partition=1)
    one.run_config = {"site": str(lab.folder / "a" / "site.toml")}
    reply = Frame.unpack(app(sent(question(), believed(lab)), one))
    assert wire.decode(reply.body)["refusal"] == "internal"


def helper_file(lab: Lab, **entries: str) -> Path:
    path = lab.folder / "helper.toml"
    Identity.draw(SecureRandomness()).save(lab.folder / "helper.key")
    head = {"name": "helper", "key": "helper.key", "state": "helper-state", **entries}
    roster = f'[roster]\ncoordinator = "{key_to_text(lab.identities["coordinator"].public)}"\n'
    path.write_text("".join(f'{key} = "{value}"\n' for key, value in head.items()) + roster)
    return path


def test_a_roster_has_each_key_once(lab: Lab) -> None:
    """Whoever had two names would pass for two of those who must not work together."""
    path = helper_file(lab)
    other = key_to_text(lab.identities["a"].public)
    path.write_text(path.read_text() + f'a = "{other}"\n')
    assert set(read_node({"helper": str(path)}).credentials.roster) == {"coordinator", "a"}
    path.write_text(path.read_text() + f'helper = "{other}"\n')
    with pytest.raises(UsageError, match="two parties of the roster have the same key; each needs its own"):
        read_node({"helper": str(path)})


def test_a_node_can_be_a_helper(lab: Lab) -> None:
    node = read_node({"helper": str(helper_file(lab))})
    assert node.name == "helper"
    with node.opened() as endpoint:
        assert endpoint.name == "helper"
        assert endpoint.answer(b"nonsense") == envelope.pack_refusal(sender="helper", code=Refusal.MALFORMED)


def test_a_helper_file_with_data_is_refused(lab: Lab) -> None:
    with pytest.raises(UsageError, match="exactly the entries"):
        read_node({"helper": str(helper_file(lab, data="rows.csv"))})


def test_a_reply_does_not_pass_for_the_answer_to_another_request(lab: Lab) -> None:
    body = question()
    frame = Frame.unpack(app(sent(body, believed(lab)), context(lab)))
    with pytest.raises(ProtocolError, match="another request"):
        opened_reply(frame, believed(lab), sender="a", request=question(exchange=bytes(15) + b"1"))
    with pytest.raises(ProtocolError, match="not signed by b"):
        opened_reply(frame, believed(lab), sender="b", request=body)
