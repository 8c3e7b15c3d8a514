"""Stored vectors: the bytes of keys, masks, shares and of one whole run must not change by accident.

`python tests/trust/test_secure_sum_vectors.py` writes them anew, for a change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from fedassay import wire
from fedassay.crypto.keys import KeyPair, Secret, context, seal
from fedassay.crypto.masks import add_masks
from fedassay.crypto.shamir import combine, split
from fedassay.trust.secure_sum_graph import Graph
from fedassay.trust.secure_sum_keys import channel, commit, pair_mask, question, self_mask, session_of
from secure_sum_driver import Run, Seeded, vectors

STORED = Path(__file__).parent.parent / "vectors" / "secure_sum.json"


def secret(text: str) -> Secret:
    return Secret(hashlib.sha256(text.encode()).digest())


def primitives() -> dict[str, object]:
    one, two = KeyPair.of(secret("one")), KeyPair.of(secret("two"))
    key = Secret(secret("mask").data[:16])
    dealt = split(secret("secret"), threshold=3, shares=5, randomness=Seeded("shares"))
    opened = combine({x: dealt[x - 1] for x in (1, 3, 5)})
    return {
        "public key": one.public.hex(),
        "agreed key": one.agree(two.public, salt=b"salt", info=context("purpose", "a", "b")).data.hex(),
        "sealed": seal(secret("key"), b"text", associated=b"a", randomness=Seeded("nonce")).hex(),
        "mask": [f"{word:016x}" for word in add_masks(np.zeros(4, np.uint64), plus=[key]).tolist()],
        "mask of 40,000": hashlib.sha256(add_masks(np.zeros(40_000, np.uint64), plus=[key])).hexdigest(),
        "shares": [share.data.hex() for share in dealt],
        "opened": opened.data.hex() if opened is not None else None,
    }


def bindings() -> dict[str, object]:
    one, two = KeyPair.of(secret("one")), KeyPair.of(secret("two"))
    asked = question(Run.of(4).exchange.plans)
    session = session_of(exchange=bytes(16), asked=asked, numbers=(4, 3, 2, 3), names=("a", "b"))
    return {
        "question": asked.hex(),
        "session": session.hex(),
        "pair mask": pair_mask(session, one, "a", "b", two.public).data.hex(),
        "self mask": self_mask(session, secret("seed"), "a").data.hex(),
        "channel": [key.data.hex() for key in channel(session, one, "a", "b", two.public)],
        "commitment": commit(session, "seed", "a", "b", secret("share")).hex(),
        "ring": list(Graph.of([f"c{i}" for i in range(8)], exchange=bytes(16), degree=4).ring),
    }


def transcript() -> dict[str, object]:
    """Four clients, one of which falls silent before it sends its vector."""
    run = Run.of(4, seed="vector", silent={"client-002": 2}, lengths=(3, 2))
    values = {name: [vector.tolist() for vector in vectors_] for name, vectors_ in run.values.items()}
    released = run.go()
    digests = [
        hashlib.sha256(b"".join(wire.encode(sent[name]) for name in sorted(sent))).hexdigest()
        for leg in range(4)
        for sent in (run.requests[leg], run.replies[leg])
    ]
    return {"values": values, "messages by leg": digests, "totals": vectors(released)}


def current() -> dict[str, object]:
    return {"primitives": primitives(), "bindings": bindings(), "transcript": transcript()}


def test_nothing_has_changed():
    assert current() == json.loads(STORED.read_text(encoding="utf-8"))


def test_the_stored_totals_are_the_sum_over_the_survivors():
    """The only stored number that can be checked by hand."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))["transcript"]
    survivors = [vectors_ for name, vectors_ in stored["values"].items() if name != "client-002"]
    expected = [[sum(column) for column in zip(*plan, strict=True)] for plan in zip(*survivors, strict=True)]
    assert stored["totals"] == expected


if __name__ == "__main__":
    STORED.write_text(json.dumps(current(), indent=1) + "\n", encoding="utf-8")
