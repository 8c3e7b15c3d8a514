"""The laws of the random choices that clients make about their own rows.

Each test has the level LEVEL and a fixed seed. There are at most COMPARISONS of them, so that over the choice
of seeds a correct implementation fails somewhere with probability at most COMPARISONS x LEVEL = 2e-5. Each is
shown to reject a broken variant.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedassay.data import selection
from fedassay.data.federation import load
from fedassay.data.selection import (
    Coins,
    below,
    limit_pooled,
    limit_rows,
    name_blocks,
    number_blocks,
    select_part,
)
from fedassay.data.tables import ArrayRows
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Part, Randomness, Unit

LEVEL = 1e-6
COMPARISONS = 20

Whole = NDArray[np.int64]
Bits = NDArray[np.bool_]


def uniform(counts: dict[Any, int], outcomes: list[Any]) -> float:
    """The p-value of "all outcomes are equally likely"."""
    assert set(counts) <= set(outcomes)
    return float(stats.chisquare([counts.get(outcome, 0) for outcome in outcomes]).pvalue)


def independent(first: Bits, second: Bits) -> float:
    """The p-value of "these two coins are independent"."""
    table = [[np.sum((first == a) & (second == b)) for b in (False, True)] for a in (False, True)]
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def tally(draw: Callable[[], Any], times: int) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for _ in range(times):
        outcome = draw()
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts


# --- at most so many rows -----------------------------------------------------------------------------


def one_client(most: int) -> float:
    rows, randomness = ArrayRows(columns={"score": np.arange(6)}), SimulatedRandomness(most)

    def draw() -> tuple[int, ...]:
        limited, _ = limit_rows(rows, most, randomness)
        return tuple(int(v) for batch in limited.batches() for v in batch["score"])

    return uniform(tally(draw, 10_000), list(combinations(range(6), most)))


@pytest.mark.parametrize("most", [1, 3, 4])
def test_every_subset_of_rows_is_equally_likely(most: int) -> None:
    assert one_client(most) > LEVEL


def smallest_of_too_many(total: int, count: int, randomness: Randomness) -> Whole:
    return np.unique(below(total, 4 * count, randomness))[:count]


def test_a_subset_cut_after_sorting_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "choose", smallest_of_too_many)
    rows, randomness = ArrayRows(columns={"score": np.arange(6)}), SimulatedRandomness(3)
    kept = np.zeros(6)
    for _ in range(2_000):
        limited, _ = limit_rows(rows, 3, randomness)
        for batch in limited.batches():
            kept[batch["score"]] += 1
    assert stats.chisquare(kept).pvalue < LEVEL


def two_clients(times: int) -> float:
    """Two rows of four and two of five: 6 x 10 outcomes, equally likely if the clients are independent."""
    data = {"p": np.arange(9) / 10, "c": [0, 1, 0, 1, 0, 1, 0, 1, 1]}
    pooled, randomness = load(data, client="c", columns={"score": "p"}).pooled(), SimulatedRandomness(8)

    def draw() -> tuple[int, ...]:
        limited, _ = limit_pooled(pooled, 2, randomness)
        return tuple(sorted(round(v * 10) for batch in limited.batches() for v in batch["score"]))

    pairs = product(combinations((0, 2, 4, 6), 2), combinations((1, 3, 5, 7, 8), 2))
    return uniform(tally(draw, times), [tuple(sorted((*a, *b))) for a, b in pairs])


@pytest.mark.parametrize("at_once", [2**20, 4, 1], ids=["by keys", "in groups", "one by one"])
def test_pooled_clients_choose_uniformly_and_independently(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(selection, "_KEYS_AT_ONCE", at_once)
    assert two_clients(6_000) > LEVEL


def test_clients_that_share_their_keys_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(counts: Whole, most: int, randomness: Randomness) -> Bits:
        keys = randomness.words(int(counts.max()))
        return np.concatenate([np.argsort(np.argsort(keys[:count])) < most for count in counts])

    monkeypatch.setattr(selection, "_smallest_keys", shared)
    assert two_clients(6_000) < LEVEL


def thirds(draws: Whole, bound: int) -> float:
    return float(stats.chisquare(np.bincount(draws // (bound // 3), minlength=3)).pvalue)


def test_whole_numbers_below_a_large_bound_have_no_bias() -> None:
    bound = 3 * 2**61
    draws = below(bound, 30_000, SimulatedRandomness(4))
    assert thirds(draws, bound) > LEVEL
    remainders = (SimulatedRandomness(4).words(30_000) % np.uint64(bound)).astype(np.int64)
    assert thirds(remainders, bound) < LEVEL


# --- fit and held-out ---------------------------------------------------------------------------------

ROWS = 200_000


def coins_of_rows(client: str, *, seed: int = 1, count: int = ROWS, held_out: float = 0.3) -> Bits:
    coins = Coins(key=SimulatedRandomness(seed).bytes(32), unit=Unit.EXAMPLE, holdout=held_out)
    return coins.within(Part.HELD_OUT, coins.start(name_blocks([client])), np.arange(count))


@pytest.mark.parametrize("held_out", [0.02, 0.3, 0.9])
def test_the_share_of_rows_held_out(held_out: float) -> None:
    coins = coins_of_rows("a", held_out=held_out)
    assert stats.binomtest(int(coins.sum()), ROWS, held_out).pvalue > LEVEL
    assert stats.binomtest(int(coins.sum()), ROWS, held_out * 1.1).pvalue < LEVEL


def test_the_share_of_clients_held_out() -> None:
    coins = Coins(key=bytes(16), unit=Unit.CLIENT, holdout=0.3)
    started = coins.start(number_blocks(np.arange(ROWS)))
    held = coins.within(Part.HELD_OUT, started, np.zeros(ROWS, dtype=np.int64))
    assert stats.binomtest(int(held.sum()), ROWS, 0.3).pvalue > LEVEL
    assert independent(held[:-1], held[1:]) > LEVEL


Deal = Callable[[str, int], Bits]
"""The coins of a client's rows under the key of a seed."""


