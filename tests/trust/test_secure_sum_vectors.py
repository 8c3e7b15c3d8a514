"""Stored vectors: the bytes of keys, pads, shares and of one whole run must not change by accident.

`python tests/trust/test_secure_sum_vectors.py` writes them anew, for a change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from fedassay.crypto.keys import KeyPair, Secret, context, seal
from fedassay.crypto.packed import Packing
from fedassay.crypto.prekeys import pad
from fedassay.kernel.member_store import MemberStore
from fedassay.protocol import wire
from fedassay.trust.question import question
from secure_sum_driver import NOW, Run, Seeded, credentials_of, vectors

STORED = Path(__file__).parent.parent / "vectors" / "secure_sum.json"


def secret(text: str) -> Secret:
    return Secret(hashlib.sha256(text.encode()).digest())


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array, "<u8")).hexdigest()


def primitives() -> dict[str, object]:
    one, two = KeyPair.of(secret("one")), KeyPair.of(secret("two"))
    packing = Packing(members=8, threshold=5, packed=2)
    pads = np.stack([pad(secret(f"pad {j}"), 3) for j in range(8)])
    corrections = packing.corrections(packing.rows(np.array([1, -2, 3, -4, 5])), [(slice(3), pads)])
    assert corrections is not None
    return {
        "public key": one.public.hex(),
        "agreed key": one.agree(two.public, salt=b"salt", info=context("purpose", "a", "b")).data.hex(),
        "sealed": seal(secret("key"), b"text", associated=b"a", randomness=Seeded("nonce")).hex(),
        "pad": [f"{word:016x}" for word in pad(secret("pad"), 4).tolist()],
        "pad of 40,000": digest(pad(secret("pad"), 40_000)),
        "corrections": corrections.tolist(),
    }


def bindings() -> dict[str, object]:
    prekey = MemberStore(None, clock=lambda: NOW).issue(
        1, coordinator="c", credentials=credentials_of("a", ["a"]), randomness=Seeded("prekey")
    )[0]
    return {"question": question(Run.of(4).exchange.plans).hex(), "prekey": prekey.packed().hex()}


def transcript() -> dict[str, object]:
    """Eight clients, one of which does not speak and another one of which does not answer."""
    run = Run.of(8, seed="vector", signed=True, silent={"client-002": 0, "client-005": 1}, lengths=(3, 2))
    values = {name: [vector.tolist() for vector in vectors_] for name, vectors_ in run.values.items()}
    released = run.go()
    digests = [
        hashlib.sha256(b"".join(wire.encode(sent[name]) for name in sorted(sent))).hexdigest()
        for leg in range(2)
        for sent in (run.requests[leg], run.replies[leg])
    ]
    opening = released[0].opening
    assert opening is not None
    return {
        "values": values,
        "session": hashlib.sha256(bytes.fromhex(opening["terms"])).hexdigest(),
        "set": opening["set"],
        "messages by leg": digests,
        "totals": vectors(released),
    }


def current() -> dict[str, object]:
    return {"primitives": primitives(), "bindings": bindings(), "transcript": transcript()}


def test_nothing_has_changed():
    assert current() == json.loads(STORED.read_text(encoding="utf-8"))


def test_the_stored_totals_are_the_sum_over_those_who_spoke():
    """The only stored number that can be checked by hand."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))["transcript"]
    spoke = [vectors_ for name, vectors_ in stored["values"].items() if name != "client-002"]
    expected = [[sum(column) for column in zip(*plan, strict=True)] for plan in zip(*spoke, strict=True)]
    assert stored["totals"] == expected


if __name__ == "__main__":
    STORED.write_text(json.dumps(current(), indent=1) + "\n", encoding="utf-8")
