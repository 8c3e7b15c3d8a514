from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.summaries.grid import HIGHEST, TRANSFORMS, Grid

heights = st.integers(2, 12)
transforms = st.sampled_from(TRANSFORMS)
reaches = st.sampled_from([3.0, 12.0, 24.0])
unit = st.floats(0, 1)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    height = draw(heights)
    thresholds = draw(st.lists(unit, max_size=min(20, 2**height - 1), unique=True))
    return Grid(transform=draw(transforms), height=height, thresholds=tuple(thresholds), reach=draw(reaches))


def around(values: np.ndarray) -> np.ndarray:
    """The values and the doubles next to them: where a wrong comparison would show."""
    return np.clip(np.concatenate([values, np.nextafter(values, -1), np.nextafter(values, 2)]), 0, 1)


@given(grids())
def test_edges_are_sane(grid: Grid) -> None:
    edges = grid.edges
    assert len(edges) == grid.leaves + 1
    assert edges[0] == 0
    assert edges[-1] == 1
    assert np.all(np.diff(edges) >= 0)
    assert set(grid.thresholds) <= set(edges.tolist())
    if 1.0 not in grid.thresholds:
        assert np.all(np.diff(edges) > 0)


@given(grids(), st.lists(unit, max_size=30))
def test_every_score_is_in_its_leaf(grid: Grid, scores: list[float]) -> None:
    s = np.concatenate([around(grid.edges), scores, [-0.0, 5e-324, 0.5]])
    assert np.array_equal(grid.locate(s), np.searchsorted(grid.edges[1:-1], s, side="right"))


@given(grids(), st.lists(unit, max_size=30))
def test_decisions_at_thresholds_are_exact(grid: Grid, scores: list[float]) -> None:
    s = np.concatenate([around(np.array(grid.thresholds)), scores])
    leaf = grid.locate(s)
    for threshold in grid.thresholds:
        edge = int(np.argmax(grid.edges == threshold))
        assert grid.edges[edge] == threshold
        assert np.array_equal(leaf >= edge, s >= threshold)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_tallest_grid_has_distinct_edges_and_finds_its_scores(transform: str) -> None:
    grid = Grid(transform=transform, height=HIGHEST, thresholds=(0.1, 0.3))
    assert np.all(np.diff(grid.edges) > 0)
    s = around(grid.edges)
    assert np.array_equal(grid.locate(s), np.searchsorted(grid.edges[1:-1], s, side="right"))


@pytest.mark.parametrize("height", [3, 8, 15])
def test_a_mixed_grid_refines_a_uniform_one(height: int) -> None:
    coarse = Grid(transform="uniform", height=height - 1).edges
    assert set(coarse) <= set(Grid(transform="mixed", height=height).edges)


def test_logit_edges_are_equally_spaced_in_logit() -> None:
    edges = Grid(transform="logit", height=8).edges[1:-1]
    steps = np.diff(np.log(edges / (1 - edges)))
    assert np.allclose(steps, 48 / 256, rtol=1e-3)


def test_competing_thresholds_take_neighbouring_edges() -> None:
    grid = Grid(transform="uniform", height=3, thresholds=(0.49, 0.5, 0.51, 0.52))
    assert grid.edges.tolist() == [0, 0.125, 0.25, 0.375, 0.49, 0.5, 0.51, 0.52, 1]
    crowded = Grid(transform="uniform", height=2, thresholds=(0.97, 0.98, 0.99))
    assert crowded.edges.tolist() == [0, 0.97, 0.98, 0.99, 1]


def test_threshold_one_separates_the_scores_that_equal_one() -> None:
    grid = Grid(transform="uniform", height=4, thresholds=(1.0,))
    assert grid.locate(np.array([1.0, np.nextafter(1, 0)])).tolist() == [15, 14]
    assert grid.edges[15:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"transform": "log"}, "transform: got 'log', expected one of uniform, logit, mixed"),
        ({"height": 1}, "height: got 1"),
        ({"height": 19}, "height: got 19"),
        ({"height": 2.0}, "height: got 2.0"),
        ({"thresholds": (1.5,)}, r"thresholds: got \[1.5\], expected numbers in"),
        ({"thresholds": (float("nan"),)}, "thresholds: got"),
        ({"height": 2, "thresholds": (0.1, 0.2, 0.3, 0.4)}, "expected at most 3 for 4 bins; give a larger"),
        ({"reach": 40.0}, "reach: got 40.0"),
    ],
)
def test_bad_grids_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Grid(**wrong)  # type: ignore[arg-type]
