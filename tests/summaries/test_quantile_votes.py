"""Votes for bins and for numbers of rows: what they say, and that what they claim is never too much."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc

from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.estimation.coverage import UnequalLaw, best_server_rank
from fedassay.protocol.vocabulary import UNBOUNDED, Protection, Unit
from fedassay.summaries.grouped_histogram import fingerprints
from fedassay.summaries.local_quantiles import LocalQuantile, QuantileVotes, Votes, ladder, local_rank

RUNGS = (0, 2, 5, 9)


def asked(**fields: object) -> QuantileVotes:
    usual = {"level": 0.6, "clients": 3, "lower": 0.0, "upper": 8.0, "points": 8, "rungs": RUNGS}
    return QuantileVotes(quantity="value", **{**usual, **fields})


def vote(summary: QuantileVotes, scores: object) -> np.ndarray:
    return summary.measure(ArrayRows(columns={"value": np.array(scores, dtype=np.float64)}), {})[0]


def places(votes: Votes) -> tuple[float, int]:
    """The edge and the rung of the only vote."""
    assert (votes.votes.sum(), votes.rows.sum()) == (1, 1)
    return float(votes.edges[votes.votes.argmax()]), int(votes.rungs[votes.rows.argmax()])


# --- the ladder -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [1, 10, 63, 64, 5000, 2**22])
def test_the_ladder_is_exact_at_first_and_then_as_fine_as_stated(largest: int) -> None:
    rungs = np.array(ladder(largest))
    small = min(largest, 63)
    assert rungs[: small + 1].tolist() == list(range(small + 1))
    steps = np.diff(rungs)
    assert steps.min() == 1
    assert (steps[64:] <= np.sqrt(rungs[64:-1]) / 4).all()
    assert largest - rungs[-1] <= math.sqrt(largest) / 4
    assert len(rungs) <= 8 * math.sqrt(largest) + 100


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_the_ladder_costs_what_it_says(level: float) -> None:
    """How much coverage the rounding of rows adds, in standard deviations of a client's own coverage."""
    alpha = 1 - level
    for rows in (100, 1000, 30_000, 10**6):
        rung = max(n for n in ladder(2 * rows) if n <= rows - 1 + math.isqrt(rows) // 4)
        rows = rung + max(0, math.isqrt(rung) // 4 - 1)  # the worst place on its step
        rank = local_rank("split", 10, rung, level)
        mean, deviation = rank / (rung + 1), math.sqrt(level * alpha / rung)
        added = (rank + rows - rung) / (rows + 1) - mean
        assert 0 <= added <= 1.05 * math.sqrt(alpha / level) / 4 * deviation


# --- what is voted for ----------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 10), max_size=14))
def test_a_client_votes_for_the_bin_of_its_quantile_and_its_rung(scores: list[float]) -> None:
    summary = asked()
    edge, rung = places(summary.read(vote(summary, scores))["all"])
    assert rung == max(n for n in RUNGS if n <= len(scores))
    if rung == 0:
        assert edge == math.inf
        return
    rank = local_rank("spread", 3, rung, 0.6) + len(scores) - rung
    score = sorted(scores)[rank - 1]
    assert edge == (max(1.0, math.ceil(score)) if score <= 7 else math.inf)


def test_on_an_exact_ladder_it_is_the_local_quantile() -> None:
    scores = np.random.default_rng(1).random(40)
    summary = QuantileVotes(quantity="value", level=0.9, clients=5, lower=0, upper=1, points=1 << 12)
    local = LocalQuantile(quantity="value", level=0.9, clients=5)
    exact = local.read(local.measure(ArrayRows(columns={"value": scores}), {})[0])["all"].scores["spread"]
    edge, rung = places(summary.read(vote(summary, scores))["all"])
    assert rung == 40
    assert 0 <= edge - exact <= 2**-12


def test_a_client_without_rows_votes_for_infinity() -> None:
    for summary in (asked(), asked(rungs=())):
        assert places(summary.read(vote(summary, []))["all"]) == (math.inf, 0)


@given(st.lists(st.tuples(st.floats(0, 8), st.integers(0, 2)), max_size=20))
def test_groups_vote_by_themselves(rows: list[tuple[float, int]]) -> None:
    values = np.array([value for value, _ in rows])
    where = np.array([group for _, group in rows], dtype=np.int64)
    summary = asked(by="group", groups=("a", "b"))
    columns = {"value": values, "group": fingerprints(["a", "b", "c"])[where]}
    found = summary.read(summary.measure(ArrayRows(columns=columns), {})[0])
    alone = asked()
    assert list(found) == ["a", "b", "other"]
    for place, votes in enumerate(found.values()):
        assert places(votes) == places(alone.read(vote(alone, values[where == place]))["all"])


def test_votes_of_many_clients_add_up() -> None:
    summary = asked()
    clients = [np.random.default_rng(seed).uniform(0, 8, seed) for seed in range(12)]
    total = summary.read(np.sum([vote(summary, scores) for scores in clients], axis=0))["all"]
    assert total.rows.tolist() == [2, 3, 4, 3]
    assert total.votes.sum() == 12


# --- what the votes claim -------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 3, 20])
@pytest.mark.parametrize("level", [0.6, 0.9])
def test_the_law_of_a_rung_is_never_above_that_of_the_client(clients: int, level: float) -> None:
    """Beta(ℓ' + n - n', n' - ℓ' + 1) is stochastically at least Beta(ℓ', n' - ℓ' + 1)."""
    t = np.linspace(0, 1, 201)
    for rows in range(2, 40):
        rung = max(n for n in (*RUNGS, 20) if n <= rows)
        claimed = local_rank("spread", clients, rung, level)
        used = claimed + rows - rung
        assert used <= rows
        excess = betainc(used, rows - used + 1, t) - betainc(claimed, rung - claimed + 1, t)
        assert excess.max() <= 1e-14
        if rows > rung:  # without the n - n' more, the claim would be false
            naive = betainc(claimed, rows - claimed + 1, t) - betainc(claimed, rung - claimed + 1, t)
            assert naive.max() > 1e-3


def test_so_is_the_law_of_all_clients() -> None:
    """All federations of three clients with up to seven rows, and every rank of the server."""
    summary = asked()
    for rows in itertools.combinations_with_replacement(range(2, 8), 3):
        rungs = [max(n for n in RUNGS if n <= count) for count in rows]
        ranks = [summary.rank(rung) for rung in rungs]
        used = [rank + count - rung for rank, count, rung in zip(ranks, rows, rungs, strict=True)]
        for k in (1, 2, 3):
            claimed = UnequalLaw(rows=tuple(rungs), local_ranks=tuple(ranks), server_rank=k)
            true = UnequalLaw(rows=rows, local_ranks=tuple(used), server_rank=k)
            for t in np.linspace(0.05, 0.95, 7):
                assert true.cdf(t) <= claimed.cdf(t) + 1e-12


@pytest.mark.parametrize("rows", [(3, 3), (2, 4), (3, 4), (6,), (2, 2, 2)])
def test_coverage_over_all_orders_of_the_scores_is_at_least_what_the_votes_claim(
    rows: tuple[int, ...],
) -> None:
    """With the new row all orders are equally likely: exact, through the votes themselves."""
    summary = asked(level=0.5, clients=len(rows), rungs=(0, 2, 5))
    calibration = sum(rows)
    empty = np.zeros(summary.length, dtype=np.int64)
    sizes = empty + sum(vote(summary, np.arange(1.0, n + 1)) for n in rows)
    found = summary.read(sizes)["all"]
    rungs = np.repeat(found.rungs, found.rows).tolist()
    law = best_server_rank(rungs, [summary.rank(n) for n in rungs], 0.5)
    covered = orders = 0
    # The scores are 1..n+1; which of them is the new row's, and which client has which of the others.
    for new in range(1, calibration + 2):
        others = [score for score in range(1, calibration + 2) if score != new]
        for parts in _splits(others, rows):
            total = empty + sum(vote(summary, part) for part in parts)
            votes = np.cumsum(summary.read(total)["all"].votes)
            threshold = found.edges[int(np.searchsorted(votes, law.server_rank))]
            covered += new <= threshold
            orders += 1
    assert covered / orders >= law.mean - 1e-12
    assert law.mean >= 0.5


def _splits(items: list[int], sizes: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    if not sizes:
        return [[]]
    return [
        [first, *rest]
        for first in itertools.combinations(items, sizes[0])
        for rest in _splits([item for item in items if item not in first], sizes[1:])
    ]


# --- how far a row moves them ---------------------------------------------------------------------------


@given(st.lists(st.floats(0, 8), max_size=12), st.floats(0, 8))
def test_a_row_moves_two_votes(scores: list[float], new: float) -> None:
    summary = asked()
    change = vote(summary, [*scores, new]) - vote(summary, scores)
    assert np.abs(change).max(initial=0) <= 1
    assert np.abs(change).sum() <= 4


def test_a_row_that_changes_its_group_moves_two_groups() -> None:
    summary = asked(by="group", groups=("a", "b"))

    def votes(names: list[str]) -> np.ndarray:
        columns = {"value": np.array([1.0, 3.0, 5.0]), "group": fingerprints(names)}
        return summary.measure(ArrayRows(columns=columns), {})[0]

    change = votes(["a", "a", "b"]) - votes(["a", "b", "b"])
    assert np.abs(change).sum() == 8


def test_a_row_can_move_a_vote_to_the_other_end_so_that_there_is_no_bound() -> None:
    summary = asked()
    (before,), (after,) = (np.flatnonzero(vote(summary, scores)[:8]) for scores in ([0.0, 0.0], [9.0, 9.0]))
    assert (before, after) == (0, 7)
    for protection in (Protection(), Protection(unit=Unit.CLIENT, rows_per_client=50)):
        assert summary.sensitivity(protection) == UNBOUNDED


# --- as a question --------------------------------------------------------------------------------------


def test_a_ladder_is_there_where_none_is_given() -> None:
    assert asked(by="class", groups=("0", "1"), rungs=()).rungs == ladder(2**22)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rungs": (1, 2)}, "rungs: expected increasing"),
        ({"rungs": (0, 2, 2)}, "rungs: expected increasing"),
        ({"rungs": (0, 1.5)}, "rungs: got 1.5"),
        ({"rungs": (0, 2**33)}, "rungs: expected increasing"),
        ({"rungs": tuple(range(2**16 + 1))}, "rungs: got 65,537"),
        ({"points": 7}, "points: got 7, expected a power of two"),
        ({"upper": 0.0}, "range: got 0 to 0"),
    ],
)
def test_bad_questions_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asked(**wrong)