def deal(client: str, seed: int) -> Bits:
    return coins_of_rows(client, seed=seed)


UNRELATED: dict[str, Callable[[Deal], tuple[Bits, Bits]]] = {
    "neighbouring rows": lambda coins: (coins("a", 1)[:-1], coins("a", 1)[1:]),
    "rows 256 apart": lambda coins: (coins("a", 1)[:-256], coins("a", 1)[256:]),
    "two clients": lambda coins: (coins("a", 1), coins("b", 1)),
    "two long names": lambda coins: (coins("a" * 40, 1), coins("a" * 41, 1)),
    "two keys": lambda coins: (coins("a", 1), coins("a", 2)),
}


@pytest.mark.parametrize("name", UNRELATED)
def test_coins_are_independent(name: str) -> None:
    assert independent(*UNRELATED[name](deal)) > LEVEL


BROKEN: dict[str, Deal] = {
    "neighbouring rows": lambda client, seed: np.repeat(deal(client, seed), 2)[:ROWS],
    "rows 256 apart": lambda client, seed: np.resize(deal(client, seed)[:256], ROWS),
    "two clients": lambda client, seed: deal("", seed),
    "two long names": lambda client, seed: deal(client[:15], seed),
    "two keys": lambda client, seed: deal(client, 0),
}


@pytest.mark.parametrize("name", BROKEN)
def test_dependent_coins_are_rejected(name: str) -> None:
    assert independent(*UNRELATED[name](BROKEN[name])) < LEVEL


def test_coins_do_not_see_the_values() -> None:
    """Rows sorted by score, labels in runs: what a split by position must not pick up."""
    scores = np.sort(np.random.default_rng(3).random(ROWS))
    labels = (np.arange(ROWS) // 5) % 2 == 1
    rows = ArrayRows(columns={"score": scores, "label": labels, "row": np.arange(ROWS)})
    part = select_part(rows, Part.HELD_OUT, key=bytes(16), unit=Unit.EXAMPLE, client="a")
    held = np.isin(np.arange(ROWS), np.concatenate([batch["row"] for batch in part.batches()]))
    assert stats.ks_2samp(scores[held], scores[~held]).pvalue > LEVEL
    assert independent(held, labels) > LEVEL
    first = np.arange(ROWS) < 0.3 * ROWS
    assert stats.ks_2samp(scores[first], scores[~first]).pvalue < LEVEL
    assert independent(np.arange(ROWS) % 10 < 3, labels) < LEVEL
