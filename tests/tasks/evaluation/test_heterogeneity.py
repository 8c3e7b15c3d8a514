"""The random-effects analysis against statsmodels, and the same whether sites are seen or only summed."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import t as student
from statsmodels.stats.meta_analysis import combine_effects

import fedassay
from binormal import Population
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.estimation.heterogeneity import SiteEstimate, Spread, pooled, weighted_sums
from fedassay.protocol.metrics import compared
from fedassay.protocol.vocabulary import Budget
from fedassay.trust import TRUST_MODELS

PRIVATE = sorted(name for name, kind in TRUST_MODELS.items() if kind.private)


def federation(sites: int, *, spread: float, rows: int = 400, seed: int = 0) -> dict[str, np.ndarray]:
    """Sites whose populations differ in discrimination and in calibration."""
    rng = np.random.default_rng(seed)
    names, scores, labels = [], [], []
    for site in range(sites):
        population = Population(
            0.3, delta=1.4 + spread * rng.normal(), shift=spread * rng.normal(), stretch=1.1
        )
        s, y = population.sample(rows + 40 * site, rng)
        names.append(np.full(len(s), f"s{site:02d}"))
        scores.append(s)
        labels.append(y)
    return {"site": np.concatenate(names), "p": np.concatenate(scores), "y": np.concatenate(labels)}


def evaluated(data: Any, trust: Any = None, **options: Any) -> fedassay.Result:
    return fedassay.evaluate(
        data, client="site", score="p", label="y", per_site=True, privacy=trust or fedassay.Plain(), **options
    )


def oracle(estimates: list[SiteEstimate]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y, v = np.array(estimates).T
        return combine_effects(y, v, method_re="dl", use_t=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spread", [0.0, 0.3, 2.0])
def test_the_analysis_is_statsmodels(spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    v = rng.gamma(2, 0.05, 3 + 2 * seed) + 0.01
    y = 0.3 + spread * rng.normal(size=len(v)) + np.sqrt(v) * rng.normal(size=len(v))
    estimates = [SiteEstimate(*pair) for pair in zip(y, v, strict=True)]
    expected, k = oracle(estimates), len(v)
    fixed = weighted_sums(estimates)
    found = Spread.of(fixed)
    assert found.q == pytest.approx(expected.q, rel=1e-10)
    # statsmodels lets both fall below zero, where the moment estimator does.
    assert found.tau2 == pytest.approx(max(0.0, expected.tau2), abs=1e-12)
    assert found.i2 == pytest.approx(max(0.0, expected.i2), abs=1e-12)
    assert found.p_value == pytest.approx(expected.test_homogeneity().pvalue, abs=1e-12)
    if expected.tau2 <= 0:
        return
    entry = pooled("calibration_slope", fixed, weighted_sums(estimates, tau2=found.tau2), asked=k, level=0.95)
    assert entry["value"] == pytest.approx(expected.mean_effect_re, rel=1e-10)
    error = max(expected.sd_eff_w_re, expected.sd_eff_w_re_hksj)
    assert entry["standard_error"] == pytest.approx(error, rel=1e-10)
    half = student.ppf(0.975, k - 1) * error
    assert entry["interval"] == pytest.approx([entry["value"] - half, entry["value"] + half])
    if expected.scale_hksj_re >= 1:
        assert entry["interval"] == pytest.approx(list(expected.conf_int()[3]))
    outer = student.ppf(0.975, k - 2) * math.sqrt(found.tau2 + error**2)
    assert entry["prediction_interval"] == pytest.approx([entry["value"] - outer, entry["value"] + outer])
    assert (entry["sites"], entry["left_out"], entry["degrees_of_freedom"]) == (k, 0, k - 1)


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_a_forest_of_sites_and_its_heterogeneity(spread: float) -> None:
    """Values and standard errors of the sites in the table, put into statsmodels, give the summary."""
    data = federation(7, spread=spread)
    result = evaluated(data)
    sites = result["sites"]
    assert [site["site"] for site in sites] == [f"s{i:02d}" for i in range(7)]
    for i, site in enumerate(sites):
        assert site["rows"] == 400 + 40 * i
        mine = {name: column[data["site"] == site["site"]] for name, column in data.items()}
        alone = fedassay.evaluate(mine, client="site", score="p", label="y", privacy=fedassay.Plain())
        for metric in (*compared(), "recall", "prevalence", "hosmer_lemeshow"):
            assert site[metric] == alone[metric]
    for metric in compared():
        value = np.array([site[metric]["value"] for site in sites])
        error = np.array([site[metric]["error"]["sampling"] for site in sites])
        if metric == "roc_auc":
            value, error = logit(value), error / (value * (1 - value))
        elif metric == "observed_expected_ratio":
            value, error = np.log(value), error / value
        expected = oracle([SiteEstimate(*pair) for pair in zip(value, error**2, strict=True)])
        entry = result["heterogeneity"][metric]
        assert entry["tau2"] == pytest.approx(max(0.0, expected.tau2), rel=1e-6, abs=1e-9)
        assert entry["q"] == pytest.approx(expected.q, rel=1e-6)
        if expected.tau2 > 0:
            back = {"roc_auc": expit, "observed_expected_ratio": np.exp}.get(metric, float)
            assert entry["value"] == pytest.approx(float(back(expected.mean_effect_re)), rel=1e-6)


@pytest.mark.parametrize("sites", [3, 12])
def test_a_secure_sum_says_the_same_about_sites_that_it_hides(sites: int) -> None:
    data = federation(sites, spread=0.3, seed=sites)
    seen, hidden = evaluated(data), evaluated(data, fedassay.SecureSum())
    assert hidden["sites"] is None
    assert hidden["sites_reason"].startswith("secure-sum shows no single site")
    for metric in compared():
        first, second = seen["heterogeneity"][metric], hidden["heterogeneity"][metric]
        assert first.keys() == second.keys()
        assert first.pop("scale") == second.pop("scale")
        for name, number in first.items():
            assert second[name] == pytest.approx(number, rel=1e-9, abs=1e-12), (metric, name)
    assert hidden["roc_auc"] == seen["roc_auc"]


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=["plain", "secure-sum"])
def test_sites_with_too_few_rows_of_a_class_are_left_out_and_counted(trust: Any) -> None:
    data = federation(6, spread=0.2)
    small = np.isin(data["site"], ["s00", "s03"])
    data["y"] = np.where(small & (np.cumsum(small) > 15), 0, data["y"])
    result = evaluated(data, trust)
    for entry in result["heterogeneity"].values():
        assert (entry["sites"], entry["left_out"]) == (4, 2)
    kept = {name: column[~small] for name, column in data.items()}
    alone = evaluated(kept, trust)
    for metric, entry in alone["heterogeneity"].items():
        assert entry["value"] == pytest.approx(result["heterogeneity"][metric]["value"], rel=1e-9)
    if result["sites"] is not None:
        assert len(result["sites"]) == 6


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=["plain", "secure-sum"])
def test_with_fewer_than_three_sites_there_is_a_reason_and_nothing_is_summed(trust: Any) -> None:
    data = federation(4, spread=0.2)
    data["y"] = np.where(np.isin(data["site"], ["s00", "s01"]), 0, data["y"])
    result = evaluated(data, trust)
    for entry in result["heterogeneity"].values():
        assert entry["value"] is None
        assert entry["reason"].startswith("2 of 4 sites have an estimate, at least 3 are needed")
        assert "tau2" not in entry
    # A sum over two sites would tell each what the other has: it is never asked for.
    assert result.runtime["rounds"] == (1 if result["sites"] is not None else 2)


def test_weighted_sums_take_two_more_exchanges() -> None:
    assert evaluated(federation(4, spread=0.2), fedassay.SecureSum()).runtime["rounds"] == 6


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("options", [{}, {"by": "g"}, {"versus": "q"}])
def test_under_noise_it_is_refused_before_the_data_are_opened(name: str, options: dict[str, str]) -> None:
    paired = name == "two-server" and "versus" in options  # which two servers cannot answer in any case
    reason = (
        "encodes each row by the cell" if paired else f"per-site: under {name} no estimate of a single site"
    )
    with pytest.raises((UsageError, UnsupportedQuery), match=reason):
        fedassay.evaluate(
            Path("there is no such file.csv"),
            client="site",
            score="p",
            label="y",
            per_site=True,
            privacy=TRUST_MODELS[name](),
            budget=Budget(epsilon=1.0),
            protection=fedassay.Protection(rows_per_client=100 if name == "two-server" else None),
            **options,
        )


def test_every_row_its_own_site_is_refused_and_a_folder_is_not(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(federation(4, spread=0.2))
    with pytest.raises(UsageError, match="per_site: got no client column"):
        fedassay.evaluate(frame, score="p", label="y", per_site=True)
    for name, rows in frame.groupby("site"):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    result = fedassay.evaluate(tmp_path, score="p", label="y", per_site=True, privacy=fedassay.Plain())
    assert [site["site"] for site in result["sites"]] == ["s00", "s01", "s02", "s03"]


def test_sites_come_with_groups_and_with_a_second_model() -> None:
    data = federation(5, spread=0.2)
    rng = np.random.default_rng(1)
    data |= {"sex": rng.choice(["F", "M"], len(data["p"])), "q": rng.random(len(data["p"]))}
    alone = evaluated(data)
    for options in ({"by": "sex"}, {"versus": "q"}):
        for trust in (fedassay.Plain(), fedassay.SecureSum()):
            result = evaluated(data, trust, **options)
            assert result["roc_auc"] == alone["roc_auc"]
            for metric, entry in alone["heterogeneity"].items():
                assert result["heterogeneity"][metric]["value"] == pytest.approx(entry["value"], rel=1e-9)


def test_equal_sites_have_no_spread() -> None:
    spread = Spread.of(weighted_sums([SiteEstimate(0.5, 0.01)] * 4))
    assert (spread.q, spread.tau2, spread.i2, spread.p_value) == (0, 0, 0, 1)
