"""The experiments on online inference on little: what is simulated is what is shipped, and the whole script."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments import inference, inference_published, inference_real, inference_tables
from experiments import inference_simulation as simulation
from experiments.inference_simulation import Case, Federations, Found, Plan, Within

from fedassay.summaries.regression.local_work import LocalSteps, local_work
from fedassay.summaries.regression.losses import Design, loss_of
from fedassay.summaries.regression.rounds import SpreadSums
from fedassay.tasks.inference.online import CORRECTED_SEPARATED, SEPARATED, Course, _separated
from fedassay.tasks.inference.path import StepSizes
from pages import assert_shows_its_figures

FIGURES = ("convergence", "intervals")


# --- what is simulated ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_the_optimum_is_where_the_mean_gradient_vanishes(model: str) -> None:
    rng = np.random.default_rng(1)
    of = Federations.draw(Case(model=model, features=2, clients=4), 3, rng)
    x = rng.standard_normal((400_000, 2))
    loss = loss_of(model)
    for parameters, optimum in zip(of.parameters, of.optimum, strict=True):
        # The gradient is linear in y: its mean is that with the mean of y, of all clients, in its place.
        u = x @ parameters.T
        y = (u if model == "linear" else 1 / (1 + np.exp(-u))).mean(axis=1)
        gradients = loss.gradients(optimum, Design.of(x, y))
        errors = gradients.std(axis=0) / np.sqrt(len(x))
        assert (np.abs(gradients.mean(axis=0)) < 4.5 * errors + 1e-12).all()


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_steps_of_one_row_are_those_that_are_shipped(model: str) -> None:
    rng = np.random.default_rng(2)
    rows = Design.of(rng.standard_normal((4, 3, 1, 2)), rng.integers(2, size=(4, 3, 1)))
    dealt = LocalSteps(rows=rows, weight=np.ones((4, 3, 1)))
    theta = rng.standard_normal((4, 2))
    for local in ("corrected", "fixed", "published"):
        ours = local_work(simulation.ONE_ROW[model], theta, dealt, step=0.3, local=local)
        theirs = local_work(loss_of(model), theta, dealt, step=0.3, local=local)
        for name in ("gradient", "hessian", "drift", "steps"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12, atol=1e-14)


def test_visits_of_different_lengths_go_to_their_clients() -> None:
    """Rows without noise, of clients with the parameters of their place: only there the gradient is zero."""
    case = Case(features=2, clients=3, steps=(1, 2, 3), local="fixed", part=2 / 3)
    of = Federations(
        case=case, parameters=np.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]), steps=np.array([[3, 1, 2]])
    )
    who = np.array([[2, 0]])
    work, first = of.visits(np.array([[5.0, 6.0]]), who, 0.1, np.random.default_rng(3))
    assert work.steps.tolist() == [[2, 3]]
    noise, far = np.linalg.norm(first[0], axis=1)
    assert far > noise


def test_the_separated_spread_is_the_shipped_one() -> None:
    rng = np.random.default_rng(4)
    case = Case(part=0.5, clients=4, features=2, steps=(1, 3))
    of = Federations.draw(case, 2, rng)
    within = Within.empty(2, 4, 2)
    for _ in range(6):
        within.add(of.who(rng), rng.standard_normal((2, 2, 2)))
    mean = within.gradient / within.taken[..., None]
    between = mean[..., :, None] * mean[..., None, :]
    spread = within.outer / within.taken[..., None, None] - between
    for method, corrected in ((SEPARATED, False), (CORRECTED_SEPARATED, True)):
        course = Course(
            model="linear",
            rounds=6,
            participation=0.5,
            intervals=method,
            sizes=StepSizes(first=1.0, decay=0.6),
        )
        sums = SpreadSums(
            within=(spread[0] / of.steps[0, :, None, None]).sum(axis=0),
            between=between[0].sum(axis=0),
            clients=4,
        )
        np.testing.assert_allclose(
            within.spread(of, corrected=corrected)[0], _separated(sums, course, 4), rtol=1e-12
        )


def test_the_error_of_coverage_is_that_of_replications() -> None:
    """Ten replications whose five coefficients all cover or all miss know as much as ten intervals, not fifty."""
    error = np.repeat([0.0, 2.0], [9, 1])[:, None] * np.ones(5)
    found = Found(error=error, radius=np.ones((10, 5)), told=np.ones(10, dtype=np.bool_))
    assert found.coverage == 0.9
    assert found.deviation == pytest.approx(0.1)
    assert found.distance == pytest.approx(0.2 * np.sqrt(5))


def test_what_was_simulated_is_kept(tmp_path: Path) -> None:
    plan = Plan(replications=3, snapshots=(6, 8), folder=tmp_path)
    case = Case(clients=2)
    first = plan.runs(case)
    (file,) = tmp_path.glob("*.npz")
    written = file.stat().st_mtime_ns
    again = plan.runs(case)
    assert file.stat().st_mtime_ns == written
    assert first.keys() == again.keys()
    for key, found in first.items():
        np.testing.assert_array_equal(found.error, again[key].error)
        np.testing.assert_array_equal(found.radius, again[key].radius)
    other = replace(plan, folder=None, seed=9).runs(case)
    assert (other[simulation.ROUND, 8].error != first[simulation.ROUND, 8].error).all()


# --- how it is judged -----------------------------------------------------------------------------------


def covering(hits: int, of: int = 1000) -> Found:
    error = np.repeat([0.0, 2.0], [hits, of - hits])[:, None]
    return Found(error=error, radius=np.ones((of, 1)), told=np.ones(of, dtype=np.bool_))


def test_cells_are_marked_beyond_what_chance_does() -> None:
    grid = inference_tables.Grid()
    assert grid.cells == 72
    assert grid.limits == pytest.approx((2.576, 3.392), abs=2e-3)
    assert [inference_tables.mark(covering(hits), grid) for hits in (950, 966, 928, 915)] == [
        *("", "\\*", "\\*", "\\*\\*"),
    ]
    assert inference_tables.coverage_cell(covering(950)) == "0.950 (7)"


def test_the_verdict_lists_what_is_outside() -> None:
    grid = inference_tables.Grid(parts=(0.5,), steps=((1, 2),), rounds=(10, 20), stated=20)
    found = {
        case: {
            (simulation.ROUND, 10): covering(700),
            (simulation.ROUND, 20): covering(800 if case.alike else 950),
        }
        for case in grid.cases
    }
    text = inference_tables.verdict(found, grid)
    assert text.startswith("4 cells with T ≥ 20")
    assert "0.800 to 0.950, on average 0.8750" in text
    assert [line for line in text.splitlines() if line.startswith("* ")] == [
        f"* {model}, alike, 1..2, 0.5, T = 20: 0.8000 (-11.9 s.e.)" for model in ("linear", "logistic")
    ]


# --- the whole script -----------------------------------------------------------------------------------


def made_study(model: str, name: str) -> inference_real.Study:
    """Six clients, two features."""

    def load() -> inference_real.Frame:
        rng = np.random.default_rng(5)
        x = rng.standard_normal((240, 2))
        u = x @ [0.5, -1.0] + rng.logistic(size=240)
        y = u if model == "linear" else (u > 0).astype(np.int64)
        return {"a": x[:, 0], "b": x[:, 1], "y": y, "client": np.repeat(np.arange(6), 40).astype(str)}

    return inference_real.Study(
        name=name,
        model=model,
        features=("a", "b"),
        target="y",
        rounds=12,
        step=0.3,
        local_steps=2,
        lags=4 if model == "linear" else 0,
        printed={"a": (0.5, (0.4, 0.6), (0.3, 0.7)), "b": (-1.0, (-1.1, -0.9), (-1.2, -0.8))},
        load=load,
    )


@pytest.mark.full
def test_the_whole_script_on_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference_real, "absent", lambda study: "")
    scope = replace(
        inference.Scope.quick(), studies=(made_study("linear", "made 5"), made_study("logistic", "made 6"))
    )
    inference.main(scope, tmp_path)
    assert {path.name for path in tmp_path.glob("*.svg")} == {f"inference-{name}.svg" for name in FIGURES}
    page = (tmp_path / inference.PAGE).read_text(encoding="utf-8")
    assert page.count("| coverage | 0.5 | published method |") == 4
    newton = re.findall(r"\| newton \| (.*) \|", page)
    pooled = re.findall(r"\| statsmodels, HC\d \| (.*) \|", page)
    assert len(newton) == 2
    assert newton == pooled  # both to four digits
    assert "differ by at most 0.0e+00" in page
    assert "5 replications." in page


def test_without_data_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path))
    assert inference_real.table(inference_real.SKIN).startswith("Not measured: no data: got no file")


def test_the_clients_of_both_studies_are_as_stated() -> None:
    reason = inference_real.absent(inference_real.TETOUAN) or inference_real.absent(inference_real.SKIN)
    if reason:
        pytest.skip(reason)
    assert sum(inference_real.SIZES) == 245_057
    hours = np.bincount(inference_real.tetouan()["client"].astype(int)) / 2184
    assert hours.tolist() == [2, 3, 1, 4, 2, 2, 3, 1, 2, 4]
    frame = inference_real.skin()
    assert frame["y"].mean() == pytest.approx(194_198 / 245_057)


def test_the_page_shows_what_is_there() -> None:
    assert_shows_its_figures(inference.FOLDER / inference.PAGE, "inference", FIGURES)
    assert inference.Scope().parts == inference_published.PARTS
