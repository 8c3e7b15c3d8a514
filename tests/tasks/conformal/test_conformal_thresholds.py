"""Without noise every threshold is the order statistic that the method says, of scores computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from conformal_artefacts import split
from conformal_drive import Columns, drive, normal_clients, setting_of
from fedassay.estimation.coverage import best_server_rank
from fedassay.estimation.coverage.law import split_rank
from fedassay.summaries.local_quantiles import ladder, local_rank
from fedassay.tasks.conformal import Conformal
from fedassay.trust import Plain, SecureSum

EQUAL = (100,) * 10
UNEQUAL = (200, 100, 70, 50, 21, 20, 9, 4, 1, 0)
RANGE = (0.0, 4.0)
STEP = 4.0 / ((1 << 14) - 1)


def pooled(clients: list[Columns]) -> np.ndarray:
    return np.sort(np.concatenate([one["conformity"] for one in clients]))


def found(method: str, rows: tuple[int, ...], trust: Any = None, **fields: Any) -> dict[str, Any]:
    task = Conformal(method=method, **{"score_range": RANGE, **fields})
    return drive(task, setting_of(trust or Plain(), clients=len(rows)), normal_clients(rows))


def rounded_up(score: float) -> float:
    """The next of the default points."""
    return math.ceil(score / STEP - 1e-9) * STEP


# --- all scores together --------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("rows", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_pooled_is_split_conformal_prediction_rounded_up(
    trust: Any, rows: tuple[int, ...], level: float
) -> None:
    results = found("pooled", rows, trust, level=level)
    scores = pooled(normal_clients(rows))
    assert results["rank"] == split_rank(len(scores), level) == math.ceil(level * (len(scores) + 1))
    assert results["threshold"] == pytest.approx(rounded_up(split(scores, level)), abs=1e-9)
    assert results["guarantee"]["coverage"] == pytest.approx(results["rank"] / (len(scores) + 1))
    assert results["step"] == pytest.approx(STEP)
    assert (results["pair"], results["rows"], results["clients"]) == (None, len(scores), len(rows))


def test_pooled_with_confidence_takes_the_rank_whose_beta_law_says_so() -> None:
    results = found("pooled", EQUAL, guarantee="training-conditional", confidence=0.95)
    law, rank = results["coverage_law"], results["rank"]
    assert beta(rank, 1001 - rank).sf(0.9) >= 0.95 > beta(rank - 1, 1002 - rank).sf(0.9)
    assert results["threshold"] == pytest.approx(
        rounded_up(pooled(normal_clients(EQUAL))[rank - 1]), abs=1e-9
    )
    assert law["mean"] == pytest.approx(rank / 1001)
    assert results["guarantee"]["kind"] == "training-conditional"
    assert results["guarantee"]["probability"] == pytest.approx(beta(rank, 1001 - rank).sf(0.9))


@pytest.mark.parametrize("bins", [2, 16, 1000])
def test_the_number_of_bins_is_what_was_asked_for_up_to_a_power_of_two(bins: int) -> None:
    results = found("pooled", EQUAL, bins=bins)
    step = 4.0 / ((1 << (bins - 1).bit_length()) - 1)
    assert results["step"] == pytest.approx(step)
    score = split(pooled(normal_clients(EQUAL)))
    assert results["threshold"] == pytest.approx(math.ceil(score / step) * step)


def test_weighted_counts_one_new_row_for_each_client() -> None:
    for rows in (EQUAL, UNEQUAL):
        results = found("weighted", rows)
        scores = pooled(normal_clients(rows))
        rank = math.ceil(0.9 * (len(scores) + len(rows)) - 1e-9)
        assert results["rank"] == rank
        assert results["threshold"] == pytest.approx(rounded_up(scores[rank - 1]), abs=1e-9)
        assert results["guarantee"]["coverage"] == pytest.approx(rank / (len(scores) + len(rows)))
        assert "exchangeable within each client" in results["guarantee"]["assumption"]
        assert results["coverage_law"] is None


def test_a_score_at_the_upper_end_of_the_range_is_still_a_threshold() -> None:
    clients = [{"conformity": np.ones(50)}] * 3
    for bins in (2, 8, 100, 1 << 14):
        task = Conformal(method="pooled", score_range=(0.0, 1.0), bins=bins)
        assert drive(task, setting_of(clients=3), clients)["threshold"] == 1.0
        votes = Conformal(method="qq", score_range=(0.0, 1.0), bins=bins)
        assert drive(votes, setting_of(SecureSum(), clients=3), clients)["threshold"] == 1.0


@pytest.mark.parametrize("method", ["pooled", "qq"])
def test_scores_above_the_range_make_the_set_hold_everything(method: str) -> None:
    results = found(method, EQUAL, SecureSum(), score_range=(0.0, 0.5))
    assert (results["threshold"], results["infinite"]) == (None, True)
    assert "range" in results["reason"]
    assert results["guarantee"]["kind"] == "marginal"
    below = found(method, EQUAL, SecureSum(), score_range=(-9.0, -8.0))
    assert below["infinite"]


@pytest.mark.parametrize("method", ["pooled", "qq"])
def test_scores_below_the_range_are_covered_by_its_lower_points(method: str) -> None:
    results = found(method, EQUAL, SecureSum(), score_range=(10.0, 12.0), bins=2)
    assert results["threshold"] == pytest.approx(12.0)
    fine = found(method, EQUAL, SecureSum(), score_range=(10.0, 12.0), bins=256)
    assert 10.0 < fine["threshold"] <= 10.0 + 2 / 255 + 1e-9


# --- quantiles of quantiles -----------------------------------------------------------------------------


def by_hand(rows: tuple[int, ...], ranks: list[int], k: int) -> float:
    """The k-th smallest of the clients' order statistics, +∞ where a client has none."""
    sent = [
        np.sort(one["conformity"])[rank - 1] if 1 <= rank <= n else math.inf
        for one, n, rank in zip(normal_clients(rows), rows, ranks, strict=True)
    ]
    return float(np.sort(sent)[k - 1])


