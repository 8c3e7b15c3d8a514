"""The ClientApp of a deployment: hands each request to the site's own client, and its reply back.

Guarantee: whatever goes wrong leaves as a fixed code. Flower would send the text of an exception to the
server, so none may reach it; what happened is in the log of the SuperNode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedassay.crypto.identity import key_to_text
from fedassay.errors import ProtocolError
from fedassay.kernel import envelope
from fedassay.kernel.envelope import Refusal
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import COORDINATOR
from fedassay.runtimes.flower.directory import answer_hello
from fedassay.runtimes.flower.nodes import Node, read_node
from fedassay.runtimes.flower.post import HELLO, REQUEST, Frame, opened_request, signed_reply

log = SafeLogger("fedassay.flower")

Handler = Callable[[Message, Context], Message]
_Read = Callable[[Mapping[str, Any]], Node]
_Reply = Callable[[Node, bytes, Context], bytes]


def app_of(read: _Read) -> ClientApp:
    """The ClientApp whose party is what `read` makes of the node's own configuration."""
    app = ClientApp()
    app.query(HELLO.partition(".")[2])(_handler(read, _introduce))
    app.query(REQUEST.partition(".")[2])(_handler(read, _answer))
    return app


def _handler(read: _Read, reply: _Reply) -> Handler:
    """What Flower calls: check the coordinator's signature, let `reply` make the reply, sign it."""

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
