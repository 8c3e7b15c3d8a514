"""Contrasts as people write them, and what a result says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedassay.errors import UsageError
from fedassay.summaries.regression.moments import Moments, Standard
from fedassay.tasks.inference.estimate import CoefficientEstimate, Normal
from fedassay.tasks.inference.infer import Infer
from fedassay.tasks.inference.online import Course, RoundHistory
from fedassay.tasks.inference.path import IteratePath, StepSizes
from fedassay.tasks.inference.result_values import normal, parsed, scale_of, streamed


@pytest.mark.parametrize(
    ("text", "names", "weights", "value"),
    [
        ("a", "a b", {"a": 1.0}, 0.0),
        ("-a", "a b", {"a": -1.0}, 0.0),
        ("+ a + b", "a b", {"a": 1.0, "b": 1.0}, 0.0),
        ("a - 2*b = 0.5", "a b", {"a": 1.0, "b": -2.0}, 0.5),
        ("a-2*b=-.5", "a b", {"a": 1.0, "b": -2.0}, -0.5),
        ("  1e-1 * a  -  .5 b = 1e3 ", "a b b.5", {"a": 0.1, "b": -0.5}, 1e3),
        ("2 a = +1", "a b", {"a": 2.0}, 1.0),
        ("a + a - 0.5*a", "a b", {"a": 1.5}, 0.0),
        ("intercept - b", "intercept b", {"intercept": 1.0, "b": -1.0}, 0.0),
    ],
)
def test_contrasts(text: str, names: str, weights: dict[str, float], value: float) -> None:
    assert parsed(text, names.split()) == (weights, value)


@pytest.mark.parametrize(
    ("text", "names", "weights", "value"),
    [
        (
            "body mass - blood pressure",
            ["body mass", "blood pressure"],
            {"body mass": 1, "blood pressure": -1},
            0,
        ),
        ("a-b", ["a", "b", "a-b"], {"a-b": 1}, 0),
        ("a - b", ["a", "b", "a-b"], {"a": 1, "b": -1}, 0),
        ("2*a-b - b", ["a", "b", "a-b"], {"a-b": 2, "b": -1}, 0),
        ("age group - age", ["age", "age group", "age_group"], {"age group": 1, "age": -1}, 0),
        ("age_group - age", ["age", "group", "age_group"], {"age_group": 1, "age": -1}, 0),
        ("x1 - x10 + x", ["x", "x1", "x10"], {"x1": 1, "x10": -1, "x": 1}, 0),
        ("x10", ["x1", "x10", "0"], {"x10": 1}, 0),
        ("weight (kg) - %fat", ["weight (kg)", "%fat"], {"weight (kg)": 1, "%fat": -1}, 0),
        ("a.b*c - a.b", ["a.b", "a.b*c"], {"a.b*c": 1, "a.b": -1}, 0),
        ("0 - 1", ["0", "1"], {"0": 1, "1": -1}, 0),
        ("7 - 1.5*a", ["a", "7"], {"7": 1, "a": -1.5}, 0),
        ("sex=male - sex=female = 2", ["sex=male", "sex=female"], {"sex=male": 1, "sex=female": -1}, 2),
        ("sex=1", ["sex", "sex=1"], {"sex=1": 1}, 0),
        ("größe - 2*é", ["größe", "é"], {"größe": 1, "é": -2}, 0),
        (r"a\b - \1", [r"a\b", r"\1"], {r"a\b": 1, r"\1": -1}, 0),
    ],
)
def test_names_with_blanks_signs_digits_and_prefixes(
    text: str, names: list[str], weights: dict[str, float], value: float
) -> None:
    assert parsed(text, names) == (weights, value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "= 3",
            "c",
            "a + c",
            "a b",
            "a * b",
            "a - - b",
            "2",
            "a + 2",
            "a = b",
            "a = 1 = 2",
            "a*2",
            "(a)",
        ),
        *("aa", "a = nan", "a = inf", "1e999*a", "a - a", "0*a", "a +", "2*", "a/2", "A"),
    ],
)
def test_what_is_no_contrast_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(UsageError, match=r"contrasts: got .*expected weighted coefficients .* of a, b\."):
        parsed(text, ["a", "b"])
    with pytest.raises(UsageError, match="contrast"):
        Infer(features=("a", "b"), intercept=False, contrasts=(text,))


def test_a_contrast_is_kept_as_it_was_given() -> None:
    assert normal("  a  - 2*b ", ["a", "b"]) == "a  - 2*b"


# --- scales -----------------------------------------------------------------------------------------------


def test_scales_that_are_given() -> None:
    given = ["a=0:1", "b c=2:4", "x=1=-1e-3:.5", "target=1:3"]
    scale = scale_of(given, ["a", "b c", "x=1"], intercept=True, linear=True, offset=True)
    assert (scale.centres, scale.scales) == ((0.0, 2.0, -1e-3), (1.0, 4.0, 0.5))
    assert (scale.target_centre, scale.target_scale, scale.offset) == (1.0, 3.0, True)
    through = scale_of(given, ["a", "b c", "x=1"], intercept=False, linear=True, offset=False)
    assert (through.centres, through.target_centre, through.target_scale) == ((0.0,) * 3, 0.0, 3.0)
    assert scale_of([], [], intercept=True, linear=False, offset=False) == Standard(features=0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a=1",
        "a=1:0",
        "a=1:-2",
        "a=nan:1",
        "a=1:inf",
        "a=x:1",
        "a=1:2:3",
        "b=1:1",
        "target=1:1",
        "=1:1",
    ],
)
def test_what_is_no_scale_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"scales: got .*such as 'age=50:10', of a\."):
        scale_of([text], ["a"], intercept=True, linear=False, offset=False)


# --- results ----------------------------------------------------------------------------------------------


COURSE = Course(model="linear", rounds=10, sizes=StepSizes(first=0.1, decay=0.6))
ESTIMATE = CoefficientEstimate(
    names=("intercept", "a"), value=[1.0, 3.0], covariance=[[0.25, 0.1], [0.1, 1.0]], law=Normal()
)


def told(
    task: Infer, seen: RoundHistory, estimate: CoefficientEstimate = ESTIMATE, moments: Moments | None = None
) -> dict[str, Any]:
    standard = Standard(features=1, centres=(2.0,), scales=(4.0,))
    found = streamed(task, estimate, seen, COURSE, standard, moments, {"model": task.model})
    return json.loads(json.dumps(found, allow_nan=False))  # type: ignore[no-any-return]


def seen(**counts: Any) -> RoundHistory:
    return RoundHistory(
        path=IteratePath.start(np.zeros(2)), **{"answers": 20, "steps": 30, "rows": 100, **counts}
    )


def test_coefficients_and_contrasts_are_those_of_the_estimate() -> None:
    found = told(Infer(features=("a",), contrasts=("a - 2*intercept = 0.5",), level=0.9), seen())
    first, second = found["coefficients"]
    assert (first["name"], second["name"], second["value"], second["level"]) == ("intercept", "a", 3.0, 0.9)
    assert second["standard_error"] == 1.0
    assert second["statistic"] == 3.0
    assert second["p_value"] == pytest.approx(0.0026998, abs=1e-7)
    assert second["interval"] == pytest.approx([3 - 1.644854, 3 + 1.644854], abs=1e-6)
    assert second["simultaneous_interval"][0] < second["interval"][0]
    assert "odds_ratio" not in second
    (contrast,) = found["contrasts"]
    assert (contrast["contrast"], contrast["value"], contrast["against"]) == (
        "a - 2*intercept = 0.5",
        1.0,
        0.5,
    )
    error = np.sqrt(1.0 + 4 * 0.25 - 4 * 0.1)
    assert contrast["standard_error"] == pytest.approx(error)
    assert contrast["statistic"] == pytest.approx(0.5 / error)
    assert found["fit"]["local_steps"] == 1.5
    assert found["covariance"] == [[0.25, 0.1], [0.1, 1.0]]


def test_logistic_coefficients_have_odds_ratios_that_may_be_beyond_numbers() -> None:
    huge = CoefficientEstimate(
        names=("intercept", "a"), value=[0.0, 800.0], covariance=np.eye(2), law=Normal()
    )
    first, second = told(Infer(model="logistic", features=("a",)), seen(), huge)["coefficients"]
    assert first["odds_ratio"]["value"] == 1.0
    assert first["odds_ratio"]["interval"] == pytest.approx(np.exp(first["interval"]).tolist())
    assert second["odds_ratio"] == {"value": None, "interval": [None, None]}


def test_an_estimate_without_an_error_has_no_statistic() -> None:
    exact = CoefficientEstimate(
        names=("intercept", "a"), value=[0.0, 2.0], covariance=np.zeros((2, 2)), law=Normal()
    )
    first, second = told(Infer(features=("a",)), seen(), exact)["coefficients"]
    assert (first["statistic"], second["statistic"], second["p_value"]) == (0.0, None, 0.0)


def test_the_path_is_in_the_units_of_the_data() -> None:
    shown = ((5, np.array([1.0, 2.0]), np.array([[4.0, 0.0], [0.0, 16.0]])),)
    (point,) = told(Infer(features=("a",)), seen(shown=shown))["path"]
    assert point["round"] == 5
    assert point["values"] == [1.0 - 2.0 * 2 / 4, 2 / 4]
    assert point["standard_errors"] == pytest.approx([np.sqrt(4 + 16 / 4), 4 / 4])


def moments(**changed: Any) -> Moments:
    given: dict[str, Any] = {
        "rows": 100,
        "clients": 4,
        "cut": 0,
        "constant_targets": 0,
        "not_binary": 0,
        "means": np.zeros(1),
        "deviations": np.ones(1),
        "target_mean": 0.0,
        "target_deviation": 1.0,
    }
    return Moments(**{**given, **changed})


def test_notes_say_what_to_mind() -> None:
    task = Infer(features=("a",))
    assert told(task, seen(), moments=moments())["notes"] == []
    (again,) = told(task, seen(again=5), moments=moments(rows=1000))["notes"]
    assert "In 25% of all visits" in again
    assert again.endswith("too narrow; take the method newton.")  # fewer rounds than are allowed
    (few,) = told(task, seen(rows=49), moments=moments())["notes"]
    assert few.startswith("Only 49 of 100 rows were used")
    assert told(task, seen(rows=50), moments=moments())["notes"] == []
    (one,) = told(task, seen(), moments=moments(constant_targets=1))["notes"]
    assert one.startswith("1 of 4 clients has the same target in every row: it says")
    (two,) = told(task, seen(), moments=moments(constant_targets=2))["notes"]
    assert two.startswith("2 of 4 clients have the same target in every row: they say")
    bent = Infer(features=("a",), local="published", local_steps=2)
    assert "not corrected" in told(bent, seen(), moments=moments())["notes"][0]
    assert told(Infer(features=("a",), local="published"), seen(), moments=moments())["notes"] == []
