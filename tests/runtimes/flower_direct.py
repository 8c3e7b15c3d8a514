"""The site's side of Flower without its processes: the ClientApp is called as Flower calls it."""

from __future__ import annotations

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedassay.kernel.sites import COORDINATOR
from fedassay.runtimes.flower.client_app import app
from fedassay.runtimes.flower.post import REQUEST, Frame, opened_reply, signed_request
from policy_sites import Sites, Transport


class ByFlower(Transport):
    """Signed frames to the ClientApp of a node whose configuration names the site's file."""

    def __init__(self, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(sites)
        for name in ("_run_id", "_node_id", "_task_id"):  # Flower lets only its own processes make messages
            monkeypatch.setattr(TaskIdentity, name, 1)

    def answer(self, name: str, body: bytes, number: int) -> bytes:
        believed = self.sites.credentials(COORDINATOR)
        message = Message(signed_request(body, believed).pack(), 77, REQUEST)
        message.metadata.__dict__["_message_id"] = "id"
        node_config = {"site": str(self.sites.root / name / "site.toml")}
        context = Context(run_id=1, node_id=77, node_config=node_config, state=RecordDict(), run_config={})
        return opened_reply(Frame.unpack(app(message, context)), believed, sender=name, request=body)
