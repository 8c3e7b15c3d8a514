from __future__ import annotations

import random
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.trust import secure_sum_graph
from fedassay.trust.secure_sum_graph import (
    LARGEST_COMPLETE,
    Graph,
    failures,
    parameters,
    survivable,
    tolerated,
)


def names(n: int) -> list[str]:
    return [f"c{i:04}" for i in range(n)]


def exact_tail(count: int, *, drawn: int, marked: int, of: int) -> Fraction:
    """P(X > count), by counting."""
    ways = sum(comb(marked, x) * comb(of - marked, drawn - x) for x in range(count + 1, drawn + 1))
    return Fraction(ways, comb(of, drawn))


@pytest.mark.parametrize(
    ("n", "k", "t"), [(3, 2, 2), (4, 3, 2), (5, 4, 3), (6, 5, 3), (10, 9, 6), (40, 39, 22)]
)
def test_small_cohorts_are_complete(n: int, k: int, t: int):
    assert parameters(n, 0.2, 0.1) == (k, t, 0.0, 0.0)


@pytest.mark.parametrize("n", [65, 70, 100, 200, 500, 1000, 10**4, 10**6])
@pytest.mark.parametrize(
    ("dropout", "collusion"), [(0.2, 0.1), (0.1, 0.05), (0.05, 0.0), (0.1, 0.2), (0.0, 0.0)]
)
def test_parameters_keep_what_they_promise(n: int, dropout: float, collusion: float):
    k, t, correctness, security = parameters(n, dropout, collusion)
    D, C = tolerated(n, dropout), tolerated(n, collusion)
    assert 0 < t <= k < n
    assert correctness <= 2**-20
    assert security <= 2**-40
    bounds = failures(clients=n, neighbours=k, threshold=t, dropouts=D, colluders=C)
    assert bounds == (correctness, security)
    assert 2 * t > k + C if k == n - 1 else k % 2 == 0


@given(
    n=st.integers(LARGEST_COMPLETE + 1, 300),
    half=st.integers(1, 30),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_failures_agree_with_counting(n: int, half: int, data: st.DataObject):
    k = 2 * half
    t = data.draw(st.integers(1, k))
    D, C = data.draw(st.integers(0, n // 2)), data.draw(st.integers(0, n // 2))
    correctness, security = failures(clients=n, neighbours=k, threshold=t, dropouts=D, colluders=C)
    assert correctness == pytest.approx(
        float(min(1, n * exact_tail(k - t, drawn=k, marked=D, of=n - 1))), rel=1e-9, abs=1e-300
    )
    assert security == pytest.approx(
        float(min(1, n * exact_tail(max(t - half - 2, -1), drawn=half, marked=C, of=n))), rel=1e-9, abs=1e-300
    )


def test_impossible_requests_say_what_is_possible():
    with pytest.raises(UsageError, match=r"3 clients.*dropout 0\.4.*\(0\.2, 0\.1\)") as refusal:
        parameters(3, 0.4, 0.0)
    for pair in str(refusal.value).split("pairs ")[1].rstrip(".").split("), "):
        dropout, collusion = map(float, pair.strip("()").split(", "))
        parameters(3, dropout, collusion)
    with pytest.raises(UsageError, match="well below 1"):
        parameters(10**6, 0.45, 0.05)
    for bad in (-0.1, 1.0, float("nan")):
        with pytest.raises(UsageError, match="fractions"):
            parameters(10, bad, 0.0)
    with pytest.raises(UsageError, match="at least 2"):
        parameters(1, 0.0, 0.0)


def test_the_documented_table_is_what_the_code_says():
    page = Path(__file__).parents[2] / "docs" / "explanation" / "secure-sum.md"
    lines = (
        page.read_text(encoding="utf-8").split("| clients | dropout |")[1].split("\n\n")[0].splitlines()[2:]
    )
    assert len(lines) > 10
    for line in lines:
        n, dropout, collusion, silent, colluding, k, t = (
            float(cell.replace(",", "")) for cell in line.strip("|").split("|")
        )
        found = parameters(int(n), dropout, collusion)
        assert found[:2] == (k, t)
        assert survivable(int(n), dropout, found) == silent >= tolerated(int(n), dropout)
        assert tolerated(int(n), collusion) == colluding


def test_more_dropouts_or_colluders_need_more_neighbours():
    for worse in ((0.25, 0.1), (0.2, 0.15)):
        assert parameters(2000, *worse).neighbours > parameters(2000, 0.2, 0.1).neighbours


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 4), (6, 5), (9, 4), (30, 10), (7, 6)])
def test_graphs_are_regular_and_symmetric(n: int, k: int):
    graph = Graph.of(names(n), exchange=b"x", degree=k)
    assert sorted(graph.ring) == names(n)
    for i in names(n):
        neighbours = graph.neighbours(i)
        assert len(set(neighbours)) == len(neighbours) == k
        assert i not in neighbours
        assert all(i in graph.neighbours(j) for j in neighbours)


