"""Stored vectors of `two-server`: what is on the wire stays as it is, and what was sealed then still opens.

To make them anew after a change of the format (which needs a new version in `session_of`):
``python tests/trust/test_two_server_vectors.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedassay.crypto.keys import KeyPair, Secret
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Points, Protection, Sum
from fedassay.trust.introductions import Pair
from fedassay.trust.two_server.deposits import content
from fedassay.trust.two_server.layout import Layout
from fedassay.trust.two_server.messages import DepositRoute, session_of
from servers_town import stored_replies
from two_server_driver import SERVERS, Cells, Town, UpTo, lists, plans_of, setting, values

PATH = Path(__file__).parents[1] / "vectors" / "two_server.json"


def made() -> tuple[Town, dict[str, Any]]:
    """A small exchange, all of it seeded; its noise is zero."""
    terms = setting(protection=Protection(rows_per_client=2), clients=2)
    plans = plans_of(
        Sum(of=Cells(cells=3), share=0.5), Points(of=UpTo(cells=4), at=(1, 3), share=0.5), of=terms
    )
    counts = {
        "a": (np.array([0, 1, 1]), np.array([1, 0, 0, 0])),
        "b": (np.array([1, 0, 0]), np.array([0, 1, 0, 1])),
    }
    town = Town(plans=plans, counts=counts, seed=20)
    private: dict[str, str] = {}

    def note(name: str, leg: int, message: Any) -> Any:
        if leg == 2:
            private[name] = town.helpers[name].store.conversations[town.id].state["private"].hex()
        return message

    town.to = note
    released = town.go()
    assert released[0].value.tolist() == lists(town.exact())[0]
    return town, {
        "exchange": town.id.hex(),
        "session": session_of(exchange=town.id, plans=plans, servers=SERVERS).hex(),
        "private": private,
        "replies": {f"{leg} {name}": wire.encode(said).hex() for (name, leg), said in town.said.items()},
        "released": values(released),
    }


def test_every_message_is_as_stored_and_what_was_sealed_then_opens_now() -> None:
    town, found = made()
    stored, replies = stored_replies(PATH, found)
    keys = Pair(*(replies[f"0 {name}"]["public"] for name in SERVERS))
    for client in "ab":
        deposit = replies[f"1 {client}"]
        for party, name in enumerate(SERVERS):
            own = KeyPair.of(Secret(bytes.fromhex(stored["private"][name])))
            assert own.public == keys[party]
            for place, plan in enumerate(town.plans):
                route = DepositRoute(
                    session=bytes.fromhex(stored["session"]),
                    client=client,
                    place=place,
                    party=party,
                    servers=keys,
                )
                text = route.open(own, deposit["public"], deposit["sealed"][party][place])
                assert text is not None
                assert (
                    content(text, Layout.of(plan.query, plan.setting), party=party, place=place) is not None
                )


if __name__ == "__main__":
    PATH.write_text(json.dumps(made()[1], indent=1) + "\n", encoding="utf-8")
