"""Two sources of random bits: a secure one for releases, a seeded one for simulations.

Everything random in fedassay takes a source as an argument. A source states whether its bits could be known
(`simulated`); code that releases calls `require_secure` and so cannot be handed a seed.
"""

from __future__ import annotations

import builtins
import hashlib
import os
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Randomness

_BULK = 4096
"""Length in bytes from which a cipher stream is faster than the operating system's generator."""


@dataclass(frozen=True)
class SecureRandomness:
    """Unpredictable bits: from the operating system, stretched by AES-256 in counter mode.

    Guarantee: every call takes a fresh key (or the bytes themselves) from the operating system, uses it for
    this call only and forgets it. There is no state between calls: nothing to copy, to repeat after a fork,
    to share between threads, or to reveal later.

    Assumption: the operating system's generator is sound and AES-256 is a pseudorandom permutation; one call
    stays far below the 2^64 blocks after which counter mode could be distinguished from random bits.

    Examples
    --------
    >>> source = SecureRandomness()
    >>> source.simulated, len(source.bytes(5)), source.words(3).dtype
    (False, 5, dtype('uint64'))
    """

    @property
    def simulated(self) -> bool:
        """False: these bits cannot be known."""
        return False

    def bytes(self, count: int) -> builtins.bytes:
        """Draw uniform bytes."""
        return os.urandom(count) if count < _BULK else self.words(-(-count // 8)).tobytes()[:count]

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw uniform 64-bit words."""
        if 8 * count < _BULK:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64).copy()
        stream = Cipher(AES(os.urandom(32)), CTR(builtins.bytes(16))).encryptor()
        words = np.empty(count, dtype=np.uint64)
        stream.update_into(np.zeros_like(words).data.cast("B"), words.data.cast("B"))
        return words

    def child(self, name: str) -> SecureRandomness:
        """Return a source for a part of the work; here any source is independent of every other."""
        return self


@dataclass(frozen=True)
class SimulatedRandomness:
    """Bits that anyone with the seed can repeat: for simulations and tests only.

    Guarantee: the same seed and path give the same bits in every process; different paths give streams that
    are independent for all statistical purposes (PCG64, seeded by a hash of seed and path). No secrecy.

    Examples
    --------
    >>> source = SimulatedRandomness(7)
    >>> bool((source.child("a").words(4) == SimulatedRandomness(7, "a").words(4)).all())
    True
    >>> bool((source.child("a").words(4) == source.child("b").words(4)).any())
    False
    """

    seed: int
    path: tuple[str, ...]
    _stream: np.random.PCG64 = field(repr=False, compare=False)

    def __init__(self, seed: int, *path: str) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise UsageError(f"seed: got {seed!r}, expected a whole number of at least 0.")
        # Each part is hashed with its length, so that no two paths can run together.
        parts = b"".join(len(part.encode()).to_bytes(8) + part.encode() for part in (str(int(seed)), *path))
        entropy = int.from_bytes(hashlib.sha256(parts).digest())
        object.__setattr__(self, "seed", int(seed))
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "_stream", np.random.PCG64(np.random.SeedSequence(entropy)))

    @property
    def simulated(self) -> bool:
        """True: a holder of the seed knows the bits."""
        return True

    def bytes(self, count: int) -> builtins.bytes:
        """Draw uniform bytes."""
        return self.words(-(-count // 8)).astype("<u8", copy=False).tobytes()[:count]

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw uniform 64-bit words."""
        words: NDArray[np.uint64] = self._stream.random_raw(count)
        return words

    def child(self, name: str) -> SimulatedRandomness:
        """Return a separate stream, the same whatever was drawn from this one before."""
        return SimulatedRandomness(self.seed, *self.path, name)


def require_secure(randomness: Randomness) -> None:
    """Refuse a source whose bits could be known.

    `run` calls this for the server; a site opens with a secure source of its own.

    Examples
    --------
    >>> require_secure(SecureRandomness())
    >>> require_secure(SimulatedRandomness(1))
    Traceback (most recent call last):
    fedassay.errors.UsageError: randomness: got a seed on a real release; leave the seed out.
    """
    if randomness.simulated:
        raise UsageError("randomness: got a seed on a real release; leave the seed out.")
