"""How sets do on rows that were kept apart: the same numbers as whoever has all rows computes, and honest intervals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import fedassay
from conformal_artefacts import binary_rows, class_rows, regression_rows, rows_by_site
from fedassay.data.federation import load
from fedassay.data.selection import select_pooled_part
from fedassay.estimation.coverage.law import split_rank
from fedassay.protocol.vocabulary import NO_NOISE, Noise, Part, Unit
from fedassay.summaries.coverage_counts import CoverageOf
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.held_out_judge import _Judged

SITES = 6
REGRESSION = {
    "absolute": {"target": "y", "prediction": "p"},
    "normalised": {"target": "y", "prediction": "p", "scale": "s"},
    "cqr": {"target": "y", "lower": "a", "upper": "b"},
    "conformity": {"conformity": "y"},
}


def judged(data: dict[str, Any], **terms: Any) -> fedassay.Result:
    simulation = fedassay.Simulation(seed=terms.pop("seed", 1), mode=terms.pop("mode", "auto"))
    options = {"client": "site", "holdout": 0.4, "privacy": fedassay.Plain(), **terms}
    result = fedassay.conformal(data, simulation=simulation, **options)
    json.dumps(dict(result.results), allow_nan=False)
    return result


def found_in(result: fedassay.Result) -> dict[str, Any]:
    """What the comparison, which has all rows in one place, says about the threshold that was found."""
    (entry,) = [one for one in result["comparison"] if one["found"]]
    return dict(entry)


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("name", REGRESSION)
def test_intervals_by_counting(name: str, trust: Any) -> None:
    result = judged(
        rows_by_site(regression_rows(900)),
        **REGRESSION[name],
        privacy=trust,
        score_range=(-9, 9),
        mode=mode_of(trust),
    )
    held, direct = result["held_out"], found_in(result)
    assert held["coverage"]["value"] == pytest.approx(direct["coverage"])
    if name == "conformity":
        assert held["mean_size"]["value"] is None
    else:
        assert held["mean_size"]["value"] == pytest.approx(direct["mean_size"])


def mode_of(trust: Any) -> str:
    return "aggregate" if trust.name == "secure-sum" else "auto"


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("sets", ["lac", "aps", "raps", "binary"])
def test_sets_by_counting(sets: str, trust: Any) -> None:
    data, terms = rows_by_site(class_rows(900, classes=5)), {"label": "k", "logits": "z", "sets": sets}
    if sets == "binary":
        data, terms = rows_by_site(binary_rows(1500)), {"label": "y", "score": "p", "conditional": "none"}
    result = judged(data, **terms, privacy=trust, mode=mode_of(trust))
    held, direct = result["held_out"], found_in(result)
    assert held["coverage"]["value"] == pytest.approx(direct["coverage"])
    assert held["mean_size"]["value"] == pytest.approx(direct["mean_size"])
    counts = np.array(held["size_counts"])
    assert counts.sum() == held["rows"]
    assert counts @ np.arange(len(counts)) / counts.sum() == pytest.approx(direct["mean_size"])


def test_sites_and_groups_add_up_to_all() -> None:
    data = rows_by_site(regression_rows(900))
    plain = judged(data, target="y", prediction="p")["held_out"]
    assert [one["site"] for one in plain["sites"]] == [str(site) for site in range(SITES)]
    assert sum(one["rows"] for one in plain["sites"]) == plain["rows"]
    covered = sum(one["rows"] * one["coverage"]["value"] for one in plain["sites"])
    assert covered == pytest.approx(plain["rows"] * plain["coverage"]["value"])
    terms = {"conditional": "group", "by": "sex", "groups": ["F", "M"]}
    by = judged(data, target="y", prediction="p", **terms)["held_out"]
    assert sum(one["rows"] for one in by["groups"].values()) == by["rows"] == plain["rows"]
    covered = sum(one["rows"] * one["coverage"]["value"] for one in by["groups"].values())
    assert covered == pytest.approx(by["rows"] * by["coverage"]["value"])


def test_a_set_of_everything_covers_everything_and_has_no_size() -> None:
    data = rows_by_site(regression_rows(300))
    for columns in (REGRESSION["absolute"], REGRESSION["cqr"]):
        result = judged(data, **columns, method="pooled", score_range=(-1, 0.01), bins=4)
        assert result["infinite"]
        assert result["held_out"]["coverage"]["value"] == 1.0
        assert result["held_out"]["mean_size"]["value"] is None
        assert "everything" in result["held_out"]["mean_size"]["reason"]
        assert result["heterogeneity"] is None


def test_no_rows_are_held_out_by_chance() -> None:
    data = rows_by_site(regression_rows(30))
    for seed in range(5):
        result = judged(data, target="y", prediction="p", holdout=1e-9, level=0.5, seed=seed)
        held = result["held_out"]
        assert held["rows"] == 0
        assert held["coverage"]["value"] is None
        assert "no held-out rows" in held["coverage"]["reason"]


# --- under noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "more"),
    [
        (fedassay.ServerDP(), {"epsilon": 0.5}),
        (fedassay.DistributedDP(), {"epsilon": 0.5}),
        (fedassay.LocalDP(), {"epsilon": 1.0, "one": True}),
        (fedassay.LocalDP(), {"epsilon": 4.0, "one": True}),
    ],
    ids=["server-dp", "distributed-dp", "unary, much noise", "unary, little"],
)
def test_intervals_under_noise_hold_the_true_coverage(trust: Any, more: dict[str, Any]) -> None:
    """95 % intervals hold in at least 90 % of 60 runs but with probability 1e-3; half as wide ones do not."""
    hits, narrow, runs = 0, 0, 60
    one = more.get("one", False)
    protection = fedassay.Protection(unit="client", rows_per_client=1) if one else None
    for seed in range(runs):
        scores = np.random.default_rng(seed).exponential(size=2400)
        data = {"s": scores, "site": np.arange(2400) % 40}
        result = judged(
            data,
            client=None if one else "site",
            conformity="s",
            score_range=(0, 12),
            bins=16,
            privacy=trust,
            budget=fedassay.Budget(epsilon=more["epsilon"]),
            protection=protection,
            seed=seed,
            mode="aggregate",
        )
        metric = result["held_out"]["coverage"]
        truth = 1.0 if result["infinite"] else 1 - np.exp(-result["threshold"])
        low, high = metric["interval"]
        middle = min(1.0, metric["value"])
        hits += low <= truth <= high
        narrow += abs(truth - middle) <= (high - low) / 8
    allowed = binom.ppf(1e-3, runs, 0.95)
    assert hits >= allowed
    assert narrow < allowed


def test_randomised_bits_of_ones_own_cell_count() -> None:
    """Each row's own bit adds a variance of one to its cell: as much as sampling does."""
    counts = CoverageOf(covered_by_size=np.array([900.0]), missed_by_size=np.array([100.0]))
    noise, found = Noise(law="unary", scale=0.25, variance=50.0, reporting=(1.0,)), {}
    for name, law in (("none", NO_NOISE), ("unary", noise)):
        judged = _Judged(task=Conformal(), thresholds={"all": 1.0}, noise=law)
        found[name] = judged._coverage(counts, parts=1, level=0.95).to_json()
    sampling = np.sqrt(0.09 / 1000)
    assert found["none"]["error"]["sampling"] == pytest.approx(sampling)
    assert found["none"]["error"]["privacy"] == 0
    assert found["unary"]["error"]["privacy"] == pytest.approx(np.sqrt(0.09 / 1000 + 50 * 0.82 / 1000**2))


