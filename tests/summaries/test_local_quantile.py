"""One score per client: the right one, to the last bit, and nothing that a client sends can break the server."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedassay.data.tables import ArrayRows
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.estimation.coverage import best_pair, best_server_rank, split_ranks
from fedassay.protocol.vocabulary import Budget, Collect, Protection, Setting, Sum
from fedassay.summaries.grouped_histogram import fingerprints
from fedassay.summaries.local_quantiles import (
    RULES,
    LocalQuantile,
    LocalScores,
    at_ranks,
    from_ordered,
    local_rank,
    to_ordered,
)
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP

SUMMARY = LocalQuantile(quantity="conformity", level=0.8, clients=7, rules=RULES)

finite = st.floats(allow_nan=False, allow_infinity=False)
values = hnp.arrays(np.float64, st.integers(0, 40), elements=finite)


def answered(summary: LocalQuantile, **columns: np.ndarray) -> dict[str, LocalScores]:
    return summary.read(summary.measure(ArrayRows(columns=columns), {})[0])


@given(values)
def test_a_client_sends_the_score_at_its_rank(scores: np.ndarray) -> None:
    found = answered(SUMMARY, conformity=scores)["all"]
    assert found.rows == len(scores)
    for rule in RULES:
        rank = local_rank(rule, 7, len(scores), 0.8)
        assert found.ranks[rule] == rank
        expected = np.sort(scores)[rank - 1] if rank <= len(scores) else math.inf
        assert found.scores[rule] == expected


def test_ranks_are_those_of_the_best_pairs() -> None:
    for rows in (3, 20, 100, 1000):
        for rule in ("spread", "paper"):
            assert local_rank(rule, 10, rows, 0.9) == best_pair(10, rows, 0.9, rule=rule).local_rank
        assert local_rank("spread", 10, rows, 0.9, 0.95) == (
            best_pair(10, rows, 0.9, confidence=0.95).local_rank
        )
        assert local_rank("split", 10, rows, 0.9) == split_ranks([rows], 0.9)[0]


def test_with_too_few_rows_for_any_pair_the_largest_score_is_sent() -> None:
    assert local_rank("spread", 2, 3, 0.9) == 3
    assert local_rank("paper", 2, 4, 0.9) == 4
    assert local_rank("split", 2, 3, 0.9) == 4
    # Five such clients together have enough.
    assert best_server_rank([3] * 5, [3] * 5, 0.9).server_rank <= 5


@pytest.mark.parametrize(("clients", "rows"), [(101, 9901), (3000, 4097), (3000, 334)])
def test_large_federations_lose_next_to_nothing_with_the_simple_rank(clients: int, rows: int) -> None:
    """Where the best pair would take long, the server's rank makes up for it: the error grows by less than 1 %."""
    assert clients * (rows - 1) <= 10**6 or rows > 4096
    best = best_pair(clients, rows, 0.9)
    rank = local_rank("spread", clients, rows, 0.9)
    assert rank == split_ranks([rows], 0.9)[0]
    simple = best_server_rank([rows] * clients, [rank] * clients, 0.9)
    assert simple.mean >= 0.9
    errors = [math.hypot(law.mean - 0.9, law.standard_deviation) for law in (best, simple)]
    assert errors[1] <= 1.01 * errors[0]


@pytest.mark.parametrize(("clients", "rows"), [(100, 20_000), (101, 9900), (3000, 333)])
def test_up_to_a_million_scores_or_a_hundred_clients_the_best_pair_is_used(clients: int, rows: int) -> None:
    assert local_rank("spread", clients, rows, 0.9) == best_pair(clients, rows, 0.9).local_rank
    assert local_rank("spread", clients, rows, 0.9) != split_ranks([rows], 0.9)[0]


