"""The check accepts every honest client, and nobody who counts other than exactly once."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dcf_reference as reference
from fedassay.crypto import dcf
from fedassay.crypto.dcf import evaluate, generate, totals, whole_domain
from fedassay.crypto.dcf_keys import Keys, key_bytes, well_formed
from fedassay.crypto.field61 import PRIME, add
from fedassay.crypto.sketch import Challenge, Half, accepted, answer, begin, begin_and_total
from fedassay.errors import ProtocolError, UsageError
from secure_sum_driver import Seeded
from stated import Verify

Pair = tuple[bytes, bytes]


def seed(number: int = 0) -> bytes:
    return hashlib.sha256(f"challenge {number}".encode()).digest()


def verdict(keys: tuple[Keys, Keys], challenge: Challenge) -> np.ndarray:
    """Both servers' halves; they must come to the same result."""
    (half_0, first_0), (half_1, first_1) = (begin(party, challenge) for party in keys)
    second_0, second_1 = answer(half_0, first_1), answer(half_1, first_0)
    result = accepted(second_0, second_1)
    np.testing.assert_array_equal(result, accepted(second_1, second_0))
    return result


def read(pairs: list[Pair], bits: int) -> tuple[Keys, Keys]:
    rows = [
        np.frombuffer(b"".join(keys), np.uint8).reshape(len(pairs), -1) for keys in zip(*pairs, strict=True)
    ]
    return Keys.from_bytes(rows[0], party=0, bits=bits), Keys.from_bytes(rows[1], party=1, bits=bits)