@pytest.mark.parametrize(("method", "pair"), [("qq", (92, 4)), ("qq-paper", (95, 1))])
def test_equal_clients_have_the_pair_of_the_method(method: str, pair: tuple[int, int]) -> None:
    results = found(method, EQUAL)
    assert tuple(results["pair"]) == pair
    assert results["threshold"] == by_hand(EQUAL, [pair[0]] * 10, pair[1])
    assert results["coverage_law"]["exact"] is True
    assert [one["rank"] for one in results["sites"]] == [pair[0]] * 10
    for one, client in zip(results["sites"], normal_clients(EQUAL), strict=True):
        assert one["score"] == np.sort(client["conformity"])[pair[0] - 1]


@pytest.mark.parametrize(("method", "rule"), [("qq", "spread"), ("qq-paper", "paper")])
def test_unequal_clients_have_the_best_rank_for_the_ranks_that_they_used(method: str, rule: Any) -> None:
    results = found(method, UNEQUAL)
    local = "spread" if method == "qq" else "split"
    ranks = [local_rank(local, 10, n, 0.9) for n in UNEQUAL]
    law = best_server_rank(UNEQUAL, ranks, 0.9, rule=rule)
    assert results["server_rank"] == law.server_rank
    assert results["threshold"] == by_hand(UNEQUAL, ranks, law.server_rank)
    assert results["guarantee"]["coverage"] == pytest.approx(law.mean)
    assert results["pair"] is None
    assert [one["rank"] for one in results["sites"]] == ranks
    if method == "qq-paper":
        assert ranks[:3] == [181, 91, 64]  # ⌈0.9(n+1)⌉
        assert results["without_a_quantile"] == 3


