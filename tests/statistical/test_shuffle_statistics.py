"""What comes out of the shuffler: its order, and that it keeps the promise which single messages would break.

Every test compares frequencies; `ERROR` is the probability that a correct library fails a test here, were the seeds not
fixed, and each is shown to reject a deliberately wrong variant.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Plan, Select, Sum
from fedassay.trust.local_reports import Question
from fedassay.trust.shuffle import servers as shuffle_helper
from fedassay.trust.shuffle.messages import drawn_text, from_text
from fedassay.trust.shuffle.model import Shuffle
from fedassay.trust.shuffle.servers import permutation
from shuffle_driver import HISTOGRAM, Losses, Town, one_row, plan_of

ERROR = 1e-4
Counts = NDArray[np.int64]


# --- the order --------------------------------------------------------------------------------------------------


def order_p_value(draw: Callable[[int, Any], Any], runs: int = 2_400) -> float:
    """Of a chi-square test that all 24 orders of four things are equally likely."""
    source = SimulatedRandomness(1)
    seen = Counter(tuple(draw(4, source).tolist()) for _ in range(runs))
    return float(stats.chisquare([seen[order] for order in itertools.permutations(range(4))]).pvalue)


def test_all_orders_are_equally_likely_and_a_lazy_one_is_noticed() -> None:
    def lazy(count: int, source: Any) -> Any:
        """Swaps each thing with any other, once: a well-known mistake."""
        order = np.arange(count)
        for i, j in enumerate((source.words(count) % np.uint64(count)).tolist()):
            order[[i, j]] = order[[j, i]]
        return order

    assert order_p_value(permutation) > ERROR
    assert order_p_value(lazy) < ERROR


def test_equal_words_are_drawn_again() -> None:
    """Ties would be broken by place; they are drawn again, all of them."""

    class Few(SimulatedRandomness):
        def words(self, count: int) -> Any:
            return super().words(count) % np.uint64(8)

    source = Few(1)
    seen = Counter(tuple(permutation(3, source).tolist()) for _ in range(2_400))
    assert stats.chisquare([seen[order] for order in itertools.permutations(range(3))]).pvalue > ERROR


CLIENTS = 4


@cache
def places(same_order: bool, runs: int = 96) -> Counts:
    """A table: how often the report of a client was at place i for one query and at place j for another, end to end."""
    trust = Shuffle(minimum_cohort=3)
    budget = Budget(epsilon=200.0, delta=1e-6)
    plan = plan_of(Select(of=Losses(cells=CLIENTS), share=0.5), budget=budget, clients=CLIENTS, trust=trust)
    vectors = {f"client{i}": (90 * (np.arange(CLIENTS) != i),) * 2 for i in range(CLIENTS)}
    table = np.zeros((CLIENTS, CLIENTS), np.int64)
    with pytest.MonkeyPatch.context() as patched:
        for run in range(runs):
            if same_order:  # broken on purpose: one order for all queries
                patched.setattr(
                    shuffle_helper,
                    "permutation",
                    lambda n, _, run=run: permutation(n, SimulatedRandomness(run)),
                )
            first, second = Town(plans=(plan, plan), vectors=vectors, seed=run).go()
            at = [[int(np.argmax(one)) for one in released.value].index(0) for released in (first, second)]
            table[at[0], at[1]] += 1
    return table


def test_places_of_a_client_are_uniform_and_independent_from_query_to_query() -> None:
    assert stats.chisquare(places(same_order=False).ravel()).pvalue > ERROR
    assert stats.chisquare(places(same_order=True).ravel()).pvalue < ERROR


# --- the promise ------------------------------------------------------------------------------------------------

HIDDEN = 60
BUDGET = Budget(epsilon=0.4, delta=0.01)
TRUST = Shuffle(dropout=0.0, collusion=0.0)
LEVELS = len(HISTOGRAM.partitions)


def reports(plan: Plan, inputs: list[Any], runs: int, seed: int) -> list[list[tuple[int, Counts]]]:
    """For each run, the level and the bits of each client's report: what the shipped client half writes."""
    question, source = Question.of(plan), SimulatedRandomness(seed)
    found = []
    for _ in range(runs):
        read = [from_text(question, drawn_text(question, vector, source)) for vector in inputs]
        found.append(
            [
                (one.partition, np.unpackbits(np.frombuffer(one.content, np.uint8)).astype(np.int64))
                for one in read
                if one is not None
            ]
        )
    return found


def loss(seen: list[tuple[int, Counts]], cells: list[tuple[int, int]], q: float) -> float:
    """How much likelier these messages are if client 1 is in the first cells than in the second: what an attacker would
    compute who knows that all others have no row. Each message may be client 1's.
    """
    likelihood = np.zeros(2)
    for level, bits in seen:
        for hypothesis, cell in enumerate(cells[level]):
            likelihood[hypothesis] += 0.5 / (q if bits[cell] else 1 - q)
    return float(np.log(likelihood[0] / likelihood[1]))


def attacked(others: int, runs: int) -> float:
    """The p-value of the promise, judged by how often an attacker is surer than epsilon of the truth, and of the lie.

    One-sided: P(surer | truth) - e^ε P(surer | lie) is at most delta; normal, with their variances.
    """
    plan = plan_of(Sum(of=HISTOGRAM), budget=BUDGET, clients=HIDDEN, trust=TRUST)
    q = 1 / (math.exp(1 / plan.noise.scale) + 1)
    idle = np.zeros(HISTOGRAM.length, dtype=np.int64)
    inputs = (one_row(0, 1), one_row(7, 0))
    cells = []
    for partition in HISTOGRAM.partitions:
        first, second = (int(np.flatnonzero(vector[partition])[0]) for vector in inputs)
        cells.append((first, second))
    often = []
    for hypothesis, vector in enumerate(inputs):
        seen = reports(plan, [vector] + [idle] * others, runs, seed=hypothesis)
        often.append(float(np.mean([loss(one, cells, q) > BUDGET.epsilon for one in seen])))
    t = math.exp(BUDGET.epsilon)
    variance = (often[0] * (1 - often[0]) + t * t * often[1] * (1 - often[1])) / runs
    return float(stats.norm.sf((often[0] - t * often[1] - BUDGET.delta) / math.sqrt(variance + 1e-12)))


def test_shuffled_messages_keep_the_promise_and_single_ones_break_it() -> None:
    plan = plan_of(Sum(of=HISTOGRAM), budget=BUDGET, clients=HIDDEN, trust=TRUST)
    assert 1 / plan.noise.scale > 2 * BUDGET.epsilon  # there is something to hide
    assert attacked(HIDDEN - 1, runs=500) > ERROR
    # Broken on purpose: what is not shuffled stands alone, as the first message would.
    assert attacked(0, runs=4_000) < ERROR


def test_levels_are_drawn_evenly() -> None:
    plan = plan_of(Sum(of=HISTOGRAM), budget=BUDGET, clients=HIDDEN, trust=TRUST)
    seen = reports(plan, [one_row(3, 1)], runs=2_000, seed=9)
    levels = np.bincount([run[0][0] for run in seen], minlength=LEVELS)
    assert stats.chisquare(levels).pvalue > ERROR
    assert stats.chisquare(levels * np.array([1.3] + [0.7] * (LEVELS - 1))).pvalue < ERROR
