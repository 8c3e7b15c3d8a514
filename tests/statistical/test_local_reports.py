"""What local-dp clients really send: its law, its privacy, and that a simulation draws from the same law.

Every test compares frequencies; `ERROR` is the probability that a correct library fails a test here, were the
seeds not fixed, and each is shown to reject a deliberately wrong variant.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    Budget,
    Exchange,
    Memory,
    Plan,
    Protection,
    Request,
    Rows,
    Sensitivity,
    Setting,
    Sum,
    Summary,
    Vector,
)
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.local_reports import UnaryEncoding

ERROR = 1e-4
EPSILON = 1.0
CELLS = 3
INPUTS = {"none": (0, 0, 0), "first": (1, 0, 0), "second": (0, 1, 0), "third": (0, 0, 1), "both": (3, 1, 0)}


@dataclass(frozen=True, kw_only=True)
class ThreeCells(Summary[Vector]):
    """One partition of three cells."""

    name = "three-cells"
    columns = ()

    @property
    def length(self) -> int:
        return CELLS

    @property
    def partitions(self) -> tuple[Vector, ...]:
        return (np.arange(CELLS),)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        raise NotImplementedError

    def sensitivity(self, protection: Protection) -> Sensitivity:
        return Sensitivity.of_counts(protection, multipliers=(1,))

    def read(self, total: Vector) -> Vector:
        return total


def plan_for(summary: Summary[Any], epsilon: float, clients: int) -> Plan:
    trust = LocalDP()
    setting = Setting(
        trust=trust, protection=Protection(rows_per_client=1), budget=Budget(epsilon=epsilon), clients=clients
    )
    return trust.plan(Sum(of=summary), setting)


def sent(counts: tuple[int, ...], *, epsilon: float, reports: int, seed: int) -> Counter[tuple[int, ...]]:
    """How often the client half sends each of the eight possible reports."""
    source, vector = SimulatedRandomness(seed), np.array(counts)
    plan = plan_for(ThreeCells(), epsilon, reports)
    request = Request(exchange=b"id", plans=(plan,), cohort=1, leg=0, recipient="a", message={})
    outputs: Counter[tuple[int, ...]] = Counter()
    for _ in range(reports):
        reply, _ = LocalDP().respond(request, lambda: (vector,), {}, source)
        outputs[tuple(np.unpackbits(np.frombuffer(reply["reports"][0], np.uint8))[:CELLS].tolist())] += 1
    return outputs


def worst_p_value(epsilon_used: float, reports: int) -> float:
    """Of all tests that P(output | a) <= e^ε P(output | b), with the promised ε; Bonferroni-corrected.

    Given how often either input led to the output, the share of a is at most e^ε/(1 + e^ε) if the promise holds.
    """
    counts = {
        name: sent(value, epsilon=epsilon_used, reports=reports, seed=seed)
        for seed, (name, value) in enumerate(INPUTS.items())
    }
    most = math.exp(EPSILON) / (1 + math.exp(EPSILON))
    tests = [
        stats.binom.sf(counts[a][output] - 1, counts[a][output] + counts[b][output], most)
        for a, b in itertools.permutations(INPUTS, 2)
        for output in itertools.product((0, 1), repeat=CELLS)
    ]
    return min(1.0, len(tests) * min(tests))


def test_what_is_sent_keeps_the_promise_and_a_larger_epsilon_would_not() -> None:
    assert worst_p_value(EPSILON, reports=4_000) > ERROR
    assert worst_p_value(1.5 * EPSILON, reports=4_000) < ERROR


def probabilities(counts: tuple[int, ...], epsilon: float) -> np.ndarray[Any, Any]:
    q, rows = 1 / (math.exp(epsilon) + 1), sum(counts)
    cells = [(None, 1.0)] if rows == 0 else [(j, n / rows) for j, n in enumerate(counts) if n]
    return np.array(
        [
            sum(
                weight
                * math.prod(
                    (0.5 if j == cell else q) if bit else (0.5 if j == cell else 1 - q)
                    for j, bit in enumerate(output)
                )
                for cell, weight in cells
            )
            for output in itertools.product((0, 1), repeat=CELLS)
        ]
    )


@pytest.mark.parametrize("name", INPUTS)
def test_reports_have_the_stated_law(name: str) -> None:
    counts = sent(INPUTS[name], epsilon=EPSILON, reports=4_000, seed=50)
    observed = np.array([counts[output] for output in itertools.product((0, 1), repeat=CELLS)])
    assert stats.chisquare(observed, 4_000 * probabilities(INPUTS[name], EPSILON)).pvalue > ERROR / len(
        INPUTS
    )
    wrong = probabilities(INPUTS[name], 1.3 * EPSILON)
    assert stats.chisquare(observed, 4_000 * wrong).pvalue < ERROR / len(INPUTS)


HISTOGRAM = ScoreHistogram(transform="uniform", height=3, widths=(1, 4))
CLIENTS, IDLE = 90, 20


def vectors() -> dict[str, Vector]:
    """One row each, half of them in one cell; some have none."""
    rng = np.random.default_rng(2)
    result = {}
    for i in range(CLIENTS):
        counts = np.zeros((2, 8), dtype=np.int64)
        if i >= IDLE:
            counts[i % 2, 5 if i % 4 else rng.integers(8)] = 1
        result[f"client{i}"] = np.concatenate(
            [HISTOGRAM.tree.build(counts[0]), HISTOGRAM.tree.build(counts[1])]
        )
    return result


@cache
def faithful(epsilon: float, runs: int) -> np.ndarray[Any, Any]:
    """Releases made of the messages of every client, through both halves."""
    plan, rows = plan_for(HISTOGRAM, epsilon, CLIENTS), vectors()
    values = []
    for run in range(runs):
        source = SimulatedRandomness(run)
        exchange = Exchange(id=source.bytes(16), plans=(plan,), cohort=tuple(rows))
        flow = LocalDP().exchange(exchange, source)
        next(flow)
        replies = {}
        for name, vector in rows.items():
            request = Request(
                exchange=exchange.id, plans=(plan,), cohort=CLIENTS, leg=0, recipient=name, message={}
            )
            replies[name], _ = LocalDP().respond(request, lambda v=vector: (v,), {}, source)
        try:
            flow.send(replies)
        except StopIteration as finished:
            values.append(finished.value[0].value)
    return np.array(values)


def aggregate(epsilon: float, runs: int, *, plan_epsilon: float | None = None) -> np.ndarray[Any, Any]:
    plan, total = (
        plan_for(HISTOGRAM, plan_epsilon or epsilon, CLIENTS),
        np.sum(list(vectors().values()), axis=0),
    )
    return np.array(
        [
            LocalDP().aggregate([plan], [total], CLIENTS, SimulatedRandomness(run, "aggregate"))[0].value
            for run in range(runs)
        ]
    )


def views(values: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """A full cell, an empty one, a coarse one, all leaves, and what the two levels disagree on (their
    clients are different ones, so the two are not independent)."""
    return [
        values[:, 5],
        values[:, 0],
        values[:, 9],
        values[:, :8].sum(1) + values[:, 10:18].sum(1),
        values[:, 4:8].sum(1) - values[:, 9],
    ]


def smallest_p_value(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    tests = [stats.ks_2samp(a, b).pvalue for a, b in zip(views(left), views(right), strict=True)]
    # The law of a sum of levels lives in its spread, for which a rank test is dull.
    tests += [
        stats.levene(a, b, center="median").pvalue for a, b in zip(views(left), views(right), strict=True)
    ]
    return min(1.0, len(tests) * min(tests))


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_both_modes_have_the_same_law_and_another_epsilon_is_noticed(epsilon: float) -> None:
    messages = faithful(epsilon, runs=200)
    assert smallest_p_value(messages, aggregate(epsilon, runs=2_000)) > ERROR
    assert smallest_p_value(messages, aggregate(epsilon, runs=2_000, plan_epsilon=epsilon / 2)) < ERROR


def test_a_simulation_that_counts_every_client_on_every_level_is_noticed() -> None:
    """At ε = 5 much of the error is who reports on which level."""
    plan, total = plan_for(HISTOGRAM, 5.0, CLIENTS), np.sum(list(vectors().values()), axis=0)
    encoding, rng = UnaryEncoding(scale=plan.noise.scale), np.random.default_rng(3)
    wrong = np.array(
        [
            encoding.estimate(encoding.simulated_ones(total, CLIENTS, rng), CLIENTS, CLIENTS)
            for _ in range(2_000)
        ]
    )
    assert smallest_p_value(faithful(5.0, runs=200), wrong) < ERROR
