"""Prediction sets on scores that a study has calibrated cover fresh rows, as the calibrator never saw their rows.

The calibrator here is a bad one: histogram binning with about four rows to a bin, which half learns them by heart.
Coverage is exchangeability's: P(new row covered) >= level, over the rows of the study and the new one. With studies
whose coverage (of 2,000 fresh rows each) has mean m and standard error s, m - level is at least -Z·s but for a
probability of about 1e-5 (Z = 4.26, one-sided; rows that share a bin only add coverage). The broken variant, in which
threshold and calibrator share their rows, is below by more than that.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.stats import norm

from fedassay.artefacts.conformal import ConformalPredictor
from fedassay.kernel.agenda import Agenda, Item
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Part, Protection
from fedassay.study.simulation import Simulation, simulate
from fedassay.tasks.conformal.parameters import ConformalRules
from fedassay.trust.secure_sum import SecureSum
from stated import Verify

LEVEL, ROWS, FRESH = 0.8, 240, 2000
Z = float(norm.ppf(1 - 1e-5))

AGENDA = Agenda(
    items=(
        Item(name="calibrate", task="calibrate", parameters={"method": "histogram", "bins": 20}, share=0.5),
        Item(
            name="conformal",
            task="conformal",
            parameters={
                **{"sets": "binary", "conditional": "none", "holdout": 0.3, "level": LEVEL},
                **{"method": "pooled", "score_range": [0.0, 1.0]},
            },
            share=0.5,
            after="calibrate",
        ),
    )
)


def drawn(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    score = rng.random(count)
    label = (rng.random(count) < 0.1 + 0.8 * score).astype(np.int64)
    return {"site": np.arange(count) % 4, "p": score, "y": label}


def coverage(seed: int) -> float:
    """Of fresh rows, by the prediction sets of one study of four small sites."""
    rng = np.random.default_rng(seed)
    result = simulate(
        AGENDA,
        drawn(rng, ROWS),
        columns={"score": "p", "label": "y"},
        client="site",
        trust=SecureSum(),
        budget=None,
        protection=Protection(),
        parameters={},
        simulation=Simulation(seed=seed, mode="aggregate"),
    )
    entry = result["tasks"]["conformal"]
    assert entry["results"]["score"]["calibrated"]
    alone = Result(
        task="conformal",
        parameters={**entry["parameters"], "score": "p", "label": "y", "client": "site"},
        results=entry["results"],
        privacy=result.privacy,
        cohort=result.cohort,
        runtime=result.runtime,
    )
    fresh = drawn(rng, FRESH)
    members = ConformalPredictor.of(alone).predict_set(score=fresh["p"])
    return float(members[np.arange(FRESH), fresh["y"]].mean())


def margin(studies: int) -> tuple[float, float]:
    """How far the mean coverage is above the level, and its standard error."""
    always = mock.patch.object(
        ConformalRules, "informed", lambda rules, task, results: task.calibrated(results["calibrator"])
    )
    with always:  # recommended or not: such a calibrator never is
        found = np.array([coverage(seed) for seed in range(studies)])
    return float(found.mean() - LEVEL), float(found.std(ddof=1) / np.sqrt(studies))


def shared_rows() -> Any:
    """Both are fitted to the same half."""
    return mock.patch.object(Agenda, "fits_on", return_value=Part.FIRST_FIT)


def test_sets_cover_and_would_not_if_rows_were_shared() -> None:
    above, error = margin(15)
    assert above > -Z * error
    with shared_rows():
        below, error = margin(20)
    assert below < -Z * error


@pytest.mark.full
def test_sets_cover_in_many_studies(verify: Verify) -> None:
    above, error = margin(400)
    with shared_rows():
        below, error_of_broken = margin(100)
    verify(
        f"coverage of prediction sets on scores that the study calibrated, level {LEVEL}: 400 studies, fresh rows",
        f"{LEVEL + above:.4f} ± {error:.4f}; {LEVEL + below:.3f} ± {error_of_broken:.3f} if calibrator and threshold "
        "shared rows",
    )
    assert above > -Z * error
    assert below < -Z * error_of_broken
