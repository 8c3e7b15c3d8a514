"""A regression as tables and plots, from its JSON alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.documents import plots
from fedassay.documents.blocks import CurveBlock, TableBlock
from fedassay.documents.report import heading
from fedassay.tasks.inference import document as inference
from fedassay.tasks.inference import document_plots as inference_plots
from printing import printed, readable_page
from study_documents import blocks


def document_of(**options: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=400), 1000 * rng.normal(size=400)
    u = 1 + a - 0.001 * b
    label = (rng.random(400) < 1 / (1 + np.exp(-u))).astype(int)
    data = {"site": np.arange(400) % 4, "a": a, "b": b, "y": u + rng.normal(size=400), "z": label}
    given = {"features": "a,b", "target": "y", "rounds": 12, "privacy": fedassay.Plain()} | options
    result = fedassay.infer(data, client="site", simulation=fedassay.Simulation(seed=1), **given)
    document: dict[str, Any] = json.loads(result.to_json())
    return document


@pytest.fixture(scope="module")
def streamed() -> dict[str, Any]:
    return document_of(contrasts=["a - b = 1"], level=0.9)


@pytest.fixture(scope="module")
def pooled() -> dict[str, Any]:
    return document_of(model="logistic", target="z", method="newton", rounds=None)


def test_what_is_shown_depends_on_what_was_fitted(streamed: Any, pooled: Any) -> None:
    def kinds(document: dict[str, Any]) -> list[str]:
        return [part.title if isinstance(part, TableBlock) else "plot" for part in blocks(document)]

    assert kinds(streamed) == ["Linear regression of y", "Coefficients", "plot", "Contrasts", "plot"]
    assert kinds(pooled) == ["Logistic regression of z", "Coefficients", "Odds ratios", "plot", "plot"]
    assert heading(pooled) == "Regression"


def test_the_table_has_the_numbers_of_the_result(streamed: Any, pooled: Any) -> None:
    sheet = inference.coefficients(streamed["results"])
    assert sheet.head == ("", "coef", "std err", "t", "P>|t|", "[0.05", "0.95]")
    for row, entry in zip(sheet.rows, streamed["results"]["coefficients"], strict=True):
        texts = [cell.text for cell in row]
        assert texts[0] == entry["name"]
        numbers = [entry["value"], entry["standard_error"], entry["statistic"]]
        np.testing.assert_allclose([float(text.replace(",", "")) for text in texts[1:4]], numbers, rtol=0.02)
        np.testing.assert_allclose(
            [float(text) for text in texts[5:]], entry["interval"], atol=entry["standard_error"] / 10
        )
    assert inference.coefficients(pooled["results"]).head[3:5] == ("z", "P>|z|")
    (contrast,) = inference.contrasts(streamed["results"]).rows
    assert contrast[0].text == "a - b = 1"
    odds = inference.odds_ratios(pooled["results"])
    assert [row[0].text for row in odds.rows] == ["a", "b"]  # that of an intercept is no ratio
    assert float(odds.rows[0][1].text) == pytest.approx(
        np.exp(pooled["results"]["coefficients"][1]["value"]), rel=0.01
    )


def test_notes_and_numbers_that_are_not_there(streamed: Any) -> None:
    results = {**streamed["results"], "notes": ["Something to know."]}
    assert inference.coefficients(results).notes[-1] == "Something to know."
    first, *others = results["coefficients"]
    endless = {**first, "name": "a", "odds_ratio": {"value": 3.0, "interval": [1.0, None]}}
    certain = {**first, "standard_error": 0.0, "statistic": None, "interval": [first["value"]] * 2}
    results = {**results, "coefficients": [certain, endless]}
    assert inference.coefficients(results).rows[0][3].text == "-"
    assert inference.odds_ratios(results).rows[0][3].text == "beyond 1e308"
    assert "<svg" in plots.as_svg(inference_plots.odds_ratios(results).draw())
    assert "<svg" in plots.as_svg(inference_plots.coefficients(results).draw())
    assert others


def test_plots_are_drawn_and_told(streamed: Any, pooled: Any) -> None:
    for document in (streamed, pooled):
        for part in blocks(document):
            if isinstance(part, CurveBlock):
                assert "<svg" in plots.as_svg(part.draw())
                assert {"a", "b"} <= set(part.alternative.replace(";", " ").replace(":", " ").split())
    results = streamed["results"]
    assert inference_plots.scales_differ(results)
    assert "standard errors" in inference_plots.coefficients(results).alternative
    last = results["path"][-1]
    np.testing.assert_allclose(last["values"], [one["value"] for one in results["coefficients"]])
    # The band ends where the interval is.
    values = inference_plots.path(results).draw().to_dict()["concat"][0]["data"]["values"]
    assert [values[-1]["low"], values[-1]["high"]] == pytest.approx(results["coefficients"][1]["interval"])


def test_features_on_one_scale_share_an_axis_in_their_own_units(streamed: Any) -> None:
    entries = [entry for entry in streamed["results"]["coefficients"] if entry["name"] != "b"]
    results = {**streamed["results"], "coefficients": entries}
    (mark,) = inference_plots.coefficients(results).draw().to_dict()["layer"][1]["data"]["values"]
    assert (mark["name"], mark["value"]) == ("a", entries[1]["value"])


def test_a_narrow_terminal_and_a_page_hold_it(streamed: Any, pooled: Any) -> None:
    for document in (streamed, pooled):
        assert "Coefficients" in readable_page(document)
        assert "std err" in printed(document)
