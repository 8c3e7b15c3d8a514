"""What is given in the place of a list, of an object or of a name that it should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.errors import DataError, UsageError
from fedassay.protocol.vocabulary import LARGEST_EPSILON, Budget

SIMULATION = fedassay.Simulation(seed=1)


def scores(rows: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    score = rng.random(rows)
    return {
        "site": [["a", "b", "c"][place % 3] for place in range(rows)],
        "sex": [["women", "men"][place % 2] for place in range(rows)],
        "p": score,
        "y": (rng.random(rows) < score).astype(int),
        "age": rng.normal(60, 10, rows),
    }


def evaluated(**options: Any) -> fedassay.Result:
    given = {"client": "site", "score": "p", "label": "y", "simulation": SIMULATION}
    return fedassay.evaluate(scores(), **(given | options))


# --- lists ------------------------------------------------------------------------------------------------------


def test_a_number_where_a_list_is_meant_is_a_list_of_one() -> None:
    assert evaluated(thresholds=0.2)["thresholds"] == evaluated(thresholds=[0.2])["thresholds"]
    assert evaluated(thresholds=np.float64(0.2)).parameters["thresholds"] == (0.2,)
    found = fedassay.ecdf(
        scores(), client="site", value="age", lower=0, upper=128, quantiles=0.5, simulation=SIMULATION
    )
    assert [one["quantile"] for one in found["quantiles"]] == [0.5]


def test_a_name_where_a_list_is_meant_is_a_list_of_one() -> None:
    groups = evaluated(by="sex", groups="women")["groups"]
    assert groups == evaluated(by="sex", groups=["women"])["groups"]
    assert {one["group"] for one in groups} == {"women", "other"}


@pytest.mark.parametrize("thresholds", ["0.2", ["a"], None, [None], True, [0.2, False]])
def test_what_is_no_number_is_told(thresholds: Any) -> None:
    with pytest.raises(UsageError, match="thresholds: got .*, expected a number from 0 to 1"):
        evaluated(thresholds=thresholds)


def test_what_is_no_name_is_told() -> None:
    with pytest.raises(UsageError, match="groups: got 3, expected a text"):
        evaluated(by="sex", groups=[3])


# --- objects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simulation", [0, 1, "seed", {"seed": 1}])
def test_a_simulation_that_is_none_is_told(simulation: Any) -> None:
    wrong = r"simulation: got .*, expected an object such as fedassay.Simulation\(seed=1\)"
    calls = (
        (fedassay.evaluate, {"score": "p", "label": "y"}),
        (fedassay.calibrate, {"score": "p", "label": "y"}),
        (fedassay.conformal, {"score": "p", "label": "y"}),
        (fedassay.hosmer_lemeshow, {"score": "p", "label": "y"}),
        (fedassay.ecdf, {"value": "age", "lower": 0, "upper": 128}),
        (fedassay.infer, {"target": "age", "features": "p"}),
    )
    for call, columns in calls:
        with pytest.raises(UsageError, match=wrong):
            call(scores(), client="site", simulation=simulation, **columns)  # type: ignore[operator]


def test_a_holdout_that_is_no_number_is_told() -> None:
    for holdout in ("half", None, 2.0):
        with pytest.raises(UsageError, match="holdout: got .+, expected a number"):
            fedassay.calibrate(scores(), client="site", score="p", label="y", holdout=holdout)  # type: ignore[arg-type]


def test_a_protection_that_is_none_is_told() -> None:
    with pytest.raises(
        UsageError, match="protection: got 'client', expected an object such as fedassay.Prot"
    ):
        evaluated(protection="client")


# --- budgets ----------------------------------------------------------------------------------------------------


def test_an_epsilon_that_promises_nothing_is_refused() -> None:
    assert Budget(epsilon=LARGEST_EPSILON).epsilon == LARGEST_EPSILON == 10_000
    for epsilon in (10_001, 1e308, float("inf"), float("nan"), 0):
        with pytest.raises(UsageError, match="epsilon: got .*, expected a number above 0 and at most 10,000"):
            Budget(epsilon=epsilon)
    with pytest.raises(UsageError, match="epsilon: got 10001, expected a number above 0 and at most 10,000"):
        Budget(epsilon=10_001)


@pytest.mark.parametrize("value", [None, "1", True, [1.0]])
def test_a_budget_of_something_else_than_numbers_is_told(value: Any) -> None:
    with pytest.raises(UsageError, match="epsilon: got .*, expected a number"):
        Budget(epsilon=value)
    with pytest.raises(UsageError, match="delta: got .*, expected a number"):
        Budget(epsilon=1, delta=value)


# --- names ------------------------------------------------------------------------------------------------------


def test_names_with_nul_bytes_are_refused() -> None:
    data = scores()
    data["site"][7] += "\0"
    with pytest.raises(
        DataError, match=r"\(client\): got 1 bad value .* in row 7 .*'b\\x00', .* without NUL"
    ):
        fedassay.evaluate(data, client="site", score="p", label="y")
    data = scores()
    data["sex"][8] = "wo\0men"
    for named in ((), ("men", "women")):
        with pytest.raises(DataError, match=r"\(group\): got 1 bad value .* in row 8 .* without NUL bytes"):
            fedassay.evaluate(data, client="site", score="p", label="y", by="sex", groups=named)
    data = scores() | {"p\0": scores()["p"]}
    with pytest.raises(UsageError, match=r"score column: got 'p\\x00', expected a name without NUL bytes"):
        fedassay.evaluate(data, client="site", score="p\0", label="y")
    with pytest.raises(
        UsageError, match=r"client column: got 'site\\x00', expected a name without NUL bytes"
    ):
        fedassay.evaluate(data, client="site\0", score="p", label="y")


# --- sites ------------------------------------------------------------------------------------------------------


def test_without_a_client_one_line_says_what_a_site_is() -> None:
    def lines(result: fedassay.Result) -> list[str]:
        return [line for line in result.warnings if "every row counts as a site of its own" in line]

    assert len(lines(evaluated(client=None))) == 1
    assert lines(evaluated()) == []
    assert lines(evaluated(client=fedassay.Partition("iid", clients=3))) == []
