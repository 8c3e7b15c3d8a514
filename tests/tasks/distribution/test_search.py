"""Quantiles by search: places, evaluations, and the task on two servers that keep their noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_values import Servers
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Budget, Protection, Setting
from fedassay.tasks.distribution.search import SearchQuantiles, inverse_by_search, search
from fedassay.trust.plain import Plain


def searched(
    at: Callable[[int], float], points: int, targets: Sequence[float]
) -> tuple[tuple[int, ...], list[int]]:
    """The places found, and all places that were looked at."""
    flow, looked = search(points, targets), []
    try:
        wanted = next(flow)
        while True:
            looked += wanted
            wanted = flow.send([at(place) for place in wanted])
    except StopIteration as found:
        return found.value, looked


@given(
    st.integers(1, 6).flatmap(
        lambda L: st.lists(st.integers(0, 20), min_size=1 << L, max_size=1 << L).map(np.cumsum)
    ),
    st.lists(st.floats(-5, 800), min_size=0, max_size=5),
)
def test_a_monotone_function_is_inverted_exactly(values: np.ndarray, targets: list[float]) -> None:
    found, looked = searched(lambda place: float(values[place]), len(values), targets)
    expected = np.minimum(np.searchsorted(values, targets, side="left"), len(values) - 1)
    assert list(found) == expected.tolist()
    assert len(looked) == len(set(looked)) <= len(targets) * (len(values).bit_length() - 1)
    assert len(values) - 1 not in looked


@given(
    st.integers(1, 8).flatmap(lambda L: st.lists(st.floats(0, 1), min_size=1 << L, max_size=1 << L)),
    st.floats(0, 1),
)
def test_a_function_that_is_not_monotone_is_crossed(values: list[float], target: float) -> None:
    place = inverse_by_search(lambda p: values[p], len(values), target)
    assert place == 0 or values[place - 1] < target
    assert place == len(values) - 1 or values[place] >= target


def test_a_domain_of_32_bits_takes_32_evaluations() -> None:
    found, looked = searched(lambda place: place + 0.5, 1 << 32, [3e9, 17.0])
    assert found == (3_000_000_000, 17)
    assert len(looked) <= 63
    assert inverse_by_search(lambda place: 0.0, 1 << 32, 1.0) == (1 << 32) - 1


def test_without_noise_quantiles_are_numpys() -> None:
    x = np.random.default_rng(1).gamma(3, 2, 5001)
    task = SearchQuantiles(lower=0, upper=100, points=1 << 20, quantiles=(0.01, 0.5, 0.99))
    servers = Servers(x)
    results = servers.run(task)
    assert results["rows"]["interval"] == [5001, 5001]
    assert results["mechanism"] == "none"
    assert servers.asked[0] == (1 << 20) - 1
    assert results["evaluations"] == len(servers.asked) == len(set(servers.asked))
    for entry in results["quantiles"]:
        exact = np.quantile(x, entry["quantile"], method="inverted_cdf")
        assert entry["value"] == pytest.approx(exact, abs=100 / 2**20)
        assert entry["value"] >= exact
        assert entry["interval"][0] < exact < entry["interval"][1]


def test_noise_is_in_the_interval_and_says_so() -> None:
    x = np.random.default_rng(1).normal(50, 10, 5000)
    task = SearchQuantiles(lower=0, upper=100, points=1 << 20, quantiles=(0.5,))
    exact, noisy = (Servers(x, scale).run(task) for scale in (0.0, 11.0))
    widths = [np.subtract(*one["quantiles"][0]["interval"][::-1]) for one in (exact, noisy)]
    assert widths[1] > 2 * widths[0]
    assert noisy["mechanism"] == "path"
    assert noisy["noise"]["copies"] == 2
    assert noisy["rows"]["error"]["privacy"] == pytest.approx(np.sqrt(21 * 4 * 11**2))
    again = Servers(x, 11.0).run(task)
    assert again == noisy


def test_the_grid_may_be_logarithmic_and_is_rounded_up() -> None:
    x = np.exp(np.random.default_rng(1).normal(3, 1, 4000))
    results = Servers(x).run(SearchQuantiles(lower=0.01, upper=1e6, points=1000, grid="logarithmic"))
    assert results["grid"]["points"] == 1024
    assert "1,000 was rounded up to 1,024" in results["notes"][0]
    low, high = results["quantiles"][0]["interval"]
    assert low < np.median(x) < high


def test_the_ends_of_the_range() -> None:
    task = SearchQuantiles(lower=0, upper=1, points=4, quantiles=(0.01, 0.99))
    results = Servers(np.array([-1.0] * 50 + [2.0] * 50)).run(task)
    first, last = results["quantiles"]
    assert (first["value"], first["interval"][0]) == (0.25, 0.0)
    assert "first cell" in first["reason"]
    assert (last["value"], last["interval"][1]) == (1.0, 1.0)
    assert "last cell" in last["reason"]


def test_too_few_rows_end_the_search_at_once() -> None:
    servers = Servers(np.array([0.5]), scale=20.0)
    results = servers.run(SearchQuantiles(quantiles=(0.5, 0.9)))
    assert results["evaluations"] == len(servers.asked) == 1
    assert all(entry["value"] is None and entry["reason"] for entry in results["quantiles"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantiles": ()}, "quantiles: got none"),
        ({"lower": 2.0}, "range: got 2 to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SearchQuantiles(**fields)


def test_all_questions_are_about_one_total_for_one_budget() -> None:
    setting = Setting(trust=Plain(), protection=Protection(), budget=Budget(epsilon=1.0), clients=3)
    steps = SearchQuantiles(points=256).steps(setting)
    servers, seen = Servers(np.linspace(0, 1, 999), 2.0), []
    query = next(steps)
    try:
        while True:
            seen.append((query.of, query.share, query.part))
            query = steps.send(servers.answer(query))
    except StopIteration:
        pass
    assert len(set(seen)) == 1
