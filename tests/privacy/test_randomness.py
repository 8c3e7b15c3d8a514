"""The two sources of random bits."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from fedassay.errors import UsageError
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness, require_secure

SOURCES = [SecureRandomness(), SimulatedRandomness(5, "test")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 511, 512, 513, 4095, 4096, 4097, 10_001])
def test_as_many_as_asked_for(source: Any, count: int) -> None:
    assert isinstance(source.bytes(count), bytes)
    assert len(source.bytes(count)) == count
    words = source.words(count)
    assert words.dtype == np.uint64
    assert words.shape == (count,)
    words[:] = 0  # the caller owns it


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
@pytest.mark.parametrize("count", [500, 60_000])
def test_all_bits_are_balanced_and_nothing_repeats(source: Any, count: int) -> None:
    words = np.concatenate([source.words(count), source.words(count)])
    assert np.unique(words).size == words.size
    ones = np.unpackbits(words.view(np.uint8)).reshape(words.size, 64).sum(axis=0, dtype=np.int64)
    # 64 bits, each Binomial(2·count, 1/2): seven standard deviations leave an error rate of 2e-10.
    assert np.abs(ones - count).max() < 7 * np.sqrt(count / 2)


def test_a_secure_source_has_no_state_to_copy_or_repeat() -> None:
    source = SecureRandomness()
    assert not vars(source)
    assert source.child("a").words(600)[0] != source.child("a").words(600)[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_repeat_secure_bits() -> None:
    source = SecureRandomness()
    source.words(1000)
    here, there = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(there, source.words(1000)[:64].tobytes())
        os._exit(0)
    os.close(there)
    inherited = os.read(here, 512)
    os.close(here)
    os.waitpid(child, 0)
    assert len(inherited) == 512
    assert inherited != source.words(1000)[:64].tobytes()


def test_a_seed_repeats_and_children_are_named() -> None:
    one, two = SimulatedRandomness(3), SimulatedRandomness(3)
    one.words(10)  # what was drawn from the parent does not matter to the child
    assert one.child("x").child("y").bytes(16) == two.child("x").child("y").bytes(16)
    assert one.child("x").bytes(16) == SimulatedRandomness(3, "x").bytes(16)


def test_paths_do_not_run_together() -> None:
    sources = [
        SimulatedRandomness(1, "ab", "c"),
        SimulatedRandomness(1, "a", "bc"),
        SimulatedRandomness(1, "abc"),
        SimulatedRandomness(1),
        SimulatedRandomness(11, "bc"),
        SimulatedRandomness(1, ""),
    ]
    assert len({source.bytes(16) for source in sources}) == len(sources)


def test_the_stream_is_the_same_in_every_version() -> None:
    assert SimulatedRandomness(42, "vector").bytes(8).hex() == "6e93fb5c4974eae6"


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(UsageError, match="seed"):
        SimulatedRandomness(seed)


def test_a_release_refuses_a_seed() -> None:
    require_secure(SecureRandomness())
    with pytest.raises(UsageError, match="a seed on a real release"):
        require_secure(SimulatedRandomness(1))
