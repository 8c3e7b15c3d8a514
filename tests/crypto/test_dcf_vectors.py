"""Stored vectors, and an independent slow implementation that agrees with them and with ours.

`python tests/crypto/test_dcf_vectors.py` writes the vectors anew (with the slow one), for a change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

import dcf_reference as reference
from fedassay.crypto.dcf import evaluate, generate
from fedassay.crypto.dcf_keys import Keys, key_bytes
from fedassay.crypto.dcf_levels import Purpose, fixed_key
from fedassay.crypto.sketch import Challenge, accepted, answer, begin
from secure_sum_driver import Seeded

STORED = Path(__file__).parent.parent / "vectors" / "dcf.json"
PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "dcf.md"

CASES = [(1, 0), (1, 1), (4, 9), (10, 0), (10, 700), (32, 2**32 - 1), (32, 0x12345678)]
SEED = hashlib.sha256(b"seed of the check").digest()


class Given:
    """A source that gives the bytes it was given."""

    simulated = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self, count: int) -> bytes:
        given, self._data = self._data[:count], self._data[count:]
        assert len(given) == count
        return given

    def words(self, count: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.bytes(8 * count), "<u8")


def seeds_of(bits: int, x: int) -> tuple[bytes, bytes]:
    digest = hashlib.sha256(f"seeds {bits} {x}".encode()).digest()
    return digest[:16], digest[16:]


def points_of(bits: int, x: int) -> list[int]:
    return sorted({0, x // 2, max(x - 1, 0), x, min(x + 1, 2**bits - 1), 2**bits - 1})


def case(bits: int, x: int) -> dict[str, Any]:
    keys = reference.generate(x, bits, seeds_of(bits, x))
    points = points_of(bits, x)
    vector: dict[str, Any] = {
        "bits": bits,
        "value": x,
        "seeds": [seed.hex() for seed in seeds_of(bits, x)],
        "keys": [key.hex() for key in keys],
        "points": points,
        "shares": [[reference.evaluate(key, point) for point in points] for key in keys],
    }
    if bits <= 4:
        first = [reference.first_message(key, SEED)[0] for key in keys]
        vector["first messages"] = first
        vector["second messages"] = [
            reference.second_message(key, SEED, sum(first) % reference.P) for key in keys
        ]
    return json.loads(json.dumps(vector))


def made() -> dict[str, Any]:
    return {
        "challenge": {"seed": SEED.hex(), "elements": reference.challenge(SEED, 4)},
        "cases": [case(bits, x) for bits, x in CASES],
    }


def stored() -> dict[str, Any]:
    vectors: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return vectors


def test_the_slow_implementation_gives_the_stored_vectors():
    assert made() == stored()


@pytest.mark.parametrize("index", range(len(CASES)))
def test_ours_gives_the_stored_vectors(index):
    vector = stored()["cases"][index]
    seeds = bytes.fromhex("".join(vector["seeds"]))
    keys = generate([vector["value"]], bits=vector["bits"], randomness=Given(seeds))
    assert [party.to_bytes().tobytes().hex() for party in keys] == vector["keys"]
    assert [evaluate(party, vector["points"])[0].tolist() for party in keys] == vector["shares"]
    total = [sum(column) % reference.P for column in zip(*vector["shares"], strict=True)]
    assert total == [int(point >= vector["value"]) for point in vector["points"]]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_our_check_gives_the_stored_messages(index):
    vector = stored()["cases"][index]
    data = [np.frombuffer(bytes.fromhex(key), np.uint8)[None] for key in vector["keys"]]
    keys = [Keys.from_bytes(rows, party=b, bits=vector["bits"]) for b, rows in enumerate(data)]
    halves, first = zip(
        *(begin(party, Challenge.of(SEED, bits=vector["bits"])) for party in keys), strict=True
    )
    assert [message.tolist() for message in first] == [[number] for number in vector["first messages"]]
    second = [answer(halves[0], first[1]), answer(halves[1], first[0])]
    assert [message.tolist() for message in second] == [[pair] for pair in vector["second messages"]]
    assert accepted(*second).tolist() == [True]


@pytest.mark.parametrize("bits", [1, 2, 5, 11, 32])
def test_ours_and_the_slow_one_make_and_read_the_same_keys(bits):
    generator = np.random.default_rng(bits)
    x = generator.integers(0, 2**bits, 40)
    source = Seeded("compare", bits).bytes(2 * 40 * 16)
    keys = generate(x, bits=bits, randomness=Given(source))
    points = generator.integers(0, 2**bits, 5)
    shares = [evaluate(party, points) for party in keys]
    for row, value in enumerate(x.tolist()):
        seeds = source[16 * row : 16 * row + 16], source[16 * (40 + row) : 16 * (41 + row)]
        for party, key in enumerate(reference.generate(value, bits, seeds)):
            assert keys[party].to_bytes()[row].tobytes() == key
            assert shares[party][row].tolist() == [
                reference.evaluate(key, point) for point in points.tolist()
            ]


def test_the_fixed_keys_are_hashes_of_their_names():
    assert [fixed_key(purpose).hex() for purpose in Purpose] == [
        hashlib.sha256(b"fedassay comparison functions 1: " + name).hexdigest()[:32]
        for name in (b"left seed", b"right seed", b"values", b"check")
    ]


def test_the_page_shows_the_fixed_keys_and_a_vector():
    page, vector = PAGE.read_text(encoding="utf-8"), stored()["cases"][1]
    for purpose in Purpose:
        assert f"| `{purpose.name.lower().replace('_', ' ')}` | `{fixed_key(purpose).hex()}` |" in page
    for text in (*vector["seeds"], *vector["keys"], *(" ".join(map(str, row)) for row in vector["shares"])):
        assert text in page
    for bits in (10, 32):
        assert f"{key_bytes(bits)} for {bits}" in page


if __name__ == "__main__":
    STORED.write_text(json.dumps(made(), indent=1) + "\n", encoding="utf-8")
