"""The ClientApp of a deployment: hands each request to the site's own client, and its reply back.

Guarantee: whatever goes wrong leaves as a fixed code. Flower would send the text of an exception to the
server, so none may reach it; what happened is in the log of the SuperNode.

A SuperNode is started with `--node-config 'site="/etc/fedassay/site.toml"'`. Data, policy, ledger and keys come
from that file and from nowhere else: nothing that a run sends can name a path or change a limit.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.errors import ProtocolError, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.endpoint import Endpoint, FileStore
from fedassay.kernel.envelope import MOST_PREKEYS, Refusal
from fedassay.kernel.helper import Helper, ServerStore
from fedassay.kernel.sites import SiteFile, read_roster, read_toml
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import COORDINATOR
from fedassay.runtimes.flower.post import HELLO, REQUEST, Frame, opened_request, signed_reply
from fedassay.runtimes.flower.runtime import answer_hello

_HELPER_ENTRIES = {"name", "key", "state", "roster"}


@dataclass(frozen=True, kw_only=True)
class Node:
    """A party at a node, before its state is opened."""

    name: str
    state: Path
    credentials: Credentials = field(repr=False)
    open: Callable[[], Endpoint] = field(repr=False)
    offer: Callable[[str], Sequence[bytes]] = field(default=lambda asker: (), repr=False)
    """Function that makes prekeys for a coordinator, whose public key is given as text."""

    @contextmanager
    def opened(self) -> Iterator[Endpoint]:
        """Open the party with its state, alone: each message runs in a process of its own, and runs may overlap."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits as long as it takes; the store's own lock does not
            endpoint = self.open()
            try:
                yield endpoint
            finally:
                if isinstance(endpoint.store, FileStore | ServerStore):
                    endpoint.store.close()
        finally:
            os.close(descriptor)


def read_node(config: Mapping[str, Any]) -> Node:
    """Read the party that a node's configuration names by `site` or `helper`; exactly one of them."""
    named = [role for role in ("site", "helper") if role in config]
    if len(named) != 1:
        raise UsageError("node-config: expected either site or helper, the absolute path of its file.")
    path = Path(str(config[named[0]]))
    if not path.is_absolute():
        raise UsageError(f"node-config: got {path}, expected an absolute path.")
    return _site(path) if named == ["site"] else _helper(path)


def _site(path: Path) -> Node:
    site = SiteFile.read(path)
    return Node(
        name=site.name,
        state=site.state,
        credentials=site.credentials,
        open=site.open,
        offer=lambda asker: site.offer(MOST_PREKEYS, asker=asker),
    )


def _helper(path: Path) -> Node:
    """Read a helper's file: the entries name, key, state and roster of a site's file, and nothing else."""
    content = read_toml(path)
    if set(content) != _HELPER_ENTRIES:
        raise UsageError(f"{path}: expected exactly the entries {', '.join(sorted(_HELPER_ENTRIES))}.")
    folder, name = path.parent, str(content["name"])
    state = folder / str(content["state"])

    credentials = Credentials(
        identity=Identity.load(folder / str(content["key"])), roster=read_roster(path, content["roster"])
    )

    def opened() -> Endpoint:
        return Helper(
            name,
            randomness=SecureRandomness(),
            store=ServerStore(state / "exchanges"),
            credentials=credentials,
        )

    return Node(name=name, state=state, credentials=credentials, open=opened)


# --- the ClientApp ------------------------------------------------------------------------------------------


log = SafeLogger("fedassay.flower")

Handler = Callable[[Message, Context], Message]
_Read = Callable[[Mapping[str, Any]], Node]
_Reply = Callable[[Node, bytes, Context], bytes]


def app_of(read: _Read) -> ClientApp:
    """Return the ClientApp whose party is what `read` makes of the node's own configuration."""
    app = ClientApp()
    app.query(HELLO.partition(".")[2])(_handler(read, _introduce))
    app.query(REQUEST.partition(".")[2])(_handler(read, _answer))
    return app


def _handler(read: _Read, reply: _Reply) -> Handler:
    """Return the handler that Flower calls: check the coordinator's signature, let `reply` make the reply, sign it."""

    def handle(message: Message, context: Context) -> Message:
        try:
            node = read(context.node_config)
            request = opened_request(Frame.unpack(message), node.credentials, sender=COORDINATOR)
            frame = signed_reply(reply(node, request, context), node.credentials, request=request)
        except Exception as error:  # the boundary of a site: nothing but a fixed code may leave
            malformed = isinstance(error, ProtocolError)
            (log.warning if malformed else log.failure)("refused: %s", error)
            code = Refusal.PROTOCOL if malformed else Refusal.INTERNAL
            frame = Frame(body=envelope.pack_refusal(sender="", code=code))
        return Message(frame.pack(), reply_to=message)

    return handle


def _introduce(node: Node, request: bytes, context: Context) -> bytes:
    asker = key_to_text(node.credentials.roster[COORDINATOR])
    return answer_hello(request, name=node.name, node=context.node_id, prekeys=node.offer(asker))


def _answer(node: Node, request: bytes, context: Context) -> bytes:
    with node.opened() as endpoint:
        # `_handler` has checked the signature of this key on the request.
        return endpoint.answer(request, asker=key_to_text(node.credentials.roster[COORDINATOR]))


app = app_of(read_node)
