"""Randomised runs with silent and false parties: exact totals or refusals, and never a wrong one unnoticed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from fedassay.crypto.field61 import PRIME
from fedassay.errors import ProtocolError, TooFewClients
from fedassay.protocol.vocabulary import Message
from fedassay.trust.secure_sum import SecureSum
from secure_sum_driver import Run, vectors
from stated import Verify


def with_one_more(array: np.ndarray, generator: random.Random) -> np.ndarray:
    changed = array.copy()
    place = tuple(generator.randrange(length) for length in array.shape)
    changed[place] = (int(changed[place]) + 1) % PRIME
    return changed


def random_run(number: int, *, largest: int) -> tuple[Run, set[tuple[int, str]]]:
    """A run, and who sends false numbers at which leg; every third run loses as many parties as it may, or more."""
    generator = random.Random(number)
    n = min(largest, 3 + int(generator.expovariate(1 / 12)))
    if number % 10 == 7:
        n = generator.randrange(40, largest + 1)
    names = [f"client-{i:03}" for i in range(n)]
    members = tuple(generator.sample(names, generator.randrange(10, 24))) if n > 30 else ()
    trust = SecureSum(
        dropout=generator.choice([0.0, 0.1, 0.2, 0.3]),
        collusion=generator.choice([0.0, 0.05, 0.09]),
        minimum_cohort=generator.choice([3, 3, 3, 5]) if n >= 5 else 3,
        members=members,
    )
    run = Run.of(n, trust, seed=number, lengths=(1, generator.randrange(1, 9)), through_bytes=n < 20)
    found = trust.sizes(n)
    for leg, allowed, among in (
        (0, found.silent_clients, names),
        (1, found.silent_members, list(members or names)),
    ):
        lost = [generator.randrange(allowed + 1), allowed, allowed + generator.randrange(2)][number % 3]
        free = [name for name in among if name not in run.silent]
        run.silent = {**run.silent, **dict.fromkeys(generator.sample(free, min(lost, len(free))), leg)}
    liars: set[tuple[int, str]] = set()
    if number % 4 == 1:
        if number % 8 == 1:
            run.silent = {}  # so that answers are spare, where any can be
        leg = generator.randrange(2)
        speakers = [name for name in (names, members or names)[leg] if run.silent.get(name, 2) != leg]
        liars = {
            (leg, name) for name in generator.sample(speakers, min(len(speakers), generator.randrange(1, 3)))
        }

    def tamper(leg: int, name: str, reply: Message) -> Any:
        if (leg, name) not in liars:
            return reply
        field = ("corrections", "answer")[leg]
        return {**reply, field: with_one_more(reply[field], generator)}

    run.tamper = tamper
    return run, liars


def outcome(number: int, *, largest: int) -> str:
    """What became of a run; it is what its numbers say."""
    run, liars = random_run(number, largest=largest)
    found = run.trust.sizes(len(run.values))
    members = run.trust.members or tuple(run.values)
    spoke = [name for name in run.values if run.silent.get(name, 2) != 0]
    answering = [name for name in members if run.silent.get(name, 2) != 1]
    if len(spoke) < found.least or len(answering) < found.needed:
        with pytest.raises(TooFewClients, match="expected at least"):
            run.go()
        return "too few"
    spare = len(answering) - found.needed
    try:
        released = run.go()
    except ProtocolError:
        assert liars
        assert spare > 0
        return "refused"
    assert {one.clients for one in released} == {len(spoke)}
    if vectors(released) == run.total(spoke):
        return "exact"
    assert liars
    assert spare == 0  # with nothing to spare a false row cannot be noticed, and the result says so
    return "wrong, as was said"


def check(numbers: Collection[int], *, largest: int) -> Counter[str]:
    return Counter(outcome(number, largest=largest) for number in numbers)


def test_60_runs_with_silent_and_false_parties():
    seen = check(range(60), largest=80)
    assert seen["exact"] >= 25
    assert seen["too few"] >= 5
    assert seen["refused"] >= 3


@pytest.mark.full
def test_500_runs_with_silent_and_false_parties(verify: Verify):
    seen = check(range(1000, 1500), largest=200)
    assert seen["exact"] >= 250
    assert seen["refused"] >= 30
    verify(
        "secure-sum: 500 runs of 3 to 200 clients, with silent clients and members and false rows",
        f"{seen['exact']} exact, {seen['too few']} with too few answers refused, {seen['refused']} with false rows "
        f"refused; {seen['wrong, as was said']} wrong where no answer was spare, 0 elsewhere",
    )
