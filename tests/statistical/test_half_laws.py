"""The halves of the fit rows are fair coins that know nothing of what is held out, of neighbours, or of other clients.

Each test has the level LEVEL and a fixed key. There are COMPARISONS of them, so that over the choice of keys a correct
implementation fails somewhere with probability at most COMPARISONS x LEVEL = 4e-6. Broken variants fail by far.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedassay.data.selection import Coins, name_blocks
from fedassay.protocol.vocabulary import Part, Unit

LEVEL = 1e-6
COMPARISONS = 4
ROWS = 40_000

Bits = NDArray[np.bool_]
Look = Callable[[Part, float, str], Bits]
"""Which rows are in a part, given the held-out share and the client."""


def sound(part: Part, held_out: float, client: str) -> Bits:
    coins = Coins(key=bytes(range(32)), unit=Unit.EXAMPLE, holdout=held_out)
    return coins.within(part, coins.start(name_blocks([client])), np.arange(ROWS))


def _words(client: str) -> NDArray[np.float64]:
    return np.random.default_rng(list(client.encode())).random(ROWS)


def by_the_same_word(part: Part, held_out: float, client: str) -> Bits:
    """What is left of the word that decides what is held out is halved: more held out, other halves."""
    word = _words(client)
    return (word >= 0.55) if part is Part.SECOND_FIT else (word >= held_out)


def in_turn(part: Part, held_out: float, client: str) -> Bits:
    """Every other row is in the second half."""
    fit = _words(client) >= held_out
    return fit & (np.arange(ROWS) % 2 == 1) if part is Part.SECOND_FIT else fit


def alike(part: Part, held_out: float, client: str) -> Bits:
    """The same coins for all clients."""
    return sound(part, held_out, "a")


def uneven(part: Part, held_out: float, client: str) -> Bits:
    """47 of 100."""
    fit = _words(client) >= held_out
    half = np.random.default_rng(3).random(ROWS) < 0.47
    return fit & half if part is Part.SECOND_FIT else fit


def independent(first: Bits, second: Bits) -> float:
    """The p-value of "these two coins are independent"."""
    table = [[np.sum((first == a) & (second == b)) for b in (False, True)] for a in (False, True)]
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def fair(look: Look) -> float:
    fit, second = look(Part.FIT, 0.3, "a"), look(Part.SECOND_FIT, 0.3, "a")
    return float(stats.binomtest(int(second.sum()), int(fit.sum()), 0.5).pvalue)


def of_what_is_held_out(look: Look) -> float:
    """The half that a row has where little is held out, and whether it is held out where half of all rows are."""
    known = look(Part.FIT, 0.1, "a")
    return independent(look(Part.SECOND_FIT, 0.1, "a")[known], look(Part.FIT, 0.5, "a")[known])


def of_the_row_before(look: Look) -> float:
    fit, second = look(Part.FIT, 0.1, "a"), look(Part.SECOND_FIT, 0.1, "a")
    both = fit[1:] & fit[:-1]
    return independent(second[1:][both], second[:-1][both])


def of_another_client(look: Look) -> float:
    both = look(Part.FIT, 0.1, "a") & look(Part.FIT, 0.1, "b")
    one, other = (look(Part.SECOND_FIT, 0.1, client)[both] for client in "ab")
    return independent(one, other)


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (fair, uneven),
        (of_what_is_held_out, by_the_same_word),
        (of_the_row_before, in_turn),
        (of_another_client, alike),
    ],
)
def test_halves(law: Callable[[Look], float], broken: Look) -> None:
    assert law(sound) > LEVEL
    assert law(broken) < LEVEL**2
