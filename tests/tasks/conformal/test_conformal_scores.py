"""Every score, and thresholds for each class and group, against what is computed by hand from all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import fedassay
from conformal_artefacts import binary_rows, class_rows, regression_rows, rows_by_site, split

# --- scores ---------------------------------------------------------------------------------------------


def sorted_probabilities(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = softmax(z, axis=1)
    return p, (-p).argsort(axis=1).argsort(axis=1) + 1  # ranks, 1 the most probable


SCORES = {
    "absolute": ({"target": "y", "prediction": "p"}, lambda d: np.abs(d["y"] - d["p"])),
    "normalised": (
        {"target": "y", "prediction": "p", "scale": "s"},
        lambda d: np.abs(d["y"] - d["p"]) / d["s"],
    ),
    "cqr": (
        {"target": "y", "lower": "a", "upper": "b"},
        lambda d: np.maximum(d["a"] - d["y"], d["y"] - d["b"]),
    ),
    "conformity": ({"conformity": "y"}, lambda d: d["y"]),
    "binary": (
        {"label": "y", "score": "p", "conditional": "none"},
        lambda d: np.where(d["y"] == 1, 1 - d["p"], d["p"]),
    ),
}


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("name", SCORES)
def test_every_score_of_a_number(name: str, trust: Any) -> None:
    data, (columns, score) = (
        rows_by_site((binary_rows if name == "binary" else regression_rows)(600)),
        SCORES[name],
    )
    results = fedassay.conformal(data, client="site", **columns, method="pooled", privacy=trust).results
    wanted = split(score(data))
    assert results["score"]["name"] == name
    assert wanted <= results["threshold"] + 1e-12 <= wanted + results["step"] + 1e-9
    if trust.name == "plain":
        results = fedassay.conformal(data, client="site", **columns, privacy=trust).results
        ranks, k = results["pair"]
        own = [np.sort(score(data)[data["site"] == site])[ranks - 1] for site in range(6)]
        assert results["threshold"] == pytest.approx(np.sort(own)[k - 1], rel=1e-12)


@pytest.mark.parametrize("sets", ["lac", "aps", "raps"])
def test_every_score_of_classes(sets: str) -> None:
    data = rows_by_site(class_rows(600, classes=7))
    p, ranks = sorted_probabilities(data["z"])
    true = np.arange(600), data["k"]
    mass = np.take_along_axis(np.sort(p, axis=1)[:, ::-1].cumsum(axis=1), ranks - 1, axis=1) - p
    by_hand = {"lac": 1 - p, "aps": mass, "raps": mass + 0.2 * np.maximum(0, ranks - 2)}[sets][true]
    more = {"score_parameters": [0.2, 2]} if sets == "raps" else {}
    terms = {"client": "site", "label": "k", "logits": "z", "sets": sets, **more}
    results = fedassay.conformal(data, **terms, method="pooled", privacy=fedassay.Plain()).results
    assert split(by_hand) - 1e-12 <= results["threshold"] <= split(by_hand) + results["step"] + 1e-9
    assert not results["infinite"]  # the range is known, nothing is looked up
    plain = fedassay.conformal(data, **terms, privacy=fedassay.Plain())
    ell, k = plain["pair"]
    own = [np.sort(by_hand[data["site"] == site])[ell - 1] for site in range(6)]
    assert plain["threshold"] == pytest.approx(np.sort(own)[k - 1], rel=1e-12)
    assert plain.warnings == ()


# --- conditions -----------------------------------------------------------------------------------------


def modest(trust: Any) -> fedassay.Simulation:
    """Without masks: what they add up to is tested elsewhere."""
    return fedassay.Simulation(mode="auto" if trust.name == "plain" else "aggregate")


def alone(data: dict[str, Any], keep: np.ndarray, **terms: Any) -> dict[str, Any]:
    return dict(fedassay.conformal({name: column[keep] for name, column in data.items()}, **terms).results)


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("method", ["qq", "pooled"])
def test_each_group_is_as_if_there_were_no_other(method: str, trust: Any) -> None:
    data = rows_by_site(regression_rows(900), sites=5)
    terms = {
        **{"client": "site", "target": "y", "prediction": "p", "method": method, "privacy": trust},
        **{"simulation": modest(trust)},
        **({} if trust.name == "plain" and method == "qq" else {"score_range": (0, 5)}),
    }
    results = fedassay.conformal(data, conditional="group", by="sex", groups=["F", "M"], **terms).results
    assert list(results["groups"]) == ["F", "M", "other"]
    assert (results["threshold"], results["conditional"]) == (None, "group")
    for name, sex in (("F", "F"), ("M", "M"), ("other", "X")):
        single = alone(data, data["sex"] == sex, **terms)
        for key in ("threshold", "pair", "rows", "clients", "infinite", "coverage_law"):
            assert results["groups"][name][key] == single[key], key
    assert results["guarantee"]["text"].startswith("For each group: ")


CLASSES = {
    "logits": (class_rows(800, classes=3), {"label": "k", "logits": "z"}),
    "scores": (binary_rows(1500), {"label": "y", "score": "p"}),
}


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("method", ["qq", "pooled"])
@pytest.mark.parametrize("name", CLASSES)
def test_each_class_is_as_if_there_were_no_other(name: str, method: str, trust: Any) -> None:
    rows, columns = CLASSES[name]
    data, terms = (
        rows_by_site(rows, sites=4),
        {"client": "site", **columns, "method": method, "privacy": trust},
    )
    terms["simulation"] = modest(trust)
    results = fedassay.conformal(data, conditional="class", **terms).results
    assert list(results["groups"]) == ["0", "1", "2"][: 3 if name == "logits" else 2]
    for label in results["groups"]:
        single = alone(data, data[columns["label"]] == int(label), conditional="none", **terms)
        for key in ("threshold", "pair", "rows", "coverage_law"):
            assert results["groups"][label][key] == single[key], key


def test_a_rare_class_has_the_set_of_everything_and_the_others_their_own() -> None:
    data = rows_by_site(class_rows(800, classes=3), sites=4)
    rare = np.flatnonzero(data["k"] == 2)[4:]
    keep = np.setdiff1d(np.arange(800), rare)
    data = {name: column[keep] for name, column in data.items()}
    result = fedassay.conformal(
        data, client="site", label="k", logits="z", conditional="class", privacy=fedassay.Plain()
    )
    groups = result["groups"]
    assert [groups[name]["infinite"] for name in "012"] == [False, False, True]
    assert "4 rows in all" in groups["2"]["reason"]
    assert any("The sets of the class '2' hold everything" in warning for warning in result.warnings)
