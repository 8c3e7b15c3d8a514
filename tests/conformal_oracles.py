"""The coverage of a quantile of quantiles in exact or 34-digit arithmetic, by other ways than the library's."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, product
from math import comb, prod

import mpmath as mp
import numpy as np


def as_the_paper_writes_it(rows: Sequence[int], ranks: Sequence[int], k: int) -> Fraction:
    """Eq. 5 in the form of A.1: a sum over the sets A of clients whose quantile is below, and over m indices."""
    m, total = len(rows), sum(rows)
    missed = Fraction(0)
    for size in range(k, m + 1):
        for below in combinations(range(m), size):
            ranges = [range(ranks[j], rows[j] + 1) if j in below else range(ranks[j]) for j in range(m)]
            for i in product(*ranges):
                missed += Fraction(
                    prod(comb(n, x) for n, x in zip(rows, i, strict=True)), comb(total, sum(i))
                )
    return 1 - missed / (total + 1)


def numerators(rows: Sequence[int], ranks: Sequence[int]) -> list[list[int]]:
    """c[j][r]: P(j clients have their quantile below t) is Σ_r c[j][r] t^r (1-t)^(N-r), N the number of rows."""
    table = [[1]]
    for n, rank in zip(rows, ranks, strict=True):
        length = len(table[0])
        new = [[0] * (length + n) for _ in range(len(table) + 1)]
        for j, row in enumerate(table):
            for r, value in enumerate(row):
                if value:
                    for i in range(n + 1):
                        new[j + (i >= rank)][r + i] += value * comb(n, i)
        table = new
    return table


@cache
def exact_moments(rows: tuple[int, ...], ranks: tuple[int, ...]) -> list[tuple[Fraction, Fraction]]:
    """Mean and variance of the coverage for k = 1..m, by integrating that polynomial term by term."""
    table, total = numerators(rows, ranks), sum(rows)
    found = []
    for k in range(1, len(rows) + 1):
        missed = second = Fraction(0)
        for r, value in enumerate(sum(column) for column in zip(*table[k:], strict=True)):
            part = Fraction(value, (total + 1) * comb(total, r))  # ∫ t^r (1-t)^(N-r) dt
            missed += part
            second += 2 * part * Fraction(r + 1, total + 2)
        found.append((1 - missed, (1 - second) - (1 - missed) ** 2))
    return found


def exact_cdf(rows: Sequence[int], ranks: Sequence[int], k: int, t: Fraction) -> Fraction:
    """F(t), from that polynomial."""
    total = sum(rows)
    return sum(
        (
            value * t**r * (1 - t) ** (total - r)
            for row in numerators(rows, ranks)[k:]
            for r, value in enumerate(row)
        ),
        Fraction(0),
    )


# --- 34 digits ------------------------------------------------------------------------------------------


def incomplete_beta(a: int, b: int, x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """I_x(a, b) and its complement, by the continued fraction of DLMF 8.17.22, from the side where it converges."""
    if x <= 0 or x >= 1:
        return (mp.mpf(0), mp.mpf(1)) if x <= 0 else (mp.mpf(1), mp.mpf(0))
    if x > mp.mpf(a + 1) / (a + b + 2):
        upper, lower = incomplete_beta(b, a, 1 - x)
        return lower, upper
    front = mp.exp(a * mp.log(x) + b * mp.log1p(-x) - _log_beta(a, b)) / a
    c, d = mp.mpf(1), 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for i in range(1, 10**6):
        for term in (
            i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i)),
            -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1)),
        ):
            c, d = 1 + term / c, 1 / (1 + term * d)
            value *= c * d
        if abs(c * d - 1) < mp.mpf(10) ** -30:
            return front * value, 1 - front * value
    raise ArithmeticError("the continued fraction does not converge")


@cache
def _log_beta(a: int, b: int) -> mp.mpf:
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


@cache
def _legendre(count: int) -> tuple[list[mp.mpf], list[mp.mpf]]:
    """Nodes and weights on [0, 1], from double ones by Newton's method."""
    nodes, weights = [], []
    for start in np.polynomial.legendre.leggauss(count)[0]:
        x = mp.mpf(float(start))
        for _ in range(3):
            before, value = mp.mpf(1), x
            for j in range(2, count + 1):
                before, value = value, ((2 * j - 1) * x * value - (j - 1) * before) / j
            slope = count * (x * value - before) / (x * x - 1)
            x -= value / slope
        nodes.append((x + 1) / 2)
        weights.append(1 / ((1 - x * x) * slope * slope))
    return nodes, weights


def precise_moments(m: int, n: int, ell: int, k: int, edges: Sequence[float]) -> tuple[mp.mpf, mp.mpf]:
    """Mean and variance by Gauss-Legendre on panels between the edges, outside of which there must be nothing."""
    with mp.workdps(34):
        nodes, weights = _legendre(40)
        mean = second = mp.mpf(0)
        lo = mp.mpf(edges[0])
        for start, end in pairwise(edges):
            width = mp.mpf(end) - mp.mpf(start)
            for x, w in zip(nodes, weights, strict=True):
                t = mp.mpf(start) + width * x
                G, H = incomplete_beta(ell, n - ell + 1, t)
                above = (
                    incomplete_beta(k, m - k + 1, G)[1] if G < 0.5 else incomplete_beta(m - k + 1, k, H)[0]
                )
                mean += width * w * above
                second += 2 * width * w * above * (t - lo)
        return lo + mean, second - mean**2
