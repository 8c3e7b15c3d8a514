"""Shamir's secret sharing of 32-byte secrets, over the integers modulo the prime 2^257 − 93.

A secret s is the value at zero of a random polynomial f of degree t − 1, f(0) = s; share x is f(x), for
x = 1, 2, .. Any t shares determine f; any t − 1 are independent of s (A. Shamir, How to share a secret,
CACM 1979). One field element holds a whole secret, so plain Python integers are fast.

Assumption: nobody times this code. Python's integers are not constant-time; a client splits its own secrets
on its own machine, and whoever combines shares is meant to learn the secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fedassay.crypto.keys import Secret
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Randomness

PRIME = 2**257 - 93
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: Secret, *, threshold: int, shares: int, randomness: Randomness) -> tuple[Secret, ...]:
    """As many shares, in the order x = 1, 2, ..; any `threshold` of them give the secret back.

    Guarantee: fewer than `threshold` shares are jointly uniform, whatever the secret.
    """
    if len(secret.data) != SECRET_BYTES:
        raise UsageError(f"secret to share: got {len(secret.data)} bytes, expected {SECRET_BYTES}.")
    if not 1 <= threshold <= shares:
        raise UsageError(f"threshold: got {threshold}, expected between 1 and the {shares} shares.")
    coefficients = [_element(randomness) for _ in range(threshold - 1)] + [int.from_bytes(secret.data)]
    return tuple(Secret(_evaluate(coefficients, x).to_bytes(SHARE_BYTES)) for x in range(1, shares + 1))


def combine(shares: Mapping[int, Secret]) -> Secret | None:
    """The secret, from exactly `threshold` (or more) shares by their x.

    None if the shares do not belong together in a way that shows: the value at zero is not 32 bytes. Shares
    that are false in other ways give a wrong secret; commit to it if that matters.
    """
    points = list(shares)
    inverses = _inverses([x * prod(other - x for other in points if other != x) for x in points])
    # Lagrange at zero: f(0) = Σ_x f(x) Π_{m≠x} m/(m − x), with Π_m m taken out of the sum.
    total = sum(int.from_bytes(shares[x].data) * inverse for x, inverse in zip(points, inverses, strict=True))
    value = prod(points) * total % PRIME
    return Secret(value.to_bytes(SECRET_BYTES)) if value < 1 << (8 * SECRET_BYTES) else None


def _element(randomness: Randomness) -> int:
    """A uniform field element: 257 random bits, drawn again in the 93 of 2^257 cases that are too large."""
    while True:
        value = int.from_bytes(randomness.bytes(SHARE_BYTES)) & ((1 << 257) - 1)
        if value < PRIME:
            return value


def _evaluate(coefficients: Sequence[int], x: int) -> int:
    """Horner's rule. x is small, so growing a little at each step is cheaper than reducing at each step."""
    value = 0
    for coefficient in coefficients:
        value = value * x + coefficient
    return value % PRIME


def _inverses(values: Sequence[int]) -> list[int]:
    """All inverses modulo the prime for the price of one and some products (Montgomery's trick)."""
    before = [1]
    for value in values:
        before.append(before[-1] * value % PRIME)
    inverse = pow(before[-1], -1, PRIME)
    result = []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        result.append(product * inverse % PRIME)
        inverse = inverse * value % PRIME
    return result[::-1]
