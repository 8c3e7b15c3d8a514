"""A ClientApp whose nodes misbehave as their configuration says: the real one, but something goes wrong in it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedassay.kernel import envelope
from fedassay.protocol import wire
from fedassay.runtimes.flower import client_app
from fedassay.runtimes.flower.post import HELLO, REQUEST, Frame

_HONEST = envelope.sealed
LATE = 300.0
SECRET = "patient 4711"

app = ClientApp()
app.query(HELLO.partition(".")[2])(client_app.app)


def answer(message: Message, context: Context) -> Message:
    """The honest reply; or one that was spoiled before it was sealed and signed, as a site that lies could do."""
    behaviour = context.node_config.get("behaviour", "honest")
    with patch.object(envelope, "sealed", partial(_sealed, behaviour)):
        reply = client_app.app(message, context)
    if behaviour == "late":
        _wait_until_over(Frame.unpack(message).body, Path(str(context.node_config["site"])).parent)
    if behaviour == "crash":
        raise RuntimeError(SECRET)
    if behaviour == "replay":
        kept = Path(str(context.node_config["site"])).with_name("first-reply")
        if kept.exists():
            body, signature = kept.read_bytes()[:-64], kept.read_bytes()[-64:]
            return Message(Frame(body=body, signature=signature).pack(), reply_to=message)
        first = Frame.unpack(reply)
        kept.write_bytes(first.body + first.signature)
    return reply


def _wait_until_over(request: bytes, place: Path) -> None:
    """The test leaves a file at the site when the study is over."""
    deadline = time.monotonic() + LATE
    while time.monotonic() < deadline and not (place / f"{wire.decode(request)['study']}.over").exists():
        time.sleep(0.2)


def _sealed(behaviour: object, reply: bytes, *to: Any, **options: Any) -> bytes:
    content = wire.decode(reply)
    if behaviour in ("shapes", "nan") and "message" in content:
        reply = wire.encode({**content, "message": _spoiled(content["message"], str(behaviour))})
    return _HONEST(reply, *to, **options)


def _spoiled(value: Any, behaviour: str) -> Any:
    if isinstance(value, dict):
        return {key: _spoiled(item, behaviour) for key, item in value.items()}
    if isinstance(value, list):
        return [_spoiled(item, behaviour) for item in value]
    if isinstance(value, np.ndarray):
        return value[1:] if behaviour == "shapes" else np.full(value.shape, np.nan)
    return value


app.query(REQUEST.partition(".")[2])(answer)
