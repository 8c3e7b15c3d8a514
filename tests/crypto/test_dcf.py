"""Comparison functions are right at every point, and malformed keys are refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedassay.crypto import dcf
from fedassay.crypto.dcf import evaluate, generate, totals, whole_domain
from fedassay.crypto.dcf_keys import Keys, key_bytes, well_formed
from fedassay.crypto.dcf_levels import TreeRoute
from fedassay.crypto.field61 import PRIME, add
from fedassay.errors import ProtocolError, UsageError
from secure_sum_driver import Seeded
from stated import Verify


def together(keys: tuple[Keys, Keys], points: object) -> np.ndarray:
    return add(*(evaluate(party, points) for party in keys))


def steps(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    return (np.asarray(points)[None, :] >= np.asarray(values)[:, None]).astype(np.uint64)


# --- right at every point -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_value_at_every_point_of_small_domains(bits: int):
    x = np.arange(2**bits)
    keys = generate(x, bits=bits, randomness=Seeded("exhaustive", bits))
    np.testing.assert_array_equal(together(keys, x), steps(x, x))


def random_pairs(count: int) -> int:
    """Each key at a random point, at its value, and just below it: how many were compared."""
    source, compared = np.random.default_rng(count), 0
    for start in range(0, count, 500):
        x = source.integers(0, 2**32, 500)
        x[:3] = 0, 1, 2**32 - 1
        points = np.concatenate([source.integers(0, 2**32, 2), [x[3], max(x[4] - 1, 0), 0, 2**32 - 1]])
        keys = generate(x, bits=32, randomness=Seeded("pairs", start))
        np.testing.assert_array_equal(together(keys, points), steps(x, points))
        compared += x.size * points.size
    return compared


def test_random_pairs_at_32_bits():
    assert random_pairs(3500) >= 20_000


@pytest.mark.full
def test_a_million_random_pairs_at_32_bits(verify: Verify):
    compared = random_pairs(200_000)
    assert compared >= 1_000_000
    verify(
        "comparison functions: shares add up to 1[point >= value], 32 bits", f"{compared:,} pairs, no error"
    )


@given(data=st.data(), bits=st.integers(1, 32), seed=st.integers())
@settings(max_examples=60, deadline=None)
def test_any_set_of_points_in_any_order(data, bits, seed):
    number = st.integers(0, 2**bits - 1)
    x = data.draw(st.lists(number, min_size=1, max_size=4))
    points = data.draw(st.lists(number | st.sampled_from(x), max_size=12))
    keys = generate(x, bits=bits, randomness=Seeded(seed))
    np.testing.assert_array_equal(together(keys, np.array(points, np.int64)), steps(x, np.array(points)))


def test_the_whole_domain_equals_point_by_point():
    keys = generate([0, 77, 1023], bits=10, randomness=Seeded("grid"))
    for party in keys:
        whole = evaluate(party, whole_domain(10))
        one_by_one = np.hstack([evaluate(party, [point]) for point in range(1024)])
        np.testing.assert_array_equal(whole, one_by_one)


def test_a_large_domain_in_parts():
    x = np.array([0, 65_535, 65_536, 131_071, 131_071 + 1, 2**18 - 1])
    keys = generate(x, bits=18, randomness=Seeded("large"))
    np.testing.assert_array_equal(together(keys, whole_domain(18)), steps(x, np.arange(2**18)))


def test_block_sizes_do_not_matter(monkeypatch: pytest.MonkeyPatch):
    x, points = np.arange(100) * 7 % 512, np.arange(0, 512, 3)
    expected = [party.to_bytes() for party in generate(x, bits=9, randomness=Seeded("blocks"))]
    shares = [evaluate(party, points) for party in generate(x, bits=9, randomness=Seeded("blocks"))]
    monkeypatch.setattr(dcf, "_KEYS_AT_ONCE", 7)
    monkeypatch.setattr(dcf, "_NODES_AT_ONCE", 64)
    keys = generate(x, bits=9, randomness=Seeded("blocks"))
    for party, data, share in zip(keys, expected, shares, strict=True):
        np.testing.assert_array_equal(party.to_bytes(), data)
        np.testing.assert_array_equal(evaluate(party, points), share)


def test_each_node_is_expanded_once():
    """The whole domain of n bits has 2^n − 1 inner nodes; a route that shares nothing would expand n·2^n."""
    for points, nodes in ((whole_domain(10), 1023), (np.array([5, 5, 4], np.uint64), 10), ([0, 1023], 19)):
        route, width, visited = TreeRoute.to(np.asarray(points, np.uint64), bits=10), 1, 0
        for parents in route.parents:
            visited += width
            width = sum(len(np.arange(width)[some]) for some in parents)
        assert (visited, width) == (nodes, route.width)


def test_totals_are_sums_over_the_keys():
    x = np.array([3, 3, 200, 255, 0])
    keys = generate(x, bits=8, randomness=Seeded("totals"))
    points = np.array([0, 3, 199, 255])
    assert add(*(totals(party, points) for party in keys)).tolist() == [1, 3, 3, 5]
    for party in keys:
        exact = [sum(column) % PRIME for column in evaluate(party, points).T.tolist()]
        assert totals(party, points).tolist() == exact


def test_no_keys_and_no_points():
    first, second = generate([], bits=5, randomness=Seeded())
    assert first.to_bytes().shape == (0, key_bytes(5))
    assert len(Keys.from_bytes(first.to_bytes(), party=0, bits=5)) == 0
    assert totals(second, [1, 2]).tolist() == [0, 0]
    one, _ = generate([1], bits=5, randomness=Seeded())
    assert evaluate(one, []).shape == (1, 0)


@pytest.mark.parametrize("bits", [0, 33, -1, True, 2.0])
def test_other_domains_are_refused(bits):
    with pytest.raises(UsageError, match="expected 1 to 32"):
        generate([0], bits=bits, randomness=Seeded())


def test_domains_that_are_too_large_to_hold_are_not_made_whole():
    assert len(whole_domain(17)) == 2**17
    with pytest.raises(UsageError, match="whole domain: got 25 bits, expected at most 24; give some points"):
        whole_domain(25)


@pytest.mark.parametrize("values", [[4], [-1], [0.5], [[1]], ["a"], [2**64], [1, -(2**63)]])
def test_values_and_points_outside_the_domain_are_refused(values):
    with pytest.raises(UsageError, match="values of comparison functions"):
        generate(values, bits=2, randomness=Seeded())
    keys, _ = generate([1], bits=2, randomness=Seeded())
    with pytest.raises(UsageError, match="points of comparison functions"):
        evaluate(keys, values)


# --- keys as bytes ------------------------------------------------------------------------------------------


def honest(bits: int = 6) -> tuple[np.ndarray, np.ndarray]:
    first, second = generate(np.arange(5) % 2**bits, bits=bits, randomness=Seeded("bytes"))
    return first.to_bytes(), second.to_bytes()


def test_keys_survive_the_way_through_bytes():
    first, second = honest()
    assert first.shape == (5, key_bytes(6))
    read = Keys.from_bytes(first, party=0, bits=6), Keys.from_bytes(second, party=1, bits=6)
    np.testing.assert_array_equal(read[0].to_bytes(), first)
    np.testing.assert_array_equal(together(read, whole_domain(6)), steps(np.arange(5), np.arange(64)))


def test_rows_that_lie_anywhere_in_memory_can_be_read():
    first, _ = honest()
    shifted = np.frombuffer(b"x" + first.tobytes(), np.uint8)[1:].reshape(first.shape)
    wide = np.hstack([first, first])[:, : first.shape[1]]
    for data in (shifted, wide, np.asfortranarray(first)):
        np.testing.assert_array_equal(Keys.from_bytes(data, party=0, bits=6).to_bytes(), first)


def test_the_two_keys_differ_in_party_and_seed_only():
    first, second = honest()
    differs = np.flatnonzero((first != second).any(axis=0))
    assert differs[0] == 5
    assert set(differs[1:]) <= set(range(8, 24))


def test_a_key_of_32_bits_has_about_800_bytes():
    assert key_bytes(32) == 808


def with_bytes(data: np.ndarray, changes: dict[int, int]) -> np.ndarray:
    changed = data.copy()
    for place, byte in changes.items():
        changed[3, place] = byte
    return changed


@pytest.mark.parametrize(
    "changes",
    [
        {0: 0},
        {4: 2},
        {5: 1},
        {5: 7},
        {6: 7},
        {7: 1},
        dict.fromkeys(range(24, 32), 255),
        dict.fromkeys(range(32, 40), 255),
        {63: 0x20},
        dict.fromkeys(range(56, 63), 255) | {63: 0x1F},
    ],
)
def test_changed_keys_are_refused_in_one_sentence(changes):
    changed = with_bytes(honest()[0], changes)
    with pytest.raises(
        ProtocolError, match=r"^comparison key 3: expected one of version 1 for party 0 [^.]*\.$"
    ):
        Keys.from_bytes(changed, party=0, bits=6)
    assert well_formed(changed, party=0, bits=6).tolist() == [True, True, True, False, True]


@pytest.mark.parametrize(
    "data",
    [
        honest()[0][:, :-1],
        honest()[0][:, :0],
        np.hstack([honest()[0], honest()[0][:, :1]]),
        honest(7)[0],
        honest()[0].ravel(),
        honest()[0].astype(np.int64),
        honest()[0].tobytes(),
        None,
    ],
)
def test_truncated_long_or_foreign_arrays_are_refused_in_one_sentence(data):
    with pytest.raises(ProtocolError, match=r"^comparison keys: got .*, expected [^.]*\.$"):
        Keys.from_bytes(data, party=0, bits=6)


def test_keys_do_not_print_their_secrets():
    first, _ = generate([1, 2], bits=4, randomness=Seeded())
    assert repr(first) == "Keys(2 keys, party=0, bits=4)"


def test_parties_are_two():
    first, _ = honest()
    with pytest.raises(UsageError, match="expected 0 or 1"):
        Keys.from_bytes(first[:0], party=2, bits=6)


HONEST = [data[0].tobytes() for bits in (1, 6) for data in honest(bits)]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Random bytes, or an honest key with some bytes changed, cut off or put in."""
    key = draw(st.sampled_from(HONEST))
    kind = draw(st.sampled_from(["random", "right length", "flip", "cut", "insert"]))
    if kind == "random":
        return draw(st.binary(max_size=300))
    if kind == "right length":
        return key[:8] + draw(st.binary(min_size=len(key) - 8, max_size=len(key) - 8))
    at = draw(st.integers(0, len(key) - 1))
    if kind == "cut":
        return key[:at]
    if kind == "insert":
        return key[:at] + draw(st.binary(min_size=1, max_size=9)) + key[at:]
    return key[:at] + bytes([draw(st.integers(0, 255))]) + key[at + 1 :]


def fuzz(key: bytes, bits: int, party: int) -> bool:
    """Read whatever came; if it is a key, use it in every way. Whether it was one."""
    try:
        keys = Keys.from_bytes(np.frombuffer(key, np.uint8)[None], party=party, bits=bits)
    except ProtocolError:
        return False
    assert keys.to_bytes().tobytes() == key
    shares = evaluate(keys, whole_domain(bits))
    assert shares.max() < PRIME
    return True


QUIET = settings(
    max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


@given(key=mutated(), bits=st.sampled_from([1, 6]), party=st.integers(0, 1))
@QUIET
def test_any_bytes_are_a_key_or_refused(key, bits, party):
    fuzz(key, bits, party)


@pytest.mark.full
def test_many_bytes_are_a_key_or_refused(verify: Verify):
    seen = [0, 0]

    @given(key=mutated(), bits=st.sampled_from([1, 6]), party=st.integers(0, 1))
    @settings(QUIET, max_examples=50_000)
    def attack(key, bits, party):
        seen[fuzz(key, bits, party)] += 1

    attack()
    assert min(seen) > 1000
    verify(
        "comparison keys: random and mutated bytes are refused, or evaluated", f"{seen[0]:,} / {seen[1]:,}"
    )
