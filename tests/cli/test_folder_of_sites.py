"""A folder with one file per site: no study writes into it, and what else lies in it is named and not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from command_line import call, output_of, refused
from fedassay.api.study import run_study
from fedassay.artefacts.verified import ANY_KEY, check
from fedassay.errors import DataError, UsageError
from fedassay.kernel.sites import SiteFile
from fedassay.study import folder as folder_module
from file_drop_town import Town
from study_runs import rows

TERMS = ("--score", "p", "--label", "y")
OTHERS = ("README.md", "result.json", "journal", "archive")


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four sites, in the folder where the commands are typed; the report has tests of its own."""
    monkeypatch.setattr(folder_module, "page", lambda document: "<!doctype html>\n")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, mine in rows(4, 60)[["site", "p", "y"]].groupby("site"):
        mine.drop(columns="site").to_csv(folder / f"{name}.csv", index=False)
    return folder


def litter(folder: Path) -> None:
    for name in OTHERS[:-1]:
        (folder / name).write_text("p,y\n0.5,1\n")
    (folder / OTHERS[-1]).mkdir()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_first_study_of_a_folder_runs_twice_and_leaves_the_sites_alone(capsys: Any, sites: Path) -> None:
    before = names(sites)
    assert call(capsys, "init", "sites", "--yes", "--task", "evaluate")[0] == 0
    for _ in range(2):
        code, _, error = call(capsys, "run", "study.toml", "--quiet")
        assert (code, error) == (0, "")
    assert names(sites) == before
    assert check(sites.parent / "sites-study", key=ANY_KEY).holds
    document = json.loads((sites.parent / "sites-study" / "result.json").read_text())
    assert (document["cohort"]["clients"], document["warnings"]) == (4, [])


def test_a_name_or_a_folder_that_is_that_of_the_data_is_refused_before_anything_is_written(
    capsys: Any, sites: Path
) -> None:
    (sites.parent / "link").symlink_to("sites")
    before = names(sites)
    for chosen in ("sites", "link"):
        error = refused(capsys, "init", "sites", "--yes", "--quiet", "--name", chosen)
        assert f"{chosen}: holds the study's data, expected another folder" in error
    assert not (sites.parent / "study.toml").exists()
    assert call(capsys, "init", "sites", "--yes", "--task", "evaluate", "--name", "spring")[0] == 0
    assert call(capsys, "run", "study.toml", "--out", "sites")[0] == 2
    with pytest.raises(UsageError, match="sites: holds the study's data"):
        run_study("study.toml", folder="sites")
    study = sites.parent / "study.toml"
    study.write_text(study.read_text().replace('"spring"', '"sites"'))
    assert call(capsys, "run", "study.toml")[0] == 2
    assert names(sites) == before


def test_what_is_no_site_is_named_and_not_read(capsys: Any, sites: Path) -> None:
    terms = ("evaluate", "sites", *TERMS, "--seed", 1, "--json", "-")
    clean = json.loads(call(capsys, *terms)[1])
    litter(sites)
    out = output_of(capsys, *terms)
    found = json.loads(out)
    assert (found["results"], found["cohort"]) == (clean["results"], clean["cohort"])
    (warning,) = found["warnings"]
    assert all(repr(name) in warning for name in OTHERS)
    assert warning.endswith("; move what is no site, and convert what holds rows: none of it is read.")
    out = output_of(capsys, "check", "sites", *TERMS)
    assert all(name in out for name in OTHERS)


def test_a_study_does_not_take_other_files_for_changed_data(capsys: Any, sites: Path) -> None:
    call(capsys, "init", "sites", "--yes", "--task", "evaluate")
    assert call(capsys, "run", "study.toml", "--quiet")[0] == 0
    litter(sites)
    assert call(capsys, "run", "study.toml", "--quiet")[0] == 0
    (sites / "s0.csv").write_text("p,y\n0.5,1\n")
    error = refused(capsys, "run", "study.toml", "--quiet")
    assert "the data have changed" in error


def test_what_is_written_for_later_use_refuses_other_files(capsys: Any, sites: Path) -> None:
    code, *_ = call(capsys, "calibrate", "sites", *TERMS, "--out", "calibrator.json", "--quiet")
    assert code == 0
    litter(sites)
    error = refused(capsys, "apply", "calibrator.json", "sites", "--out", "calibrated.csv")
    assert "'README.md'" in error
    assert not (sites.parent / "calibrated.csv").exists()


@pytest.mark.parametrize("named", ["sites", "link"])
def test_what_is_applied_is_not_written_among_the_sites(capsys: Any, sites: Path, named: str) -> None:
    (sites.parent / "link").symlink_to("sites")
    assert call(capsys, "calibrate", "sites", *TERMS, "--out", "calibrator.json", "--quiet")[0] == 0
    before = names(sites)
    error = refused(capsys, "apply", "calibrator.json", "sites", "--out", f"{named}/calibrated.csv")
    assert "its folder holds the data, where each file is a site" in error
    assert names(sites) == before
    assert call(capsys, "apply", "calibrator.json", "sites", "--out", "calibrated.csv")[0] == 0


def test_a_real_site_refuses_other_files(tmp_path: Path) -> None:
    town = Town(tmp_path)
    home = tmp_path / "a"
    (home / "rows").mkdir()
    pd.read_csv(home / "scores.csv").to_csv(home / "rows" / "2024.csv", index=False)
    client = SiteFile.read(town.write_site("a", data="rows")).open()
    assert sum(len(batch["score"]) for batch in client.site.rows().batches()) == 50
    (home / "rows" / "2025.xlsx").write_text("not read")
    with pytest.raises(DataError, match=r"got '2025.xlsx', expected one file per site"):
        client.site.rows()