@given(values, st.lists(st.integers(0, 2), min_size=40, max_size=40))
def test_groups_are_clients_of_their_own(scores: np.ndarray, where: list[int]) -> None:
    place = np.array(where[: len(scores)], dtype=np.int64)
    by_class = LocalQuantile(
        quantity="conformity", level=0.8, clients=7, rules=("split",), by="class", groups=("0", "1", "2")
    )
    by_group = LocalQuantile(
        quantity="conformity", level=0.8, clients=7, rules=("split",), by="group", groups=("a", "b")
    )
    alone = LocalQuantile(quantity="conformity", level=0.8, clients=7, rules=("split",))
    columns = {"conformity": scores, "class": place, "group": fingerprints(["a", "b", "c"])[place]}
    expected = [answered(alone, conformity=scores[place == k])["all"] for k in range(3)]
    assert list(answered(by_class, **columns).values()) == expected
    assert answered(by_group, **columns) == dict(zip(("a", "b", "other"), expected, strict=True))


# --- as whole numbers -----------------------------------------------------------------------------------


@given(hnp.arrays(np.float64, st.integers(0, 20), elements=st.floats(allow_nan=False)))
def test_scores_travel_unchanged_and_in_order(scores: np.ndarray) -> None:
    ordered = to_ordered(scores)
    assert ordered.dtype == np.int64
    assert from_ordered(ordered).tobytes() == scores.tobytes()
    for a, b in pairwise(scores):
        x, y = to_ordered(np.array([a, b])).tolist()
        assert (x < y) == (a < b or (a == b and np.signbit(a) and not np.signbit(b)))


@given(hnp.arrays(np.float64, st.integers(0, 20), elements=finite), st.data())
def test_several_ranks_at_once(scores: np.ndarray, data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.integers(1, len(scores) + 2), max_size=4))
    expected = [np.append(np.sort(scores), [np.inf] * 2)[rank - 1] for rank in ranks]
    assert at_ranks(scores, ranks).tolist() == expected


# --- strangers ------------------------------------------------------------------------------------------

NAN = np.array([np.nan]).view(np.int64)[0]


@given(hnp.arrays(np.int64, SUMMARY.length, elements=st.integers(-(2**63), 2**63 - 1)))
def test_whatever_is_sent_can_be_read(entries: np.ndarray) -> None:
    found = SUMMARY.read(entries)["all"]
    assert 0 <= found.rows <= 2**32
    for rule in RULES:
        assert found.ranks[rule] >= 1
        assert not math.isnan(found.scores[rule])
        assert found.scores[rule] != -math.inf
        if found.ranks[rule] > found.rows:
            assert found.scores[rule] == math.inf


@pytest.mark.parametrize(
    ("rows", "bits", "expected"),
    [
        (-5, 0, (0, math.inf)),
        (0, 0, (0, math.inf)),
        (50, int(NAN), (50, math.inf)),
        (50, -int(NAN), (50, math.inf)),
        (50, int(to_ordered(np.array([-np.inf]))[0]), (50, math.inf)),
        (50, int(to_ordered(np.array([-2.5]))[0]), (50, -2.5)),
        (3, 0, (3, math.inf)),  # too few rows for the rank, whatever it says
        (2**63 - 1, 0, (2**32, 0.0)),
    ],
)
def test_lies_are_harmless(rows: int, bits: int, expected: tuple[int, float]) -> None:
    summary = LocalQuantile(quantity="conformity", level=0.8, clients=7, rules=("split",))
    found = summary.read(np.array([rows, bits]))["all"]
    assert (found.rows, found.scores["split"]) == expected


# --- as a question --------------------------------------------------------------------------------------


def test_only_who_may_see_it_gets_it() -> None:
    """Collected in the clear; no sum, masked or noisy, can hold it."""
    plain = Setting(trust=Plain(), protection=Protection(), budget=None, clients=7)
    assert Plain().plan(Collect(of=SUMMARY), plain).query.of == SUMMARY
    masked = Setting(trust=SecureSum(), protection=Protection(), budget=None, clients=7)
    noisy = Setting(trust=ServerDP(), protection=Protection(), budget=Budget(epsilon=1.0), clients=7)
    for setting in (plain, masked, noisy):
        with pytest.raises((UnsupportedQuery, UsageError)):
            setting.trust.plan(Sum(of=SUMMARY), setting)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rules": ()}, "rules: got"),
        ({"rules": ("best",)}, "rules: got"),
        ({"rules": ("split", "split")}, "different ones"),
        ({"quantity": "none"}, "conformity score"),
    ],
)
def test_bad_questions_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LocalQuantile(**{"quantity": "conformity", "level": 0.9, "clients": 3, **wrong})
