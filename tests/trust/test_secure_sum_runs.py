"""Randomised runs: dropouts at every leg, exact totals over the survivors, refusals where they must be."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from fedassay.errors import TooFewClients
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.secure_sum_graph import Graph, parameters
from secure_sum_driver import Run, vectors
from stated import Verify


def expected_survivors(run: Run) -> set[str] | None:
    """Whom the sum should cover, or None if it is impossible; from the protocol, not from the code."""
    exchange, trust = run.exchange, run.trust
    k, t, _, _ = parameters(len(exchange.cohort), trust.dropout, trust.collusion)
    graph = Graph.of(exchange.cohort, exchange=exchange.id, degree=k)

    def speaks(names: Collection[str], leg: int) -> set[str]:
        return {name for name in names if run.silent.get(name, 4) > leg}

    present, dealers = speaks(exchange.cohort, 0), speaks(exchange.cohort, 1)
    survivors, last = speaks(dealers, 2), speaks(dealers, 3)
    if len(survivors) < trust.minimum_cohort:
        return None
    for left in (present, dealers):
        if any(len(left & set(graph.neighbours(i))) < t for i in left):
            return None
    for i in dealers:
        asked = survivors & set(graph.neighbours(i))
        if (i in survivors or asked) and len(asked & last) < t:
            return None
    return survivors


def random_run(number: int, *, largest: int) -> Run:
    """Every third run loses about as many clients as it may, every third too many, the others a few."""
    generator = random.Random(number)
    n = min(largest, 3 + int(generator.expovariate(1 / 14)))
    if number % 10 == 7:
        n = generator.randrange(65, largest + 1)
    trust = SecureSum(
        dropout=generator.choice([0.02, 0.05, 0.1] if n > 64 else [0.0, 0.1, 0.2, 0.3]),
        collusion=generator.choice([0.0, 0.02] if n > 64 else [0.0, 0.1, 0.2]),
        minimum_cohort=generator.choice([3, 3, 3, 5]) if n >= 5 else 3,
    )
    run = Run.of(n, trust, seed=number, lengths=(1, generator.randrange(1, 9)), through_bytes=n < 20)
    k, t, _, _ = parameters(n, trust.dropout, trust.collusion)
    slack = max(0, n - 1 - t) if k == n - 1 else int(trust.dropout * n)
    lost = [generator.randrange(slack + 1), slack, slack + generator.randrange(1, 3)][number % 3]
    names = generator.sample(list(run.values), min(lost, n))
    run.silent = {name: generator.randrange(4) for name in names}
    return run


@pytest.mark.parametrize("leg", range(4))
def test_a_ring_with_a_gap_is_refused_before_anyone_is_asked_to_reveal(leg: int):
    """Few clients are missing, but all of them around one other."""
    run = Run.of(90, SecureSum(dropout=0.05, collusion=0.0), through_bytes=False)
    k, t, _, _ = parameters(90, 0.05, 0.0)
    assert k < 89
    around = Graph.of(run.exchange.cohort, exchange=run.exchange.id, degree=k).neighbours("client-000")
    run.silent = dict.fromkeys(around[: k - t], leg)
    assert vectors(run.go()) == run.total([name for name in run.values if leg == 3 or name not in run.silent])
    run = Run.of(90, SecureSum(dropout=0.05, collusion=0.0), through_bytes=False)
    run.silent = dict.fromkeys(around[: k - t + 1], leg)
    with pytest.raises(TooFewClients, match="lack neighbours" if leg < 3 else "stays hidden"):
        run.go()
    assert len(run.requests) == leg + 1


def check(numbers: Collection[int], *, largest: int) -> tuple[int, int]:
    """How many of these runs finished, and how many were refused; each as it must be, and exactly."""
    finished = refused = 0
    for number in numbers:
        run = random_run(number, largest=largest)
        survivors = expected_survivors(run)
        if survivors is None:
            with pytest.raises(TooFewClients, match="expected at least"):
                run.go()
            refused += 1
            continue
        released = run.go()
        assert vectors(released) == run.total(sorted(survivors)), f"run {number}"
        assert {one.clients for one in released} == {len(survivors)}
        finished += 1
    return finished, refused


def test_60_runs_with_dropouts_at_every_leg():
    finished, refused = check(range(60), largest=120)
    assert finished >= 30
    assert refused >= 8


@pytest.mark.full
def test_500_runs_with_dropouts_at_every_leg(verify: Verify):
    finished, refused = check(range(1000, 1500), largest=200)
    assert finished >= 250
    assert refused >= 60
    verify(
        "secure-sum: 500 runs of 3 to 200 clients, dropouts at every leg, equal the plain sum of survivors",
        f"{finished} of {finished} exact, {refused} of {refused} beyond the threshold refused",
    )
