"""Optimized Unary Encoding: the coins are exact, the likelihood ratio is at most e^ε, the estimate is unbiased."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.trust.local_reports import (
    UnaryEncoding,
    assigned,
    chosen_row,
    ones_of,
    simulated_partition,
    well_formed,
)

SCALES = [1 / 32, 0.1, 0.2, 1 / 3, 0.5, 1.0, 2.0, 10.0, 1234.5, 2.0**20, 2.0**52]
HALF = Fraction(1, 2)


def exponential(scale: float) -> Fraction:
    """e^ε to a hundred digits."""
    with localcontext(prec=100):
        return Fraction((1 / Decimal(scale)).exp())


@pytest.mark.parametrize("scale", SCALES)
def test_the_coin_is_rounded_up_and_by_next_to_nothing(scale: float) -> None:
    threshold = UnaryEncoding(scale=scale).threshold
    wanted = 2**64 / (exponential(scale) + 1)
    assert wanted < threshold <= wanted + 2
    assert threshold < 2**63


def law(cell: int | None, output: tuple[int, ...], q: Fraction) -> Fraction:
    probability = Fraction(1)
    for j, bit in enumerate(output):
        one = HALF if j == cell else q
        probability *= one if bit else 1 - one
    return probability


def largest_ratio(cells: int, q: Fraction) -> Fraction:
    """Over all pairs of inputs, "none" among them, and all outputs."""
    inputs = [None, *range(cells)]
    outputs = list(itertools.product((0, 1), repeat=cells))
    laws = [[law(one, output, q) for output in outputs] for one in inputs]
    return max(a / b for first in laws for second in laws for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("scale", SCALES[1:9])
@pytest.mark.parametrize("cells", [1, 2, 3, 5])
def test_no_output_tells_two_inputs_apart_by_more_than_epsilon(scale: float, cells: int) -> None:
    threshold = UnaryEncoding(scale=scale).threshold
    assert largest_ratio(cells, Fraction(threshold, 2**64)) <= exponential(scale)


@pytest.mark.parametrize("scale", SCALES[1:9])
def test_rounding_down_would_break_the_promise_and_more_noise_does_not(scale: float) -> None:
    threshold = UnaryEncoding(scale=scale).threshold
    assert largest_ratio(2, Fraction(threshold - 2, 2**64)) > exponential(scale)
    assert largest_ratio(2, Fraction(threshold + 2**40, 2**64)) < exponential(scale)


def test_many_rows_are_as_private_as_one() -> None:
    """A client with several rows reports one at random: a mixture of laws whose ratios are bounded."""
    q, cells = Fraction(UnaryEncoding(scale=1.0).threshold, 2**64), 3
    outputs = list(itertools.product((0, 1), repeat=cells))
    mixtures = [(1, 0, 0), (0, 1, 0), (5, 1, 0), (1, 1, 1), (0, 2, 98)]
    laws = [[law(None, output, q) for output in outputs]]
    for counts in mixtures:
        laws.append(
            [
                sum(Fraction(n, sum(counts)) * law(cell, output, q) for cell, n in enumerate(counts))
                for output in outputs
            ]
        )
    ratios = [a / b for first in laws for second in laws for a, b in zip(first, second, strict=True)]
    assert max(ratios) <= exponential(1.0)


@pytest.mark.parametrize("scale", SCALES)
def test_expected_ones_give_the_exact_count(scale: float) -> None:
    encoding = UnaryEncoding(scale=scale)
    counts, reports, clients = np.array([0, 7, 50, 100]), 100, 250
    # The estimate is linear, so its expectation is that of the expected ones: c/2 + (M_k - c) q.
    expected = counts * 0.5 + (reports - counts) * encoding.q
    if encoding.contrast > 1e-6:  # beyond, floats cannot show it
        np.testing.assert_allclose(
            encoding.estimate(expected, reports, clients), counts * 2.5, atol=1e-9 / encoding.contrast
        )
    assert encoding.variance == pytest.approx(
        1 / np.sinh(0.5 / scale) ** 2, rel=1e-4 if scale < 2**40 else 3e-3
    )


def test_levels_are_public_even_and_different_for_every_question() -> None:
    names = [f"client {i}" for i in range(20_000)]
    first = [assigned(b"one", 0, name, 5) for name in names]
    assert stats.chisquare(np.bincount(first, minlength=5)).pvalue > 1e-4
    for other in ((b"two", 0), (b"one", 1), (b"on", 0)):
        second = [assigned(*other, name, 5) for name in names]
        together = np.bincount(np.array(first) * 5 + second, minlength=25)
        assert stats.chisquare(together).pvalue > 1e-4
    assert assigned(b"one", 0, "client", 5) == assigned(b"one", 0, "client", 5)
    assert {assigned(b"one", 0, name, 1) for name in names[:50]} == {0}


def test_one_row_is_chosen_and_each_is_as_likely() -> None:
    source = SimulatedRandomness(4)
    counts = np.array([0, 3, 0, 1, 6])
    drawn = np.bincount([chosen_row(counts, source) for _ in range(5_000)], minlength=5)
    assert drawn[[0, 2]].sum() == 0
    assert stats.chisquare(drawn[[1, 3, 4]], 5_000 * np.array([0.3, 0.1, 0.6])).pvalue > 1e-4
    assert chosen_row(np.zeros(3, dtype=np.int64), source) is None
    assert chosen_row(np.array([0, 2**32, 0]), source) == 1


@pytest.mark.parametrize("cells", [1, 7, 8, 9, 64, 2050])
def test_reports_are_counted_as_they_were_packed(cells: int) -> None:
    source, encoding = SimulatedRandomness(5), UnaryEncoding(scale=0.5)
    reports = [encoding.report(i % cells, cells, source) for i in range(300)] * 20
    naive = sum(np.unpackbits(np.frombuffer(report, np.uint8))[:cells].astype(int) for report in reports)
    assert all(well_formed(report, cells) for report in reports)
    np.testing.assert_array_equal(ones_of(reports, cells), naive)
    np.testing.assert_array_equal(ones_of([], cells), np.zeros(cells))


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"\0",
        b"\0\0\0",
        b"\xff\xf8",
        b"\0\x01",
        bytearray(2),
        [0, 0],
        None,
        "ab",
        3,
        np.zeros(2, np.uint8),
    ],
)
def test_what_is_not_twelve_bits(report: object) -> None:
    assert not well_formed(report, 12)


@pytest.mark.parametrize("report", [b"\0\0", b"\xff\xf0", b"\0\x10"])
def test_what_is_twelve_bits(report: bytes) -> None:
    assert well_formed(report, 12)


def test_clients_split_over_the_partitions_and_are_all_there() -> None:
    rng = np.random.default_rng(1)
    leaves = rng.integers(0, 50, 16)
    total = np.concatenate([leaves, leaves.reshape(-1, 4).sum(-1)])
    partitions = (np.arange(16), np.arange(16, 20))
    clients = int(leaves.sum()) + 100
    first, second = simulated_partition(total, partitions, clients, rng)
    assert first[1] + second[1] == clients
    assert (first[0] <= leaves).all()
    np.testing.assert_array_equal((leaves - first[0]).reshape(-1, 4).sum(-1), second[0])
    assert abs(first[1] - clients / 2) < 5 * np.sqrt(clients / 4)
