"""Two laws on which a secure sum rests: masked vectors look uniform, and rings fail as rarely as computed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedassay.crypto.keys import Secret
from fedassay.crypto.masks import add_masks
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.secure_sum_graph import failures, parameters
from secure_sum_driver import Run, Seeded
from stated import Verify

Words = NDArray[np.uint64]

# --- a masked vector alone ----------------------------------------------------------------------------------

LENGTH = 60_000
ERROR_RATE = 1e-6
"""Probability that the test below fails although the vectors are uniform; shared by its comparisons."""


def smallest_p(words: Words) -> float:
    """The smallest p-value of: each byte uniform on 0..255, and neighbouring words and bits uncorrelated."""
    octets = words.view(np.uint8).reshape(-1, 8)
    bytewise = [stats.chisquare(np.bincount(octets[:, place], minlength=256)).pvalue for place in range(8)]
    bits = np.unpackbits(octets, axis=1).astype(np.float64) - 0.5
    after = 4 * (bits[1:] * bits[:-1]).sum(axis=0) / np.sqrt(len(bits) - 1)  # 64 standard normals
    return float(min(*bytewise, *(2 * stats.norm.sf(np.abs(after)))))


def is_uniform(words: Words) -> bool:
    return smallest_p(words) > ERROR_RATE / 3 / (8 + 64)


def masked(values: NDArray[np.int64]) -> Words:
    """What one of four clients sends for these values, the others sending zeros."""
    zeros = np.zeros(LENGTH, np.int64)
    run = Run(
        trust=SecureSum(),
        values={"a": (values,), "b": (zeros,), "c": (zeros,), "d": (zeros,)},
        lengths=(LENGTH,),
        through_bytes=False,
        seed="uniform",
    )
    run.go(until=3)
    words: Words = run.replies[2]["a"]["masked"]
    return words


@pytest.mark.parametrize("value", [0, 1, -(2**40)])
def test_a_masked_vector_alone_is_uniform(value: int):
    assert is_uniform(masked(np.full(LENGTH, value)))


def test_the_test_rejects_weak_masks():
    values = np.arange(LENGTH).astype(np.uint64)
    key = Secret(Seeded("key").bytes(16))
    mask = add_masks(np.zeros(LENGTH, np.uint64), plus=[key])
    assert is_uniform(values + mask)
    assert not is_uniform(values)  # no mask
    assert not is_uniform(values + (mask >> np.uint64(1)))  # 63 bits of mask
    assert not is_uniform(values + mask % np.uint64(2**64 - 2**57))  # a range that is a little too small
    assert not is_uniform(np.repeat(mask[: LENGTH // 2], 2))  # each word used twice
    generator = np.random.RandomState(1)
    assert not is_uniform(generator.randint(0, 2**32 - 1, LENGTH, dtype=np.int64).astype(np.uint64))


# --- the failure probabilities of the ring ------------------------------------------------------------------

LARGEST_Z = 5.0
"""Two-sided error rate of one comparison: 6e-7."""

CHUNK = 10_000


def rings(n: int, marked: int, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """For each ring, which places are marked; twice around, so that stretches can wrap."""
    marks = np.zeros((count, n), np.int64)
    marks[:, :marked] = 1
    shuffled = generator.permuted(marks, axis=1)
    return np.hstack([shuffled, shuffled])


def stretch_sums(marks: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Marked places in the stretch that begins at each place of the ring."""
    n = marks.shape[1] // 2
    running = np.cumsum(np.hstack([np.zeros((len(marks), 1), np.int64), marks]), axis=1)
    return running[:, length : length + n] - running[:, :n]


def clients_that_fail(n: int, k: int, t: int, dropouts: int, count: int) -> NDArray[np.float64]:
    """For each ring, the survivors with too few neighbours, scaled to n clients."""
    generator, parts = np.random.default_rng(n + k), []
    for _ in range(count // CHUNK):
        marks = rings(n, dropouts, CHUNK, generator)
        around = np.roll(stretch_sums(marks, k + 1), k // 2, axis=1)  # the stretch whose middle is this place
        parts.append(((around > k - t) & (marks[:, :n] == 0)).sum(axis=1) * n / (n - dropouts))
    return np.concatenate(parts)


def stretches_that_fail(n: int, k: int, t: int, colluders: int, count: int) -> NDArray[np.float64]:
    """For each ring, the stretches with too many colluders."""
    generator, parts = np.random.default_rng(n - k), []
    for _ in range(count // CHUNK):
        sums = stretch_sums(rings(n, colluders, CHUNK, generator), k // 2)
        parts.append((sums > t - k // 2 - 2).sum(axis=1).astype(np.float64))
    return np.concatenate(parts)


def z(failing: NDArray[np.float64], claimed: float) -> float:
    """How many standard errors the mean is from the claim; rings are independent, places in one are not."""
    return float((failing.mean() - claimed) / (failing.std() / np.sqrt(len(failing))))


# Clients, neighbours, threshold, dropouts, colluders: chosen so that both fail in some per cent of the rings.
SETTINGS = [(100, 20, 15, 10, 8), (200, 40, 29, 25, 20), (300, 30, 21, 30, 18)]


def check(count: int) -> list[float]:
    scores = []
    for n, k, t, D, C in SETTINGS:
        sizes = {"clients": n, "neighbours": k, "dropouts": D, "colluders": C}
        correctness, security = failures(threshold=t, **sizes)
        assert 1e-3 < correctness < 1
        assert 1e-3 < security < 1
        clients = clients_that_fail(n, k, t, D, count)
        stretches = stretches_that_fail(n, k, t, C, count)
        scores += [z(clients, correctness), z(stretches, security)]
        # A threshold that is off by one, or a bound for one client only, is rejected.
        assert abs(z(clients, failures(threshold=t - 1, **sizes)[0])) > LARGEST_Z
        assert abs(z(stretches, failures(threshold=t + 1, **sizes)[1])) > LARGEST_Z
        assert abs(z(stretches, security / n)) > LARGEST_Z
    return scores


def test_rings_fail_as_rarely_as_computed():
    assert max(map(abs, check(20_000))) < LARGEST_Z


@pytest.mark.full
def test_rings_fail_as_rarely_as_computed_in_many_rings(verify: Verify):
    largest = max(map(abs, check(400_000)))
    assert largest < LARGEST_Z
    k, t, correctness, security = parameters(1000, 0.2, 0.1)
    verify(
        "secure-sum: computed failure rates of random rings agree with simulation (400,000 rings)",
        f"largest |z| {largest:.1f}; 1,000 clients: k={k}, t={t}, failures {correctness:.1e}, {security:.1e}",
    )
