"""Disclosure profiles: what is hidden, that parts of one summary cannot be subtracted, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.privacy.policy.disclosure import PROFILES, Disclosure
from fedassay.protocol.vocabulary import Collect, Select, Sum, Summary
from fedassay.summaries import CATALOGUE
from fedassay.summaries.coverage_counts import CoverageCounts
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.summaries.grouped_histogram import GroupedHistogram, fingerprints
from fedassay.summaries.score_histogram import PairedHistograms, ScoreHistogram, VersusHistogram

PROFILE = PROFILES["minimum-5"]
COUNTS: list[Summary[Any]] = [
    ScoreHistogram(transform="uniform", height=3, widths=(1, 2, 4)),
    VersusHistogram(transform="uniform", height=3, widths=(1, 4)),
    GroupedHistogram(groups=("F", "M"), transform="uniform", height=2, widths=(1, 2)),
    ValueTree(lower=0, upper=1, points=8, widths=(1, 2)),
    ValueTree(lower=0, upper=1, points=8, labelled=True),
    CoverageCounts(quantity="conformity", thresholds=(0.03,)),
]


class Some:
    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(count)
        score = rng.random(count)
        self.columns = {
            "score": score,
            "versus": score[::-1],
            "value": score,
            "conformity": score,
            "label": rng.integers(0, 2, count),
            "group": fingerprints(["FM?"[i] for i in rng.integers(0, 3, count)]),
        }

    def batches(self) -> Any:
        yield self.columns


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("minimum-5", [0, 0, 0, 5, 6, 7, 8, 10, 11, 12, 13]),
        ("minimum-11", [0, 0, 0, 0, 0, 0, 0, 0, 11, 12, 13]),
        ("redact-7-round-5", [0, 0, 0, 0, 0, 0, 10, 10, 10, 10, 15]),
    ],
)
def test_what_each_profile_shows(name: str, shown: list[int]) -> None:
    counts = np.array([0, 1, 4, 5, 6, 7, 8, 10, 11, 12, 13])
    before = counts.copy()
    assert PROFILES[name].protect(counts).tolist() == shown
    assert counts.tolist() == before.tolist()


@given(st.lists(st.integers(0, 2**40), max_size=20), st.sampled_from(list(PROFILES)))
def test_no_shown_count_is_small_and_rounding_moves_none_far(counts: list[int], name: str) -> None:
    profile = PROFILES[name]
    shown = profile.protect(np.array(counts, dtype=np.int64))
    for count, seen in zip(counts, shown.tolist(), strict=True):
        assert seen == 0 if count < profile.least else abs(seen - count) <= profile.multiple // 2
        assert seen % profile.multiple == 0


def test_every_summary_that_can_be_published_under_a_profile_is_tried_here() -> None:
    has_cells = {kind for kind in CATALOGUE.values() if kind.partitions is not Summary.partitions}
    assert has_cells == {type(summary) for summary in COUNTS}


@pytest.mark.parametrize("summary", COUNTS, ids=lambda one: one.name)
@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda one: one.name)
def test_everything_shown_is_made_from_protected_finest_cells(summary: Any, profile: Disclosure) -> None:
    rows = Some(60)
    exact, _ = summary.measure(rows, {})
    finest = exact[summary.partitions[0]]
    assert summary.from_leaves(finest).tolist() == exact.tolist()  # what `publish` rests on
    expected = summary.from_leaves(profile.protect(finest)).tolist()
    assert profile.measure(summary, rows, {})[0].tolist() == expected
    assert profile.publish(Sum(of=summary), exact).tolist() == expected
    assert expected != exact.tolist()


def test_a_path_is_protected_at_the_client_and_refused_where_only_its_total_is_there() -> None:
    path = ValuePath(lower=0, upper=1, points=8)
    counts = ValueTree(lower=0, upper=1, points=8)
    shown, _ = PROFILE.measure(path, Some(30), {})
    assert shown.tolist() == path.from_leaves(PROFILE.measure(counts, Some(30), {})[0]).tolist()
    with pytest.raises(UnsupportedQuery, match="value-path: it is not made of counts of rows"):
        PROFILE.require_published(Sum(of=path))


def test_what_is_not_counts_is_refused() -> None:
    pairs = PairedHistograms(transform="uniform", height=3)
    with pytest.raises(UnsupportedQuery, match="paired-histograms: it is not made of counts"):
        PROFILE.measure(pairs, Some(5), {})
    for query in (Sum(of=pairs), Select(of=COUNTS[0])):
        with pytest.raises(UnsupportedQuery, match="minimum-5 cannot protect it"):
            PROFILE.require_published(query)
    PROFILE.require_published(Collect(of=COUNTS[0]))


def test_a_profile_that_means_nothing_is_refused() -> None:
    for wrong in ({"least": 0}, {"least": 5, "multiple": 0}):
        with pytest.raises(UsageError, match="at least 1"):
            Disclosure(name="mine", **wrong)
