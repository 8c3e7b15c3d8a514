"""Where rounds have not arrived there are values and a reason, and neither errors nor p-values nor intervals."""

from __future__ import annotations

import io
import json
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest
from rich.console import Console

import fedassay
from fedassay.documents.page import page
from fedassay.documents.report import key_numbers, unknown
from fedassay.documents.terminal import render
from fedassay.errors import DataError
from fedassay.tasks.inference.document import CoefficientsDisplay
from fedassay.tasks.inference.online import distance

SCHEMA = json.loads((files("fedassay.documents") / "result.schema.json").read_text(encoding="utf-8"))
ROWS = 6000
NOTHING = ("standard_error", "statistic", "p_value", "interval")


def opposed() -> dict[str, Any]:
    """Two features that go together, with effects of opposite signs: on its way the path has the wrong one for z."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=ROWS)
    z = x + 0.5 * rng.normal(size=ROWS)
    return {
        "site": np.arange(ROWS) % 6,
        "x": x,
        "z": z,
        "y": (3 * x - 0.7 * z + rng.logistic(size=ROWS) > 0).astype(int),
    }


def infer(data: dict[str, Any], *, model: str = "logistic", **options: Any) -> fedassay.Result:
    return fedassay.infer(
        data,
        client="site",
        target="y",
        model=model,
        privacy=fedassay.Plain(),
        simulation=fedassay.Simulation(seed=1, mode="aggregate"),
        **{"features": ["x", "z"], **options},
    )


PUBLISHED = ("separated-plug-in", "separated-plug-in-corrected", "random-scaling")


@pytest.mark.parametrize("method", PUBLISHED)
def test_a_mean_of_iterates_that_is_on_its_way_has_no_intervals(method: str) -> None:
    """The coefficient of z is -0.66; half way it was 0.5, with a p-value of 1e-14."""
    result = infer(opposed(), method=method, rounds=200, contrasts=["x - z"])
    z = result["coefficients"][2]
    assert z["value"] > 0.3
    for entry in (*result["coefficients"], *result["contrasts"]):
        assert [entry[name] for name in NOTHING] == [None] * 4
        assert "have not arrived" in entry["reason"]
        assert "round-plug-in" in entry["reason"]
    assert result["covariance"] is None
    assert result["path"] == []
    assert result["fit"]["converged"] is False
    assert result["notes"][0].lower() == f"{z['reason']}.".lower()
    assert result["fit"]["reason"] == z["reason"]
    jsonschema.validate(result.to_dict(), SCHEMA)


@pytest.mark.parametrize("rounds", [20, 200])
def test_the_default_has_arrived_there(rounds: int) -> None:
    result = infer(opposed(), rounds=rounds)
    z = result["coefficients"][2]
    assert z["interval"][1] < 0
    assert z["p_value"] < 1e-4
    assert result["fit"]["converged"] is True


def test_a_linear_path_arrives_and_is_told() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    data = {"site": np.arange(ROWS) % 6, "x": x, "y": x + rng.normal(size=ROWS)}
    for method in PUBLISHED:
        found = infer(data, features="x", model="linear", method=method, rounds=400)["coefficients"][1]
        low, high = found["interval"]
        assert low < 1 < high, method


@pytest.mark.parametrize(("rounds", "says"), [(400, True), (1000, False)])
def test_random_scaling_says_that_few_rounds_are_too_narrow(rounds: int, says: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    data = {"site": np.arange(ROWS) % 6, "x": x, "y": x + rng.normal(size=ROWS)}
    result = infer(data, features="x", model="linear", method="random-scaling", rounds=rounds)
    assert result["fit"]["converged"]
    assert any("too narrow after few rounds" in note for note in result["notes"]) is says
    default = infer(data, features="x", model="linear", rounds=rounds)
    assert not any("random scaling" in note for note in default["notes"])


def steep() -> fedassay.Result:
    """Few rows, of which next to none are in doubt: the default has not arrived either."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=480)
    data = {"site": np.arange(480) % 6, "x": x, "y": (4 * x + rng.logistic(size=480) > 0).astype(int)}
    return infer(data, features="x", rounds=12, participation=0.5)


def test_the_default_says_so_too() -> None:
    result = steep()
    assert [result["coefficients"][1][name] for name in NOTHING] == [None] * 4
    assert "newton" in result["coefficients"][1]["reason"]
    assert not any("still have been on its way" in note for note in result["notes"]), "it is said once"


def test_every_page_shows_values_and_the_reason() -> None:
    document = steep().to_dict()
    jsonschema.validate(document, SCHEMA)
    text = io.StringIO()
    render(document, Console(file=text, width=200))
    for shown in (text.getvalue(), page(document)):
        assert "have not arrived" in shown
        assert "away from 0</" not in shown
        assert "0.025" in shown, "the heads of the columns stay, with nothing below"
    assert key_numbers(document) == ()
    assert unknown(document).startswith("Not known: coefficients away from 0: the rounds have not arrived")
    display = CoefficientsDisplay.from_result(document)
    assert display.intervals == (None, None)
    assert display.p_values == (None, None)
    assert "have not arrived" in display.alternative
    assert display.chart.to_dict()


def test_a_stream_tells_coefficients_and_no_errors() -> None:
    rng = np.random.default_rng(8)
    fit = fedassay.FederatedRegression("logistic", method="random-scaling")
    for _ in range(20):
        x = rng.normal(size=(300, 1)) @ np.ones((1, 2)) + 0.5 * rng.normal(size=(300, 2))
        fit.partial_fit(x, (3 * x[:, 0] - 0.7 * x[:, 1] + rng.logistic(size=300) > 0).astype(int))
    assert "have not arrived" in fit.withheld_
    assert fit.coef_.shape == (2,)
    for ask in (fit.conf_int, lambda: fit.pvalues_, lambda: fit.bse_, lambda: fit.contrast("x1 - x2")):
        with pytest.raises(DataError, match="have not arrived"):
            ask()
    assert "have not arrived" in fit.summary()


def test_estimates_without_an_error_are_infinitely_far_apart() -> None:
    none, some = np.zeros((2, 2)), np.eye(2)
    assert distance(np.array([1.0, 2.0]), np.array([1.0, 3.0]), some, none).tolist() == [0.0, np.inf]
    assert distance(np.array([np.nan, 2.0]), np.array([1.0, 3.0]), some).tolist() == [np.inf, 1.0]
