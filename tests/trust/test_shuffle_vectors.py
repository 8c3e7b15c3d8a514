"""Stored vectors of `shuffle`: what is on the wire stays as it is, and what was sealed then still opens.

To make them anew after a change of the format (which needs a new version in `session_of`):
``python tests/trust/test_shuffle_vectors.py``.
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
from fedassay.protocol.vocabulary import Budget, Select, Sum
from fedassay.trust.introductions import Pair
from fedassay.trust.local_reports import Question
from fedassay.trust.shuffle.messages import LetterRoute, from_text, session_of
from servers_town import stored_replies
from shuffle_driver import HISTOGRAM, OPENED, SERVERS, SHUFFLER, Losses, Town, one_row, plan_of

PATH = Path(__file__).parents[1] / "vectors" / "shuffle.json"
NAMES = ("a", "b", "c")


def made() -> tuple[Town, dict[str, Any]]:
    """A small exchange, all of it seeded."""
    terms = {"budget": Budget(epsilon=200.0, delta=1e-6), "clients": len(NAMES)}
    plans = (
        plan_of(Select(of=Losses(cells=3), share=0.5), **terms),
        plan_of(Sum(of=HISTOGRAM, share=0.5), **terms),
    )
    vectors = {name: (90 * (np.arange(3) != i), one_row(i, 1)) for i, name in enumerate(NAMES)}
    town = Town(plans=plans, vectors=vectors, seed=20)
    private: dict[str, str] = {}

    def note(name: str, leg: int, message: Any) -> Any:
        if name in SERVERS and leg > 0:
            private[name] = town.helpers[name].store.conversations[town.id].state["private"].hex()
        return message

    town.to = note
    town.go()
    numbers = town.trust.numbers(plans)
    return town, {
        "exchange": town.id.hex(),
        "session": session_of(exchange=town.id, plans=plans, numbers=numbers, servers=SERVERS).hex(),
        "private": private,
        "replies": {f"{leg} {name}": wire.encode(said).hex() for (name, leg), said in town.said.items()},
    }


def test_every_message_is_as_stored_and_what_was_sealed_then_opens_now() -> None:
    town, found = made()
    stored, replies = stored_replies(PATH, found)
    analyst, shuffler = (KeyPair.of(Secret(bytes.fromhex(stored["private"][name]))) for name in SERVERS)
    keys = Pair(analyst.public, shuffler.public)
    assert keys == tuple(replies[f"0 {name}"]["public"] for name in SERVERS)
    for place, plan in enumerate(town.plans):
        route = LetterRoute(session=bytes.fromhex(stored["session"]), place=place, servers=keys)
        letters = []
        for number, client in enumerate(NAMES):
            reply = replies[f"1 {client}"]
            letter = route.open_envelope(shuffler, client, reply["public"], reply["sealed"][place])
            assert letter is not None
            letters.append(letter)
            text = route.open_letter(analyst, letter)
            assert text is not None
            report = from_text(Question.of(plan), text)
            assert report is not None
            assert place == 1 or report.content == number
        bag = replies[f"{OPENED} {SHUFFLER}"]["letters"][place]
        assert sorted(letters) == sorted(row.tobytes() for row in bag)


if __name__ == "__main__":
    PATH.write_text(json.dumps(made()[1], indent=1) + "\n", encoding="utf-8")