def test_the_graph_depends_on_the_exchange_only():
    cohort = names(40)
    graph = Graph.of(cohort, exchange=b"one", degree=6)
    assert Graph.of(random.Random(1).sample(cohort, 40), exchange=b"one", degree=6) == graph
    assert Graph.of(cohort, exchange=b"two", degree=6).ring != graph.ring


def test_neighbours_among_those_who_are_left():
    graph = Graph.of(names(9), exchange=b"x", degree=4)
    left = set(names(9)[:5])
    assert graph.among(left) == {i: [j for j in graph.neighbours(i) if j in left] for i in names(9)[:5]}


# --- the theorem in the docstring of `parameters`: one story for all, and the ring cannot be cut ------------


def learned_groups(graph: Graph, *, colluders: set[str], silent: set[str], threshold: int) -> list[set[str]]:
    """The groups of honest clients whose totals a server learns that declares `silent` to be silent.

    It may choose them knowing the graph, and it still asks them to reveal shares. Written from the protocol:
    who answers the last leg, whose seed opens, and which pieces hang together by masks that stay secret.
    """
    honest = set(graph.ring) - colluders
    survivors = set(graph.ring) - silent
    near = {i: set(graph.neighbours(i)) for i in graph.ring}
    answers = {i for i in honest if len(near[i] & survivors) >= threshold} | colluders
    opened = {i for i in honest & survivors if len(near[i] & answers) >= threshold}
    groups, rest = [], honest & survivors
    while rest:
        group, edge = set(), {rest.pop()}
        while edge:
            group |= edge
            edge = {j for i in edge for j in near[i] & rest}
            rest -= edge
        if group <= opened:
            groups.append(group)
    return groups


def most_per_stretch(ring: tuple[str, ...], chosen: set[str], length: int) -> int:
    marks = np.array([name in chosen for name in ring * 2])
    return int(max(marks[start : start + length].sum() for start in range(len(ring))))


def cut(graph: Graph, colluders: set[str], generator: random.Random) -> set[str]:
    """Honest clients to declare silent: all of two stretches, each as long as a client can see."""
    n, half = len(graph.ring), graph.degree // 2
    start = generator.randrange(n)
    second = start + half + generator.randrange(1, n - 2 * half)
    places = {(s + step) % n for s in (start, second) for step in range(half)}
    return {graph.ring[place] for place in places} - colluders


@pytest.mark.parametrize(("slack", "holds"), [(2, True), (1, False)])
def test_a_ring_cannot_be_cut_by_declaring_clients_silent(slack: int, *, holds: bool):
    """With t = h + c + 2 never; with a threshold lower by one, the same attack works."""
    generator, broken = random.Random(7), 0
    for trial in range(400):
        n, half = generator.randrange(24, 60), generator.randrange(4, 9)
        graph = Graph.of(names(n), exchange=trial.to_bytes(2), degree=2 * half)
        colluders = set(generator.sample(names(n), generator.randrange(0, n // 4)))
        threshold = half + most_per_stretch(graph.ring, colluders, half) + slack
        if threshold > 2 * half:
            continue
        silent = cut(graph, colluders, generator)
        survivors = set(graph.ring) - silent - colluders
        groups = learned_groups(graph, colluders=colluders, silent=silent, threshold=threshold)
        broken += any(group != survivors for group in groups)
    assert (broken == 0) if holds else (broken > 20)


def test_random_dropouts_leave_one_group_with_everybody_in_it():
    """The same bookkeeping finds the total over all survivors when nobody cheats: it can say yes."""
    generator = random.Random(3)
    graph = Graph.of(names(50), exchange=b"x", degree=20)
    silent = set(generator.sample(names(50), 6))
    groups = learned_groups(graph, colluders=set(), silent=silent, threshold=12)
    assert groups == [set(graph.ring) - silent]


def test_the_search_stops_at_a_practical_number_of_neighbours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(secure_sum_graph, "LARGEST_DEGREE", 50)
    parameters.cache_clear()
    with pytest.raises(UsageError, match="well below 1"):
        parameters(1000, 0.2, 0.1)
    parameters.cache_clear()