# --- beside other methods -------------------------------------------------------------------------------


def test_the_comparison_is_what_each_method_would_have_done() -> None:
    data = rows_by_site(regression_rows(900))
    by_name = {
        one["method"]: one for one in judged(data, target="y", prediction="p", method="qq")["comparison"]
    }
    assert list(by_name) == ["qq", "pooled", "average", "local"]
    for method in ("average", "pooled"):
        alone = judged(data, target="y", prediction="p", method=method, score_range=(0, 5))
        step = 5 / ((1 << 14) - 1) if method == "pooled" else 0.0
        assert by_name[method]["threshold"] <= alone["threshold"] + 1e-12
        assert alone["threshold"] <= by_name[method]["threshold"] + step + 1e-12
        assert by_name[method]["coverage"] == pytest.approx(alone["held_out"]["coverage"]["value"], abs=0.01)
    assert by_name["local"]["threshold"] is None
    local = judged(data, target="y", prediction="p", method="local")
    assert local["held_out"] is None
    assert [one["method"] for one in local["comparison"]] == ["pooled", "average", "local"]


def test_clients_of_one_row_are_held_out_whole_as_in_the_run() -> None:
    """Under local-dp the unit becomes the client where each has one row: the comparison must split by clients too."""
    scores = np.random.default_rng(9).exponential(size=2000)
    simulation = fedassay.Simulation(seed=5, holdout=0.4)
    result = fedassay.conformal(
        {"s": scores},
        conformity="s",
        score_range=(0, 12),
        holdout=0.4,
        privacy=fedassay.LocalDP(),
        budget=fedassay.Budget(epsilon=8.0),
        simulation=simulation,
    )
    federation = load({"s": scores}, client=None, columns={"conformity": "s"})
    rows = select_pooled_part(
        federation, Part.FIT, key=simulation.key_of_split(), unit=Unit.CLIENT, holdout=0.4
    )
    fit = np.sort(np.concatenate([batch["conformity"] for batch in rows.batches()]))
    (pooled,) = [one for one in result["comparison"] if one["method"] == "pooled" and not one["found"]]
    assert pooled["threshold"] == fit[split_rank(len(fit), 0.9) - 1]
