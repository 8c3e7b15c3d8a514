"""The experiments on multiclass calibration on little data: how methods are asked and judged, the whole script."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from experiments import multiclass, multiclass_runs, multiclass_sweeps, multiclass_tables
from experiments.common import data_folder
from experiments.multiclass_data import Split, load
from experiments.multiclass_runs import AUTO, BASE, FEDTEMP, WAYS, Outcome, Terms

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Sample, Sum
from fedassay.summaries.multiclass.local_fits import local_fit
from fedassay.summaries.multiclass.loss_curves import CLIENT, LossCurves
from fedassay.trust import ServerDP
from pages import assert_shows_its_figures

FIGURES = ("rounds", "epsilon", "bins", "top-label", "clips", "clients")


def made(name: str = "made", number: int = 0, *, clients: int = 8, beta: float | None = 0.1) -> Split:
    """A model of three classes whose logits are twice too large, on clients of different sizes; one has no rows."""
    rng = np.random.default_rng([number, int(1000 * (beta or 0))])
    logits = 1.5 * rng.standard_normal((400, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    clients = min(clients, 8)
    owner = np.minimum(rng.integers(clients, size=200), clients - 2)
    return Split(
        name=name,
        logits_fit=2 * logits[:200],
        labels_fit=labels[:200],
        logits_test=2 * logits[200:],
        labels_test=labels[200:],
        clients_fit=owner,
        clients=clients,
    )


# --- how methods are asked ------------------------------------------------------------------------------


def test_the_pooled_temperature_is_found_and_messages_are_counted() -> None:
    split = made()
    federation = multiclass_runs.federation_of(split)
    assert federation.client_count == 8
    source = SimulatedRandomness(1)
    way = WAYS[multiclass_runs.EXACT_TEMPERATURE]
    fit, messages = multiclass_runs.fitted(federation, 3, way, Terms(), source)
    pooled = local_fit("temperature", split.logits_fit, split.labels_fit, np.ones(1), ridge=1e-6)[0]
    assert fit.map.theta[0] == pytest.approx(1 / pooled, rel=1e-6)
    assert messages == 8 * fit.sums
    assert multiclass_runs.fitted(federation, 3, WAYS[AUTO], Terms(), source).messages == 8


def test_a_cohort_of_everybody_in_one_round_is_the_mean_of_local_temperatures() -> None:
    split = made()
    federation = multiclass_runs.federation_of(split)
    terms = Terms(rounds=1, participation=1.0)
    fit = multiclass_runs.fitted(federation, 3, WAYS[FEDTEMP], terms, SimulatedRandomness(2)).fit
    alone = [local_fit("temperature", *rows, np.ones(1))[0] for rows in split.by_client() if len(rows[1])]
    assert 1 / fit.map.theta[0] == pytest.approx(np.mean(alone), abs=1e-5)


def test_published_noise_makes_nothing_of_sampling() -> None:
    published, amplified = (Terms(epsilon=1.0, amplified=flag).setting(100) for flag in (False, True))
    curves = LossCurves(classes=3, grid=(0.5, 1.0), bound=CLIENT)
    asked = Sum(of=curves, share=1 / 12, cohort=Sample(rate=0.1))
    plan = published.trust.plan(asked, published)
    everybody = ServerDP().plan(Sum(of=curves, share=1 / 12), amplified)
    assert plan.query == asked
    assert plan.noise == everybody.noise
    assert plan.sampled == 1.0
    assert amplified.noise(asked).scale < plan.noise.scale / 5


# --- how they are judged --------------------------------------------------------------------------------


def test_errors_and_accuracy_are_those_of_the_definitions() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    found = multiclass_runs.judged(probabilities, np.array([0, 1, 1, 1]), messages=7)
    assert found.accuracy == 0.75
    # Bins of 1/15: both classes are off by 0.8 in the rows of 0.9, and by 0.2 and 0.4 elsewhere.
    assert found.classwise == pytest.approx((0.8 + 0.2 + 0.4) / 4)
    assert found.top_label == pytest.approx((0.8 + 0.2 + 0.4) / 4)
    assert found.messages == 7


def runs_of(**errors: list[float]) -> multiclass_runs.Runs:
    """Outcomes with these errors, in %; all as accurate as the model."""
    return {
        name: [Outcome(classwise=one / 100, top_label=0.0, accuracy=0.9) for one in several]
        for name, several in errors.items()
    }


def test_a_row_fails_beyond_two_standard_errors_of_the_paired_difference() -> None:
    found = runs_of(
        Base=[2.0, 3.0, 4.0], FedBBQ=[1.0, 2.0, 3.0], FedTemp=[0.1, 0.2, 0.3], auto=[1.1, 2.0, 3.1]
    )
    found["FedTemp"] = [one._replace(accuracy=0.88) for one in found["FedTemp"]]
    assert multiclass_tables.loses(found, "FedTemp")
    assert multiclass_tables.cell(found, "FedTemp") == "0.200* (0.100)"
    verdict = multiclass_tables.Verdict.of(found, ["FedBBQ", "FedTemp"])
    assert verdict.best == "FedBBQ"
    assert verdict.difference == pytest.approx(0.2 / 3)
    assert verdict.error == pytest.approx(0.1 / 3)  # three differences of 0.1, 0 and 0.1
    assert not verdict.fails
    found["auto"] = [one._replace(classwise=one.classwise + 1e-4) for one in found["auto"]]
    assert multiclass_tables.Verdict.of(found, ["FedBBQ", "FedTemp"]).fails
    line = multiclass_tables.verdicts({"made": found}, ["FedBBQ", "FedTemp"]).splitlines()[-1]
    assert "**worse**" in line


def test_skewed_clients_differ_more() -> None:
    scope = multiclass_sweeps.Scope(repeats=1, betas=(0.1,), loader=made, small="made")
    (found,) = multiclass_sweeps.differences(scope)[0.1]
    split = made()
    alone = [local_fit("temperature", *rows, np.ones(1))[0] for rows in split.by_client() if len(rows[1])]
    assert found.temperatures == pytest.approx(np.var(alone))
    assert found.errors > 0
    assert found.distance < 1


# --- the whole script -----------------------------------------------------------------------------------


@pytest.mark.full
def test_the_whole_script_on_little(tmp_path: Path) -> None:
    scope = multiclass.Scope.quick()
    sweep = replace(
        scope.sweeps,
        loader=made,
        small="made",
        large="made",
        epsilons=(1.0,),
        few_epsilons=(1.0,),
        rounds=(1, 2),
        few_rounds=(1,),
        heights=(2,),
        few_heights=(2,),
    )
    scope = replace(scope, sweeps=sweep, tables=replace(scope.tables, names=("made",)))
    multiclass.main(scope, tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {f"multiclass-{name}.svg" for name in FIGURES}
    page = (tmp_path / multiclass.PAGE).read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| made |")]
    assert len(lines) == 6  # Table 2, Table 3 twice, and who wins each
    assert "2 repetitions; 2 for curves" in page


def test_the_page_has_what_the_shipped_code_gives() -> None:
    path = data_folder() / "logits_cifar10_resnet18.npz"
    if not path.exists():
        pytest.skip(f"no data: got no file {path}, set FEDASSAY_DATA to the folder of the data sets")
    page = (multiclass.FOLDER / multiclass.PAGE).read_text(encoding="utf-8")
    line = re.search(r"\| cifar10_resnet18 \| ([0-9.]+) \([0-9.]+\) \|.*", page)
    assert line is not None
    ways = {AUTO: multiclass_tables.PLAIN_WAYS[AUTO]}
    found = multiclass_runs.outcomes(partial(load, "cifar10_resnet18"), ways, range(20))
    assert multiclass_tables.cell(found, BASE).startswith(line[1])
    assert multiclass_tables.cell(found, AUTO) in line[0]


def test_the_page_shows_what_is_there() -> None:
    assert_shows_its_figures(multiclass.FOLDER / multiclass.PAGE, "multiclass", FIGURES)
