"""The experiments on conformal prediction on little data: models, published algorithms, the whole script."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments import conformal, conformal_runs, conformal_sets
from experiments import conformal_data as data
from experiments import conformal_models as models
from experiments import conformal_published as published
from experiments import conformal_theory as theory
from experiments.common import data_folder
from scipy.stats import norm

from fedassay.summaries.local_quantiles import QuantileLosses
from pages import assert_shows_its_figures


def made(rows: int, seed: int, *, name: str = "made") -> data.Table:
    """One useful feature of two, and noise that grows with it."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(0, 1, (rows, 2))
    target = 3 + 2 * features[:, 0] + (0.2 + features[:, 0]) * rng.standard_normal(rows)
    return data.Table(name=name, features=features, target=target)


def made_outputs(rows: int, seed: int, classes: int = 4) -> conformal_sets.Outputs:
    """A network that knows something, whose probabilities are right."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((rows, classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return conformal_sets.Outputs(name="made", logits=logits, labels=labels)


# --- models ---------------------------------------------------------------------------------------------


def test_splits_have_the_sizes_of_the_paper_and_no_common_rows() -> None:
    table = made(1000, 0)
    table = replace(table, target=np.arange(1000.0) + 1, trained=300, calibrated=350)
    split = table.split(0)
    parts = (split.train, split.calibration, split.test)
    assert [len(part.target) for part in parts] == [300, 350, 200]
    scale = 1 / min(part.target.min() for part in parts)
    rows = np.concatenate([part.target for part in parts])
    assert len(np.unique(np.round(rows * scale, 6))) == 850
    assert np.abs(split.train.target).mean() == pytest.approx(1)
    assert split.train.features.mean(axis=0) == pytest.approx(np.zeros(2), abs=1e-12)
    assert not np.array_equal(table.split(1).train.target, split.train.target)


def test_the_synthetic_data_are_those_of_section_5_1() -> None:
    split = data.synthetic(0, rows=2000, tests=40000)
    x, y = split.test.features[:, 0], split.test.target
    assert 1 <= x.min() < 1.01 < 4.99 < x.max() <= 5
    calm = (
        np.abs(y) < 6
    )  # Poisson(1.1) has 1.3e-3 beyond; outliers are 25 standard normals, one row in a hundred
    assert np.mean(~calm) == pytest.approx(0.01 * 2 * norm.sf(6 / 25), abs=0.003)
    assert np.mean(y[calm]) == pytest.approx(np.mean(np.sin(x) ** 2 + 0.1), abs=0.02)


def test_a_quantile_forest_weighs_rows_as_brute_force_does() -> None:
    train = made(200, 1).split(0).train
    forest = models.QuantileForest.fitted(train, seed=3, leaf=5, trees=7)
    asked = made(20, 2).split(0).train.features
    order = np.argsort(train.target, kind="stable")
    target, leaves = train.target[order], forest.forest.apply(train.features[order])
    for row, (low, middle) in enumerate(zip(*forest.quantiles(asked, (0.1, 0.5)), strict=True)):
        same = leaves == forest.forest.apply(asked[row : row + 1])
        weights = (same / same.sum(axis=0)).mean(axis=1)
        assert weights.sum() == pytest.approx(1)
        for level, found in ((0.1, low), (0.5, middle)):
            assert found == target[np.searchsorted(np.cumsum(weights), level - 1e-12)]


@pytest.mark.parametrize("model", conformal_runs.MODELS)
def test_models_learn(model: str) -> None:
    split = made(1500, 4).split(0)
    seen = models.predicted(split, model, seed=0)
    low, high = seen.test.ends()
    assert (low <= high).all()
    alone = np.quantile(np.abs(split.test.target - split.test.target.mean()), 0.9)
    threshold = np.quantile(seen.calibration.scores(), 0.9)
    outcome = conformal_runs.judged(seen.test, float(threshold))
    assert 0.84 < outcome.coverage < 0.95
    assert outcome.length < 2 * alone
    inside = np.mean((low <= split.test.target) & (split.test.target <= high))
    if model == models.FOREST:
        assert inside == pytest.approx(models.BAND, abs=0.08)


# --- methods --------------------------------------------------------------------------------------------


def test_thresholds_are_those_of_the_definitions() -> None:
    rng = np.random.default_rng(5)
    columns = models.Columns(target=rng.normal(size=1000), prediction=np.zeros(1000))
    seen = models.Predicted(calibration=columns, test=columns)
    outcomes = conformal_runs.plain(seen, 10, 100)
    scores = np.sort(np.abs(columns.target).reshape(10, 100), axis=1)
    assert outcomes[conformal_runs.POOLED].threshold == np.sort(scores.ravel())[900]
    assert outcomes[conformal_runs.AVERAGE].threshold == pytest.approx(scores[:, 90].mean())
    assert outcomes[conformal_runs.PAPER].threshold == scores[:, 94].min()  # (95, 1)
    assert outcomes[conformal_runs.OURS].threshold == np.sort(scores[:, 91])[3]  # (92, 4)
    assert outcomes[conformal_runs.POOLED].coverage == 0.901
    assert outcomes[conformal_runs.POOLED].length == pytest.approx(
        2 * outcomes[conformal_runs.POOLED].threshold
    )


def test_the_published_mechanism_is_algorithm_2() -> None:
    """Against its formula, written out, and how often each candidate is chosen: 20,000 draws, five standard errors."""
    counts = np.array([2, 3, 0, 4, 1])
    n, target, epsilon = 10, 8, 1.5
    q = target / n
    weights = [max(counts[:b].sum() / q, counts[b + 1 :].sum() / (1 - q)) for b in range(5)]
    p = np.exp(-epsilon * np.array(weights) / (2 / (1 - q)))
    p /= p.sum()
    choosing = published.Published(target=target, server_rank=1, rows=n, epsilon=epsilon)
    chosen = choosing.chosen(np.tile(counts, (20_000, 1)), np.random.default_rng(0))
    shares = np.bincount(chosen, minlength=5) / 20_000
    assert np.abs(shares - p).max() < 5 * math.sqrt(0.25 / 20_000)
    wrong = published.Published(target=target, server_rank=1, rows=n, epsilon=2 * epsilon)
    shares = np.bincount(wrong.chosen(np.tile(counts, (20_000, 1)), np.random.default_rng(0)), minlength=5)
    assert np.abs(shares / 20_000 - p).max() > 5 * math.sqrt(0.25 / 20_000)


def test_our_losses_are_those_of_the_library() -> None:
    scores = np.random.default_rng(6).random(40)
    summary = QuantileLosses(
        quantity="value", rows=40, lower=0.0, upper=1.0, points=11, target=33, below=4, above=1
    )

    class Rows:
        def batches(self):  # type: ignore[no-untyped-def]
            yield {"value": scores}

    losses, _ = summary.measure(Rows(), {})
    counts = published.counts_of(scores, 1, summary.candidates)
    choosing = published.Ours(target=33, server_rank=1, rows=40, below=4.0, above=1.0)
    up_to = np.cumsum(counts, axis=1)
    assert choosing.log_weights(up_to - counts, up_to)[0] == pytest.approx(-np.asarray(losses, dtype=float))


def test_the_published_threshold_is_trivial_where_the_correction_does_not_fit() -> None:
    scores = np.random.default_rng(7).random(400)
    rng = np.random.default_rng(8)
    threshold, details = published.fedcp2(scores, 5, level=0.9, epsilon=1.0, bins=100, rng=rng)
    assert math.isinf(threshold)
    assert not details
    threshold, details = published.fedcp2(scores, 5, level=0.9, epsilon=10.0, bins=100, rng=rng)
    assert threshold <= scores.max()
    assert np.mean(scores <= threshold) >= 0.85
    assert details["target"] > 72


def test_figures_1_and_2_have_known_values() -> None:
    found = theory.moments(20, 20, 0.9)
    assert found[theory.POOLED].mean == pytest.approx(0.9 + 1 / 401)
    assert found[theory.PAPER].mean <= found[theory.OURS].mean  # argmin M
    assert found[theory.OURS].spread < found[theory.PAPER].spread
    scope = theory.Scope(private_levels=(0.9,), private_rows=(100, 200), epsilons=(1.0, 10.0), runs=100)
    both = theory.compensations(scope)
    assert (0.9, 1.0, published.PRIVATE_PUBLISHED, 100) not in both  # nothing fits
    assert 0.93 < np.mean(both[0.9, 1.0, published.PRIVATE_OURS, 200].seen) < 0.96
    ours, theirs = (
        both[0.9, 10.0, name, 200] for name in (published.PRIVATE_OURS, published.PRIVATE_PUBLISHED)
    )
    assert 0.9 < np.mean(ours.seen) < np.mean(theirs.seen)
    assert ours.aimed < theirs.aimed


# --- sets of classes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [conformal_sets.IID, conformal_sets.DIRICHLET])
def test_rows_are_dealt_and_halved(how: str) -> None:
    outputs = made_outputs(4000, 9)
    rng = np.random.default_rng(10)
    owner = conformal_sets.dealt(outputs.labels, 50, how, rng)
    fit, test = conformal_sets.halves(owner, rng)
    assert np.array_equal(np.sort(np.concatenate([fit, test])), np.arange(4000))
    difference = np.bincount(owner[fit], minlength=50) - np.bincount(owner[test], minlength=50)
    assert set(difference.tolist()) <= {0, 1}
    largest = np.array([(outputs.labels[owner == one] == 0).sum() for one in range(50)]).max()
    assert (largest > 100) == (how == conformal_sets.DIRICHLET)


def test_sets_cover_and_pooling_is_mapie() -> None:
    outputs = made_outputs(4000, 11)
    scope = conformal_sets.Scope(clients=20, splits=1)
    case = conformal_sets.case_of(outputs, conformal_sets.IID, 0, scope)
    found = {name: case.ours("lac", method, 0.9) for name, method in conformal_sets.METHODS.items()}
    for outcome in found.values():
        assert 0.87 < outcome.coverage < 0.94
        assert 1 < outcome.size < 3
        assert outcome.worst_client < outcome.coverage
        assert outcome.worst_class <= outcome.coverage
    theirs = case.mapie("lac", 0.9, 0)
    if theirs is None:
        pytest.skip("no MAPIE: got no module mapie, install it to compare with")
    assert found[conformal_sets.POOLED].coverage == pytest.approx(theirs.coverage, abs=0.005)
    assert found[conformal_sets.POOLED].size == pytest.approx(theirs.size, abs=0.02)
    ours, default = case.ours("aps", "pooled", 0.9), case.mapie("aps", 0.9, 0)
    random = case.mapie("aps", 0.9, 0, include_last_label="randomized")
    assert default is not None
    assert random is not None
    assert 0.87 < random.coverage < 0.94
    assert 0.87 < ours.coverage < 0.94
    assert default.coverage > max(random.coverage, ours.coverage)
    assert default.size > max(random.size, ours.size)


# --- the whole script -----------------------------------------------------------------------------------


@pytest.mark.full
def test_the_whole_script_on_little(tmp_path: Path) -> None:
    few = {"concrete": conformal_runs.source_of(made(1000, 12, name="concrete"))}
    sources = conformal.Sources(regression=few, outputs=[made_outputs(2000, 13)])
    scope = conformal.Scope.quick()
    scope = replace(scope, sets=replace(scope.sets, clients=10))
    seen = conformal.main(sources, scope, tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    names = ("coverage", "compensation", "synthetic", "all", "private", "concrete")
    assert drawn == {f"conformal-{name}.svg" for name in names}
    assert len(seen.plain["concrete"]) == 2 * 3 * 4
    assert all(len(outcomes) == 2 for outcomes in seen.plain["concrete"].values())
    page = (tmp_path / conformal.PAGE).read_text(encoding="utf-8")
    assert "2 splits of every regression data set" in page
    for label in (
        "| concrete | 40 × 10 | split, ridge |",
        "| concrete | 5 × 80 | ε = 1 |",
        "| made | alike | raps |",
    ):
        assert label in page


def test_real_data_are_split_and_fitted_as_in_the_page() -> None:
    path = data_folder() / "concrete.parquet"
    if not path.exists():
        pytest.skip(f"no data: got no file {path}, set FEDASSAY_DATA to the folder of the data sets")
    page = (conformal.FOLDER / conformal.PAGE).read_text(encoding="utf-8")
    table = data.load("concrete")
    assert table.features.shape == (1030, 8)
    line = re.search(r"\| concrete \| 10 × 40 \| split, ridge \| ([0-9.]+) \(([0-9.]+)\)", page)
    assert line is not None
    source = conformal_runs.source_of(table)
    seen = [conformal_runs.plain(source(models.RIDGE, number), 10, 40) for number in range(20)]
    coverages = [one[conformal_runs.POOLED].coverage for one in seen]
    assert np.mean(coverages) == pytest.approx(float(line[1]), abs=2e-3)
    assert np.std(coverages, ddof=1) == pytest.approx(float(line[2]), abs=2e-3)


def test_the_page_shows_what_is_there() -> None:
    names = ("coverage", "compensation", "synthetic", "all", "private", *data.SOURCES)
    assert_shows_its_figures(conformal.FOLDER / conformal.PAGE, "conformal", names)
