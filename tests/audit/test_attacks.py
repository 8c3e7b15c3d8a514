"""Scores of an attacker: likelihood ratios agree with the laws, and the others see what they are for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedassay.audit.bound import Known, scores
from fedassay.privacy.accounting import CHOICE, GAUSSIAN, LAPLACE, UNARY
from fedassay.protocol.vocabulary import Noise

FIRST, SECOND = np.array([3, 0, 5]), np.array([4, 0, 3])


def known(law: str, scale: float, first: object = FIRST, second: object = SECOND, **more: object) -> Known:
    noise = Noise(law=law, scale=scale, variance=1.0)
    exact = {"first": np.array(first), "second": np.array(second)}
    return Known(**{**exact, "noise": noise, "counted": False, **more})


@pytest.mark.parametrize(
    ("law", "density"),
    [(LAPLACE, lambda x: np.exp(-np.abs(x) / 1.5)), (GAUSSIAN, lambda x: np.exp(-(x**2) / (2 * 1.5**2)))],
)
def test_likelihoods_are_those_of_the_law(law: str, density: object) -> None:
    views = np.random.default_rng(1).integers(-9, 9, size=(50, 1, 3))
    exact = [np.log(density(views - mean)).sum(axis=(1, 2)) for mean in (FIRST, SECOND)]
    found = scores(views, (known(law, 1.5),))["likelihood"]
    assert found == pytest.approx(exact[1] - exact[0])


def test_noise_that_is_spread_is_brought_back() -> None:
    """Two entries, each the sum of its draw and those before: the draws are independent, and so are their ratios."""
    spread = np.array([[1.0, 0.0], [1.0, 1.0]])
    of = known(LAPLACE, 2.0, [0, 0], [1, 1], spread=spread)  # moves the first draw alone
    draws = np.array([[4.0, -7.0], [0.0, 3.0]])
    found = scores((draws @ spread.T)[:, None, :], (of,))["likelihood"]
    assert found == pytest.approx([0.5, -0.5])


def test_bits_and_choices() -> None:
    """A bit is e^ε times likelier in its own cell; a candidate by the difference of its losses."""
    bits = known(UNARY, 0.5, [1, 0], [0, 1])
    views = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]], [[0.5, 0.5]]])
    assert scores(views, (bits,))["likelihood"] == pytest.approx([-2, 2, 0, 0])
    losses = known(CHOICE, 2.0, [0, 4], [3, 0])
    chosen = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert scores(chosen, (losses,))["likelihood"] == pytest.approx([-1.5, 2.0])


def test_a_message_among_others_counts_as_the_mean_of_ratios() -> None:
    of = known(LAPLACE, 1.0)
    views = np.array([[[3, 0, 5], [4, 0, 3]]])
    apart = [float(scores(views[:, [i]], (of,))["likelihood"][0]) for i in range(2)]
    together = scores(views, (of,))["likelihood"]
    assert together == pytest.approx([math.log(sum(map(math.exp, apart)) / 2)])
    assert scores(views[:, ::-1], (of,))["likelihood"] == pytest.approx(together)


def test_a_client_that_takes_part_by_chance() -> None:
    """The first world is a mixture: ln of Q/((1-q)Q + qP)."""
    views = np.array([[[9, 0, -9]], [[-9, 0, 9]]])
    whole = scores(views, (known(GAUSSIAN, 2.0),))["likelihood"]
    sampled = scores(views, (known(GAUSSIAN, 2.0, sampled=0.25),))["likelihood"]
    assert sampled == pytest.approx(-np.log(0.75 + 0.25 * np.exp(-whole)))


def test_queries_of_one_task_add_up_and_answers_are_counted() -> None:
    of = known(LAPLACE, 1.0, counted=True)
    views = np.array([[[4, 0, 3, 7]], [[3, 0, 5, 6]]])
    one, two = scores(views, (of,)), scores(np.concatenate([views, views], axis=-1), (of, of))
    assert two["likelihood"] == pytest.approx(2 * one["likelihood"])
    assert one["answers"].tolist() == [7, 6]


def test_large_numbers_that_are_never_odd_show_the_world() -> None:
    """Even noise only: the sign is then that of the world, for whoever looks at the last bit."""
    noise = 2 * np.random.default_rng(2).integers(-(2**60), 2**60, size=500)
    of = known(LAPLACE, 2.0**60, [0], [1])
    found = [scores((noise + truth)[:, None, None], (of,))["low bits of number 0"] for truth in (0, 1)]
    assert (found[0] < 0).all()
    assert (found[1] > 0).all()


def test_direct_hits_and_zeros() -> None:
    views = np.stack([[FIRST], [SECOND], [np.array([9, 9, 9])]])
    found = scores(views, (known(LAPLACE, 1.0),))
    assert found["direct hits"].tolist() == [-2, 2, 0]
    assert found["zeros"].tolist() == [1, 1, 0]
