"""No rows move a summary further than its sensitivity says: the attack that needs no noise and no samples.

Questions and rows are those of `test_nothing_refuses`: whatever can be asked, about whatever the data layer lets pass.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "summaries"))

from test_nothing_refuses import MOST_CLASSES, WITHOUT_A_BOUND, batch, question

from batched import batched
from fedassay.audit.cases import least_norm, spread_of
from fedassay.privacy.accounting import GAUSSIAN, LAPLACE
from fedassay.protocol.vocabulary import UNBOUNDED, Batch, Neighbours, Protection, Sensitivity, Summary, Unit
from fedassay.summaries import CATALOGUE
from fedassay.summaries.score_histogram import ScoreHistogram

SOMETIMES = {"clipped-updates", "loss-curves"}
"""Those have no bound unless they are asked for one."""

BOUNDED = sorted(set(CATALOGUE) - set(WITHOUT_A_BOUND) | SOMETIMES)
SLOW = "clipped-updates"
"""A fit for every client: only among the many tries."""


def rows_in(rows: Batch) -> int:
    return len(next(iter(rows.values())))


def measured(summary: Summary[Any], rows: Batch) -> np.ndarray:
    with np.errstate(all="ignore"):
        vector, _ = summary.measure(batched(rows), {})
    return np.clip(vector, -summary.largest, summary.largest).astype(np.float64)


def parts(summary: Summary[Any], moved: np.ndarray, claimed: Sensitivity) -> tuple[float, float]:
    """How far rows have moved the draws of noise, in both norms, as parts of what is claimed."""
    spread = spread_of(summary)
    if spread is None:
        return float(np.abs(moved).sum() / claimed.l1), float(np.linalg.norm(moved) / claimed.l2)
    # Finer units are for Gaussian noise: there whole numbers that are short in L2 are long in L1.
    l1 = least_norm(spread, moved, LAPLACE) if getattr(summary, "multiplier", 1) == 1 else 0.0
    return l1 / claimed.l1, least_norm(spread, moved, GAUSSIAN) / claimed.l2


def within(summary: Summary[Any], protection: Protection, first: Batch, second: Batch) -> bool:
    claimed = summary.sensitivity(protection)
    if claimed == UNBOUNDED:
        return True
    moved = measured(summary, first) - measured(summary, second)
    return max(parts(summary, moved, claimed)) <= 1 + 1e-9


def neighbours(summary: Summary[Any], first: Batch, second: Batch) -> list[tuple[Protection, Batch, Batch]]:
    """All ways in which rows of these two clients are neighbours, with the protection for which they are."""
    n, most = rows_in(first), max(rows_in(first), rows_in(second), 1)
    nobody = {name: column[:0] for name, column in first.items()}
    whole = Protection(unit=Unit.CLIENT, rows_per_client=most)
    found = [(whole, first, nobody), (replace(whole, neighbours=Neighbours.REPLACE_ONE), first, second)]
    if n:
        found.append((Protection(), first, {name: column[1:] for name, column in first.items()}))
    if n and rows_in(second):
        kept = {"label"} if getattr(summary, "public_labels", False) else set[str]()
        other = {
            name: np.concatenate([(column if name in kept else second[name])[:1], column[1:]])
            for name, column in first.items()
        }
        found.append((Protection(neighbours=Neighbours.REPLACE_ONE), first, other))
        found.append((Protection(rows_per_client=n), first, other))
    return found


def hunt(name: str, data: st.DataObject) -> None:
    summary = data.draw(question(name))
    width = data.draw(st.integers(2, MOST_CLASSES + 1))
    width = getattr(
        summary, "features", data.draw(st.sampled_from([width, getattr(summary, "classes", width)]))
    )
    width = max(width, 2) if "logits" in summary.columns else width
    first, second = (data.draw(batch(summary.columns, width)) for _ in range(2))
    for protection, one, other in neighbours(summary, first, second):
        assert within(summary, protection, one, other), (summary, protection, one, other)


@pytest.mark.parametrize("name", [name for name in BOUNDED if name != SLOW])
@given(st.data())
@settings(max_examples=8)
def test_no_rows_move_a_summary_further_than_it_says(name: str, data: st.DataObject) -> None:
    hunt(name, data)


@pytest.mark.full
@pytest.mark.parametrize("name", BOUNDED)
@given(st.data())
@settings(max_examples=400)
def test_no_rows_do_so_in_many_tries(name: str, data: st.DataObject) -> None:
    hunt(name, data)


def test_one_level_less_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def understated(self: ScoreHistogram, protection: Protection) -> Sensitivity:
        return Sensitivity.of_counts(protection, multipliers=self.multipliers[:-1])

    tree = ScoreHistogram(transform="uniform", height=2, widths=(1, 2))
    row = {"score": np.array([0.5]), "label": np.array([1])}
    cases = neighbours(tree, row, {"score": np.array([0.1]), "label": np.array([0])})
    assert all(within(tree, *case) for case in cases)
    monkeypatch.setattr(ScoreHistogram, "sensitivity", understated)
    assert not any(within(tree, *case) for case in cases)
