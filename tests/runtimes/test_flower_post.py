"""What the server makes of replies that are late, doubled, strange or broken, over a grid that plays tricks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fedassay[flower]'")

import httpx
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedassay.crypto.identity import Credentials, Identity
from fedassay.crypto.keys import KeyPair
from fedassay.errors import FederationError
from fedassay.kernel.sites import COORDINATOR
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Party
from fedassay.runtimes.flower.post import (
    HELLO,
    REQUEST,
    Frame,
    NodeLetter,
    Post,
    opened_request,
    signed_reply,
)
from fedassay.runtimes.flower.runtime import Directory, FlowerRuntime, answer_hello

Behaviour = Callable[[Message], Iterable[Message]]

NAMES = ("a", "b", "c")
IDENTITIES = {name: Identity.draw(SecureRandomness()) for name in (COORDINATOR, *NAMES, "stranger")}
ROSTER = {name: IDENTITIES[name].public for name in (COORDINATOR, *NAMES)}


@pytest.fixture(autouse=True)
def server_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower lets only a process that it has started make messages: pretend to be one."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def credentials(name: str) -> Credentials:
    return Credentials(identity=IDENTITIES[name], roster=ROSTER)


class FakeGrid:
    """Nodes 1, 2, 3 are a, b, c; `tricks` says what else a node does with a request for the study."""

    def __init__(self, tricks: dict[int, Behaviour] | None = None) -> None:
        self.tricks = tricks or {}
        self.waiting: dict[str, list[Message]] = {}
        self.pulls = 0

    def get_node_ids(self) -> list[int]:
        return [1, 2, 3]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(f"message-{len(self.waiting)}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            trick = self.tricks.get(message.metadata.dst_node_id, honest)
            answers = honest(message) if message.metadata.message_type == HELLO else trick(message)
            self.waiting[ids[-1]] = list(answers)
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        self.pulls += 1
        found = [message for one in ids for message in self.waiting.pop(one, [])]
        for message in found:
            if isinstance(message, Exception):
                raise message
        return found


def honest(message: Message) -> list[Message]:
    """What the ClientApp does, without Flower: check, answer "reply to " + request, sign."""
    node = message.metadata.dst_node_id
    name = NAMES[node - 1]
    request = opened_request(Frame.unpack(message), credentials(name), sender=COORDINATOR)
    if message.metadata.message_type == HELLO:
        body = answer_hello(request, name=name, node=node)
    else:
        body = b"reply to " + request
    return [Message(signed_reply(body, credentials(name), request=request).pack(), reply_to=message)]


def directory(grid: Any, *, wait: float = 0.2, timeout: float = 0.2) -> Directory:
    return Directory(
        post=Post(grid=grid, credentials=credentials(COORDINATOR), interval=0.01),
        expected=NAMES,
        randomness=SecureRandomness(),
        wait=wait,
        timeout=timeout,
    )


def runtime(grid: Any, **options: Any) -> FlowerRuntime:
    return FlowerRuntime(
        clients=NAMES,
        directory=directory(grid),
        reply_pair=KeyPair.draw(SecureRandomness()),
        simulated=False,
        **options,
    )


def ask(grid: Any) -> dict[str, bytes]:
    requests = {name: f"request for {name}".encode() for name in NAMES}
    return dict(runtime(grid).ask(Party.CLIENTS, requests, 0))


EVERYBODY = {name: f"reply to request for {name}".encode() for name in NAMES}
WITHOUT_B = {name: reply for name, reply in EVERYBODY.items() if name != "b"}


def test_honest_nodes_are_heard() -> None:
    assert ask(FakeGrid()) == EVERYBODY


def replied(message: Message, body: bytes, signature: bytes = b"") -> list[Message]:
    return [Message(Frame(body=body, signature=signature).pack(), reply_to=message)]


def content(message: Message, record: Any) -> list[Message]:
    return [Message(RecordDict({"fedassay": record}), reply_to=message)]


def broken(message: Message) -> list[Message]:
    return [Message(Error(code=2, reason="secret"), reply_to=message)]


def as_someone_else(message: Message) -> list[Message]:
    request = Frame.unpack(message).body
    return [Message(signed_reply(b"x", credentials("a"), request=request).pack(), reply_to=message)]


def answering_another_request(message: Message) -> list[Message]:
    frame = signed_reply(b"reply to request for b", credentials("b"), request=b"an older request")
    return [Message(frame.pack(), reply_to=message)]


def unparsable(message: Message) -> list[Any]:
    return [ValueError("Flower cannot make a message of this")]


@pytest.mark.parametrize(
    "trick",
    [
        lambda message: [],
        broken,
        as_someone_else,
        answering_another_request,
        unparsable,
        lambda message: replied(message, b"unsigned"),
        lambda message: replied(message, b"wrongly signed", bytes(64)),
        lambda message: replied(message, b"x", bytes(65)),
        lambda message: [Message(RecordDict(), reply_to=message)],
        lambda message: content(message, ConfigRecord({"body": "text", "signature": b""})),
        lambda message: content(message, ConfigRecord({"signature": b""})),
        lambda message: content(message, ArrayRecord()),
    ],
)
def test_whatever_one_node_sends_the_others_are_heard(trick: Behaviour) -> None:
    assert ask(FakeGrid({2: trick})) == WITHOUT_B


def test_of_two_replies_the_first_counts() -> None:
    def twice(message: Message) -> list[Message]:
        return [*honest(message), *as_someone_else(message)]

    assert ask(FakeGrid({2: twice})) == EVERYBODY


def test_a_reply_is_matched_by_the_message_that_it_answers() -> None:
    """Node 2's reply names the SuperLink as its source, as Flower's own error replies do."""

    def misattributed(message: Message) -> list[Message]:
        (reply,) = honest(message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return [reply]

    assert ask(FakeGrid({2: misattributed})) == EVERYBODY


def test_a_reply_to_a_message_that_was_never_sent_is_ignored() -> None:
    def stray(message: Message) -> list[Message]:
        (reply,) = honest(message)
        reply.metadata.__dict__["_reply_to_message_id"] = "message-99"
        return [reply]

    assert ask(FakeGrid({2: stray})) == WITHOUT_B


def test_a_lost_superlink_is_a_crash_and_not_a_silence() -> None:
    """Silence would be recorded in the journal and end the study; a crash is resumed."""

    class Lost(FakeGrid):
        def pull_messages(self, ids: Iterable[str]) -> list[Message]:
            found = super().pull_messages(ids)
            if self.pulls > len(NAMES):
                raise httpx.ConnectError("gone")
            return found

    with pytest.raises(httpx.ConnectError):
        ask(Lost())


def test_nobody_there_is_a_crash_and_not_a_silence() -> None:
    class Empty(FakeGrid):
        def get_node_ids(self) -> list[int]:
            return []

    with pytest.raises(FederationError, match="no site is connected"):
        ask(Empty())


def test_a_node_is_believed_only_with_the_key_of_the_roster() -> None:
    class Impostor(FakeGrid):
        """Node 2 says that it is c, with a key of its own; node 3 relays the hello of node 1."""

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            (message,) = messages
            ids = super().push_messages([message])
            request = Frame.unpack(message).body
            node = message.metadata.dst_node_id
            if message.metadata.message_type == HELLO and node == 2:
                forged = Credentials(identity=IDENTITIES["stranger"], roster=ROSTER)
                frame = signed_reply(answer_hello(request, name="c", node=2), forged, request=request)
                self.waiting[ids[0]] = [Message(frame.pack(), reply_to=message)]
            if message.metadata.message_type == HELLO and node == 3:
                frame = signed_reply(
                    answer_hello(request, name="a", node=1), credentials("a"), request=request
                )
                self.waiting[ids[0]] = [Message(frame.pack(), reply_to=message)]
            return ids

    assert ask(Impostor()) == {"a": EVERYBODY["a"]}


class Slow(FakeGrid):
    """Node 2 gives its hello only after so many looks for it; None: never, and it counts them."""

    def __init__(self, looks: int | None) -> None:
        super().__init__()
        self.looks = looks
        self.hellos: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        (message,) = messages
        ids = super().push_messages([message])
        if message.metadata.dst_node_id == 2 and message.metadata.message_type == HELLO:
            self.hellos += ids
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        wanted = list(ids)
        if set(wanted) & set(self.hellos) and self.looks != 0:
            self.looks = None if self.looks is None else self.looks - 1
            return []
        return super().pull_messages(wanted)


def test_a_hello_that_has_to_wait_is_asked_once_and_awaited_beyond_the_wait() -> None:
    """As when another study occupies the node: asking again would only lengthen its queue."""
    grid = Slow(looks=20)
    assert directory(grid, wait=0.01, timeout=20).find() == {"a": 1, "b": 2, "c": 3}
    assert len(grid.hellos) == 1


def test_a_connected_node_that_never_says_who_it_is_is_given_up() -> None:
    grid = Slow(looks=None)
    assert directory(grid, wait=0.05, timeout=0.05).find() == {"a": 1, "c": 3}
    assert len(grid.hellos) == 1


def test_nobody_waits_for_the_hello_of_a_node_that_has_gone() -> None:
    class Gone(Slow):
        def get_node_ids(self) -> list[int]:
            return [1, 3] if self.hellos else [1, 2, 3]

    assert directory(Gone(looks=None), wait=0.05, timeout=1000).find() == {"a": 1, "c": 3}


def test_a_node_that_comes_late_is_awaited_and_one_that_lost_the_question_is_asked_again() -> None:
    class Late(FakeGrid):
        """Node 3 connects at the tenth look; Flower loses the first hello to node 2."""

        def __init__(self) -> None:
            super().__init__()
            self.seen, self.lost = 0, 0

        def get_node_ids(self) -> list[int]:
            self.seen += 1
            return [1, 2] if self.seen < 10 else [1, 2, 3]

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            (message,) = messages
            ids = super().push_messages([message])
            if message.metadata.dst_node_id == 2 and not self.lost:
                self.lost += 1
                self.waiting[ids[0]] = broken(message)
            return ids

    assert directory(Late(), wait=20).find() == {"a": 1, "b": 2, "c": 3}


def test_whoever_is_lost_is_named() -> None:
    class Without(FakeGrid):
        def get_node_ids(self) -> list[int]:
            return [1, 2]

    said: list[str] = []
    one = runtime(Without({2: lambda message: []}), warn=said.append)
    assert dict(one.ask(Party.CLIENTS, dict.fromkeys(NAMES, b"x"), 0)).keys() == {"a"}
    assert said == [
        "leg 1: no connected node answers for c.",
        "leg 1: no valid answer within 0.2 seconds from b.",
    ]


def test_nothing_is_said_if_nobody_is_lost() -> None:
    said: list[str] = []
    runtime(FakeGrid(), warn=said.append).ask(Party.CLIENTS, dict.fromkeys(NAMES, b"x"), 0)
    assert not said


def test_a_hello_without_a_nonce_is_refused() -> None:
    from fedassay.errors import ProtocolError

    for body in (b"", wire.encode({}), wire.encode({"nonce": b"short"}), wire.encode({"nonce": "x" * 32})):
        with pytest.raises(ProtocolError):
            answer_hello(body, name="a", node=1)


def test_progress_counts_what_has_arrived() -> None:
    seen: list[tuple[int, int, int]] = []
    grid = FakeGrid({2: lambda message: []})
    one = runtime(grid, progress=lambda leg, done, total: seen.append((leg, done, total)))
    one.ask(Party.CLIENTS, dict.fromkeys(NAMES, b"x"), 3)
    assert seen == [(3, 0, 3), (3, 1, 3), (3, 2, 3)]


def test_all_replies_may_be_looked_for_at_once() -> None:
    grid = FakeGrid()
    post = Post(grid=grid, credentials=credentials(COORDINATOR), together=3, interval=0.01)  # type: ignore[arg-type]
    letters = {
        name: NodeLetter(node=node, kind=REQUEST, body=b"x", sender_of_reply=name)
        for node, name in enumerate(NAMES, start=1)
    }
    assert set(post.deliver(letters, timeout=1)) == set(NAMES)
    assert grid.pulls == 1