def function(keys: tuple[Keys, Keys]) -> list[list[int]]:
    """What each client counts at every point, as a signed number."""
    values = add(*(evaluate(party, whole_domain(party.bits)) for party in keys))
    return np.where(values > PRIME // 2, values.astype(np.int64) - PRIME, values.astype(np.int64)).tolist()


# --- honest clients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 3, 6, 11])
def test_every_honest_client_is_accepted(bits):
    keys = generate(np.arange(2**bits), bits=bits, randomness=Seeded("honest", bits))
    for number in range(1 if bits > 6 else 20):
        assert verdict(keys, Challenge.of(seed(number), bits=bits)).all()


def test_a_grid_of_some_points_of_a_large_domain():
    generator = np.random.default_rng(1)
    points = np.unique(np.append(generator.integers(0, 2**32, 300), 2**32 - 1))
    x = np.concatenate([generator.integers(0, 2**32, 200), points[:50], points[:50] + 1, [0, 2**32 - 1]])
    keys = generate(x, bits=32, randomness=Seeded("some points"))
    assert verdict(keys, Challenge.of(seed(), bits=32, points=points)).all()


def test_a_grid_that_is_evaluated_in_parts(monkeypatch: pytest.MonkeyPatch):
    keys = generate(np.arange(60) * 17, bits=10, randomness=Seeded("parts"))
    challenge = Challenge.of(seed(), bits=10)
    whole = [begin(party, challenge)[1] for party in keys]
    monkeypatch.setattr(dcf, "_NODES_AT_ONCE", 64)
    for party, expected in zip(keys, whole, strict=True):
        np.testing.assert_array_equal(begin(party, challenge)[1], expected)
        np.testing.assert_array_equal(begin_and_total(party, challenge)[2], totals(party, challenge.points))


def test_totals_come_with_the_check():
    points = [3, 4, 9, 15]
    for party in generate([0, 3, 9, 9, 10, 15], bits=4, randomness=Seeded("totals")):
        found = begin_and_total(party, Challenge.of(seed(), bits=4, points=points))
        np.testing.assert_array_equal(found[2], totals(party, points))
        np.testing.assert_array_equal(found[1], begin(party, Challenge.of(seed(), bits=4, points=points))[1])


@pytest.mark.full
def test_no_honest_client_of_many_is_rejected(verify: Verify):
    clients = 0
    for number in range(20):
        x = np.random.default_rng(number).integers(0, 1024, 10_000)
        keys = generate(x, bits=10, randomness=Seeded("many", number))
        assert verdict(keys, Challenge.of(seed(number), bits=10)).all()
        clients += len(x)
    verify("comparison functions: honest clients rejected by the whole-grid check", f"0 of {clients:,}")


# --- clients that cheat -------------------------------------------------------------------------------------

BITS = 4
HALF, THIRD = pow(2, -1, PRIME), pow(3, -1, PRIME)

# Name, value, what leaving the path at each level is worth, what the leaf is worth, and the function that this gives.
CHEATS: list[tuple[str, int, list[int], int, list[int]]] = [
    ("right at the top and 1000 elsewhere", 0, [1, 1000, 1000, 1000], 1000, [1000] * 8 + [1] * 8),
    ("right at the top and -1000 elsewhere", 0, [1, -1000, -1000, -1000], -1000, [-1000] * 8 + [1] * 8),
    ("right but at one point, where it is 1000", 9, [0, 1, 1, 0], 1000, [0] * 9 + [1000] + [1] * 6),
    ("+1, -1, +1 at the beginning", 1, [1, 1, 0, 1], 1, [1, 1, 0, 0] + [1] * 12),
    ("+1, -1, +1 at the end", 14, [0, 1, 0, 1], 0, [0] * 8 + [1] * 4 + [0] * 3 + [1]),
    ("two unit increments", 5, [2, 0, 2, 0], 1, [0] * 5 + [1] + [2] * 10),
    ("two unit increments, and p - 1 later", 5, [1, 0, 2, 0], 1, [0] * 5 + [1, 2, 2] + [1] * 8),
    ("p - 1 and then 2", 5, [1, 0, 1, 0], -1, [0] * 5 + [-1] + [1] * 10),
    ("a half and a half", 5, [1, 0, 1, 0], HALF, [0] * 5 + [HALF - PRIME] + [1] * 10),
    ("a third and two thirds", 5, [1, 0, 1, 0], THIRD, [0] * 5 + [THIRD - PRIME] + [1] * 10),
    ("never counts", 5, [0, 0, 0, 0], 0, [0] * 16),
    ("counts minus one", 5, [-1, 0, -1, 0], -1, [0] * 5 + [-1] * 11),
    ("counts below instead of above", 5, [0, 1, 0, 1], 0, [1] * 5 + [0] * 11),
    ("one increment of 1000", 5, [1000, 0, 1000, 0], 1000, [0] * 5 + [1000] * 11),
]


def made(x: int, leaving: list[int] | None = None, leaf: int = 1, error: int = 0) -> Pair:
    source = Seeded("client", x, leaving, leaf, error)
    return reference.generate(x, BITS, (source.bytes(16), source.bytes(16)), leaving, leaf, error)


HONEST = [made(x) for x in range(16)]


def rejected(cheats: list[Pair]) -> None:
    """Whatever the challenge, all of these and none of the honest clients among them."""
    keys = read(cheats + HONEST, BITS)
    for number in range(50):
        result = verdict(keys, Challenge.of(seed(number), bits=BITS))
        assert result.tolist() == [False] * len(cheats) + [True] * len(HONEST)


def test_functions_that_do_not_count_once_are_rejected():
    cheats = [made(x, leaving, leaf) for _, x, leaving, leaf, _ in CHEATS]
    assert function(read(cheats, BITS)) == [expected for *_, expected in CHEATS]
    rejected(cheats)


def test_a_check_of_the_largest_threshold_alone_would_accept_some_of_them():
    """The check that is not enough: these clients pass it."""
    keys = read([made(x, leaving, leaf) for _, x, leaving, leaf, _ in CHEATS], BITS)
    at_the_top = add(*(evaluate(party, [15]) for party in keys))[:, 0]
    assert at_the_top.tolist()[:5] == [1] * 5


def test_false_squares_are_rejected():
    rejected([made(5, error=error) for error in (1, -1, 2, 1000, HALF)])


def test_false_squares_do_not_help_cheats():
    rejected(
        [made(x, leaving, leaf, error) for _, x, leaving, leaf, _ in CHEATS for error in (1, -1, -2, 10**6)]
    )


def test_keys_that_do_not_belong_together_are_rejected():
    rejected([(HONEST[x][0], HONEST[other][1]) for x in range(16) for other in (3, 9) if x != other])


@pytest.mark.parametrize("changed", [0, 1])
def test_any_changed_byte_is_refused_or_rejected_or_changes_nothing(changed):
    """In one server's key; where nothing changes, no node of that server's tree uses the word."""
    source, bits = Seeded("changed"), 7
    pair = reference.generate(85, bits, (source.bytes(16), source.bytes(16)))
    pairs: list[Pair] = []
    for place in range(key_bytes(bits)):
        key = bytearray(pair[changed])
        key[place] ^= 0x31
        if well_formed(np.frombuffer(key, np.uint8)[None], party=changed, bits=bits).all():
            pairs.append((bytes(key), pair[1]) if changed == 0 else (pair[0], bytes(key)))
    keys = read(pairs, bits)
    unchanged = np.array([values == [0] * 85 + [1] * 43 for values in function(keys)])
    if changed == 0:  # party 1 does not use its copy of the square's correction
        unchanged &= keys[0].square == keys[1].square
    result = verdict(keys, Challenge.of(seed(), bits=bits))
    np.testing.assert_array_equal(result, unchanged)
    assert len(pairs) < key_bytes(bits) - 8
    assert 0 < result.sum() < len(pairs) / 2


# --- the messages in between --------------------------------------------------------------------------------

numbers = st.sampled_from([0, 1, 2, PRIME - 1, HALF]) | st.integers(0, PRIME - 1)


def halves_of(y: list[int], a: int, error: int, split: Seeded, r: list[int]) -> tuple[Half, Half]:
    """Halves of a check for any increments, shared at random."""
    z = sum(rj * yj for rj, yj in zip(r, y, strict=True))
    squares = sum(rj * rj * yj for rj, yj in zip(r, y, strict=True))
    whole = [z + a, a, a * a + error, squares, sum(y)]
    first = [int(word) % PRIME for word in split.words(5)]
    second = [(number - share) % PRIME for number, share in zip(whole, first, strict=True)]
    one, two = (Half(party=b, numbers=np.array([row], np.uint64)) for b, row in enumerate((first, second)))
    return one, two


@given(
    y=st.lists(numbers, min_size=2, max_size=6) | st.permutations([1, 0, 0, 0, 0]),
    a=numbers,
    error=st.sampled_from([0, 0, 0, 1, PRIME - 1]),
    number=st.integers(0, 10**9),
)
@settings(max_examples=400, deadline=None)
def test_exactly_unit_vectors_with_true_squares_pass(y, a, error, number):
    r = reference.challenge(seed(number), len(y))
    one, two = halves_of(list(y), a, error, Seeded("split", number), r)
    second = answer(one, two.numbers[:, 0]), answer(two, one.numbers[:, 0])
    honest = error == 0 and sorted(y) == [0] * (len(y) - 1) + [1]
    assert accepted(*second).tolist() == [honest]


def test_the_second_message_of_an_honest_client_is_known_beforehand():
    """It is minus one's own, so it tells a server nothing."""
    keys = generate(np.arange(16), bits=4, randomness=Seeded("zero knowledge"))
    (half_0, first_0), (half_1, first_1) = (begin(party, Challenge.of(seed(), bits=4)) for party in keys)
    second_0, second_1 = answer(half_0, first_1), answer(half_1, first_0)
    np.testing.assert_array_equal(second_1, (PRIME - second_0) % np.uint64(PRIME))


def test_a_check_is_a_pure_function_of_keys_and_seed():
    keys, _ = generate(np.arange(16), bits=4, randomness=Seeded("pure"))
    first, again, other = (begin(keys, Challenge.of(seed(number), bits=4))[1] for number in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


@pytest.mark.parametrize(
    "message",
    [
        None,
        [1] * 16,
        np.zeros(16),
        np.zeros(16, np.int64),
        np.zeros(15, np.uint64),
        np.zeros((16, 1), np.uint64),
        np.full(16, PRIME, np.uint64),
    ],
)
def test_malformed_messages_are_refused(message):
    keys, _ = generate(np.arange(16), bits=4, randomness=Seeded("malformed"))
    half, first = begin(keys, Challenge.of(seed(), bits=4))
    with pytest.raises(ProtocolError, match=r"^first message of a check: got .*\.$"):
        answer(half, message)
    with pytest.raises(ProtocolError, match=r"^second message of a check: got .*\.$"):
        accepted(answer(half, first), message)


def test_halves_do_not_print_their_secrets_and_are_checked():
    half = Half(party=1, numbers=np.zeros((3, 5), np.uint64))
    assert repr(half) == "Half(party=1, 3 clients)"
    with pytest.raises(UsageError, match="expected 0 or 1"):
        Half(party=2, numbers=half.numbers)
    with pytest.raises(ProtocolError, match="half of a check"):
        Half(party=1, numbers=half.numbers[:, :4])


@pytest.mark.parametrize("points", [[], [3, 15, 15], [15, 3], [3, 14], [3, 16], [-1, 15], [0.5, 15]])
def test_grids_must_increase_and_end_with_the_domain(points):
    with pytest.raises(UsageError, match=r"points of the check.*\.$"):
        Challenge.of(seed(), bits=4, points=points)


def test_challenges_are_for_one_domain_and_come_from_32_bytes():
    keys, _ = generate([1], bits=4, randomness=Seeded("domain"))
    with pytest.raises(UsageError, match="another domain"):
        begin(keys, Challenge.of(seed(), bits=5))
    with pytest.raises(UsageError, match="got 31 bytes, expected 32"):
        Challenge.of(seed()[1:], bits=4)