def test_a_confidence_moves_the_pair() -> None:
    results = found("qq", EQUAL, guarantee="training-conditional", confidence=0.9)
    assert results["pair"] == [92, 6]
    assert results["threshold"] == by_hand(EQUAL, [92] * 10, 6)
    assert results["guarantee"]["probability"] >= 0.9


def test_votes_for_points_are_the_quantile_of_quantiles_rounded_up() -> None:
    results = found("qq", EQUAL, SecureSum())
    assert results["pair"] == [92, 4]
    assert results["threshold"] == pytest.approx(rounded_up(by_hand(EQUAL, [92] * 10, 4)), abs=1e-9)
    assert "sites" not in results


def test_votes_of_unequal_clients_take_what_is_at_least_as_safe() -> None:
    rows = (203, 101, 75, 50, 21, 20, 9, 4, 1, 0)  # 203 is between two rungs of the ladder
    rungs = [max(rung for rung in ladder(2**22) if rung <= n) for n in rows]
    assert rungs != list(rows)
    results = found("qq", rows, SecureSum())
    ranks = [local_rank("spread", 10, rung, 0.9) for rung in rungs]
    law = best_server_rank(rungs, ranks, 0.9)
    lifted = [rank + n - rung for rank, n, rung in zip(ranks, rows, rungs, strict=True)]
    assert results["server_rank"] == law.server_rank
    assert results["threshold"] == pytest.approx(rounded_up(by_hand(rows, lifted, law.server_rank)), abs=1e-9)
    assert results["threshold"] >= by_hand(rows, ranks, law.server_rank)
    assert results["rows"] == sum(rungs)


# --- the other methods ----------------------------------------------------------------------------------


def test_average_is_the_mean_of_the_clients_own_quantiles() -> None:
    results = found("average", UNEQUAL)
    own = [
        split(np.asarray(one["conformity"])) for one in normal_clients(UNEQUAL) if len(one["conformity"]) >= 9
    ]
    assert results["threshold"] == pytest.approx(np.mean(own))
    assert results["without_a_quantile"] == 3
    assert results["guarantee"]["kind"] == "none"
    assert results["guarantee"]["coverage"] is None
    assert results["coverage_law"] is None


def test_local_is_each_clients_own_split_conformal_prediction() -> None:
    results = found("local", UNEQUAL)
    assert (results["threshold"], results["infinite"], results["pair"]) == (None, False, None)
    for one, client in zip(results["sites"], normal_clients(UNEQUAL), strict=True):
        scores = client["conformity"]
        assert one["infinite"] == (len(scores) < 9)
        assert one["threshold"] == (None if len(scores) < 9 else split(scores))
    assert results["without_a_quantile"] == 3
    least = min(split_rank(n, 0.9) / (n + 1) for n in UNEQUAL if n >= 9)
    assert results["guarantee"]["coverage"] == pytest.approx(least)
    assert "its own new rows only" in results["guarantee"]["assumption"]


def test_local_with_confidence_needs_more_rows_and_takes_higher_ranks() -> None:
    results = found("local", (200, 28, 29, 9), guarantee="training-conditional", confidence=0.95)
    assert [one["infinite"] for one in results["sites"]] == [False, True, False, True]
    rank = results["sites"][0]["rank"]
    assert results["sites"][0]["threshold"] == np.sort(normal_clients((200,))[0]["conformity"])[rank - 1]
    assert rank > split_rank(200, 0.9)
    assert results["guarantee"]["probability"] >= 0.95


@pytest.mark.parametrize("method", ["qq", "qq-paper", "pooled", "weighted", "local", "average"])
def test_too_few_rows_for_the_level_give_the_honest_set_of_everything(method: str) -> None:
    results = found(method, (3, 2, 1))
    assert (results["threshold"], results["infinite"]) == (None, True)
    assert results["reason"]
    assert results["guarantee"]["coverage"] == 1.0
    assert results["rows"] == 6
