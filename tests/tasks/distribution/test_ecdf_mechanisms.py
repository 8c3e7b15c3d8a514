"""Which mechanism is chosen, and what it is worth: exact mean variances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from drawn_values import PLAIN, leaves, server, setting_of
from fedassay.errors import UnsupportedQuery
from fedassay.estimation.least_squares import LeastSquares, mean_prefix_variance
from fedassay.estimation.tree import Tree
from fedassay.protocol.vocabulary import Neighbours, Plan, Query, Setting, Sum
from fedassay.summaries.distribution.path import ValuePath, steepest
from fedassay.summaries.distribution.roots import ValueRoots, column_norms
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.tasks.distribution.mechanisms import best_path, best_tree, chosen, mean_variance, name_of
from fedassay.tasks.evaluation.accuracy import slopes
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.server_dp import ServerDP

BOTH = list(Neighbours)


def variance(mechanism: str, points: int, setting: Setting) -> float:
    summary = chosen(leaves(points), setting, mechanism=mechanism)
    return mean_variance(summary, setting.noise(Sum(of=summary)))


def test_a_tree_has_a_sixth_of_the_variance_of_paths_for_a_pure_epsilon() -> None:
    setting = server(1.0)
    tree, path = (variance(mechanism, 1024, setting) for mechanism in ("tree", "path"))
    assert tree <= 0.17 * path
    assert path == pytest.approx(792, rel=0.01)
    assert tree == pytest.approx(121, rel=0.01)
    fit = LeastSquares(tree=Tree(leaves=1024, widths=(1, 16, 256)), variances=(18.0,) * 3)
    assert mean_prefix_variance(fit) == pytest.approx(tree, rel=0.02)


@pytest.mark.parametrize("neighbours", BOTH)
def test_the_square_root_halves_the_variance_of_paths_under_gaussian_noise(neighbours: Neighbours) -> None:
    setting = server(0.5, 1e-6, neighbours=neighbours)
    for mechanism in ("path", "factorised"):
        summary = chosen(leaves(1024), setting, mechanism=mechanism)
        assert setting.noise(Sum(of=summary)).law == "discrete-gaussian"
    path, roots = (variance(mechanism, 1024, setting) for mechanism in ("path", "factorised"))
    assert roots <= 0.5 * path


def test_the_variance_of_paths_is_that_of_their_exact_sensitivity() -> None:
    """What `factorised` is compared with is not a strawman: |w|² is 1.79, as if draws were not whole numbers."""
    setting = server(0.5, 1e-6)
    path = best_path(leaves(1024), setting)
    noise = setting.noise(Sum(of=path))
    roots = ValueRoots(lower=0, upper=1, points=1024)
    own = setting.noise(Sum(of=roots))
    unit = own.variance / column_norms(1024, roots.scale)[1]  # σ² of a sensitivity of one
    assert steepest(10) == pytest.approx(1.79, abs=0.01)
    assert mean_variance(path, noise) / unit == pytest.approx(11 * steepest(10), rel=0.01)
    assert mean_variance(roots, own) / unit == pytest.approx(9.67, rel=0.01)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_unequal_multipliers_would_not_help(delta: float) -> None:
    setting = server(0.1, delta)
    best = best_tree(leaves(1024), setting)
    least = mean_variance(best, setting.noise(Sum(of=best)))
    for multipliers in slopes(len(best.widths)):
        if set(multipliers) != {1}:
            other = leaves(1024, widths=best.widths, multipliers=multipliers)
            assert mean_variance(other, setting.noise(Sum(of=other))) > least


@pytest.mark.parametrize("neighbours", BOTH)
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_auto_is_never_worse_than_any(epsilon: float, delta: float, neighbours: Neighbours) -> None:
    setting = server(epsilon, delta, neighbours=neighbours)
    for points in (2, 64, 4096):
        least = min(variance(mechanism, points, setting) for mechanism in ("tree", "path", "factorised"))
        assert variance("auto", points, setting) == pytest.approx(least, rel=1e-9), points


def test_without_noise_leaves_are_counted() -> None:
    for mechanism in ("auto", "path", "factorised"):
        summary = chosen(leaves(64), PLAIN, mechanism=mechanism)
        assert summary == leaves(64)
        assert name_of(summary, PLAIN.noise(Sum(of=summary))) == "none"


def test_clients_that_report_on_one_level_get_a_tree() -> None:
    setting = setting_of(LocalDP(), 1.0, 1e-6, clients=1000, rows_per_client=1)
    summary = chosen(leaves(1024), setting, mechanism="auto")
    assert isinstance(summary, ValueTree)
    assert setting.noise(Sum(of=summary)).law == "unary"
    assert isinstance(chosen(leaves(1024), setting, mechanism="path"), ValuePath)


@dataclass(frozen=True, kw_only=True)
class OnlyCounts(ServerDP):
    """A trust model that cannot answer everything."""

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        if not isinstance(query.of, ValueTree):
            raise UnsupportedQuery("only counts")
        return super().plan(query, setting)


def test_what_a_trust_model_cannot_answer_is_not_chosen() -> None:
    setting = setting_of(OnlyCounts(), 0.05, 1e-3)
    assert isinstance(chosen(leaves(4096), server(0.05, 1e-3), mechanism="auto"), ValueRoots)
    assert isinstance(chosen(leaves(4096), setting, mechanism="auto"), ValueTree)
    # What was asked for by name is asked for, and refused by the trust model with its reason.
    with pytest.raises(UnsupportedQuery, match="only counts"):
        setting.noise(Sum(of=chosen(leaves(4096), setting, mechanism="path")))


def test_the_multiplier_of_paths_leaves_room_for_many_clients() -> None:
    few, many = (setting_of(ServerDP(), 0.5, 1e-6, clients=clients) for clients in (10, 10**6))
    assert best_path(leaves(1024), few).multiplier == 1 << 14
    other = best_path(leaves(1024), many)
    assert 1 < other.multiplier < 1 << 14
    assert many.noise(Sum(of=other)).variance > 0
    assert best_path(leaves(1024), server(0.5)).multiplier == 1


def test_half_a_million_trees_are_compared_with_one_plan_for_each_number_of_levels() -> None:
    planned = []

    class Counted(ServerDP):
        def plan(self, query: Query[Any], setting: Setting) -> Plan:
            planned.append(query)
            return super().plan(query, setting)

    setting = setting_of(Counted(), 1.0)
    assert best_tree(leaves(1 << 20), setting) == best_tree(leaves(1 << 20), server(1.0))
    assert 20 <= len(planned) <= 2 * 20
