"""Groups, a second model and sites in studies between machines: the same results as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedassay
from file_drop_town import Town, pooled


@pytest.fixture
def town(tmp_path: Path) -> Town:
    """Sites that name columns for groups and for a second model."""
    town = Town(tmp_path)
    for number, name in enumerate(town.names):
        rng = np.random.default_rng(number)
        frame = pd.read_csv(town.root / name / "scores.csv")
        second = np.clip(frame.p + 0.1 * rng.normal(size=len(frame)), 0, 1)
        columns = 'score = "p"\nlabel = "y"\ngroup = "sex"\nversus = "q"'
        town.hold(name, frame.assign(q=second, sex=rng.choice(["F", "M", "X"], len(frame))), columns)
    return town


def expected(town: Town, **options: Any) -> dict[str, Any]:
    result = fedassay.evaluate(
        pooled(town), client="site", score="p", label="y", thresholds=(0.3, 0.5), height=6, **options
    )
    return dict(result.results)


def test_groups_and_sites_by_files(town: Town) -> None:
    assert town.begin("--group", "F", "--group", "M", "--per-site", "--privacy", "plain") == 0
    document = town.finish(passes=1)
    found = document["results"]
    wanted = expected(town, by="sex", groups=["F", "M"], per_site=True, privacy=fedassay.Plain())
    assert found["groups"] == wanted["groups"]
    assert found["heterogeneity"] == wanted["heterogeneity"]
    assert [site["site"] for site in found["sites"]] == list("abcd")
    assert found["sites"] == wanted["sites"]
    assert document["parameters"]["groups"] == ["F", "M"]


def test_sites_are_numbered_if_somebody_is_lost(town: Town) -> None:
    assert town.begin("--per-site", "--privacy", "plain") == 0
    found = town.finish(passes=1, absent="b")["results"]
    assert [site["site"] for site in found["sites"]] == ["site 1", "site 2", "site 3"]


def test_a_second_model_by_files(town: Town) -> None:
    assert town.begin("--versus", "--privacy", "plain") == 0
    found = town.finish(passes=2)["results"]
    wanted = expected(town, versus="q", privacy=fedassay.Plain())
    for name in ("difference", "versus", "roc_auc"):
        assert found[name] == wanted[name]


def test_hidden_sites_by_files_remember_their_estimates(town: Town) -> None:
    """Three exchanges of four legs each; the site's store carries what it estimated from one to the next."""
    assert town.begin("--per-site") == 0
    found = town.finish(passes=6)["results"]
    assert found["sites"] is None
    assert found["heterogeneity"] == expected(town, per_site=True)["heterogeneity"]
