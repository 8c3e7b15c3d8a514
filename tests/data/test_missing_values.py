"""One missing score: named as what it is, and with `missing="report"` its row is left out and counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fedassay
from fedassay import Simulation
from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.data.sources import CompleteRows
from fedassay.errors import DataError, ParameterError
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection
from study_runs import rows

SCHEMA = json.loads((files("fedassay.documents") / "result.schema.json").read_text(encoding="utf-8"))
ROLES = {"score": "p", "label": "y"}
GAPS = {"p": [3, 17], "y": [17, 40], "v": [3], "a": [5], "t": [9]}


def with_gaps(*columns: str) -> pd.DataFrame:
    found = rows(4, 60)
    for column in columns:
        found[column] = found[column].astype(float)
        found.loc[GAPS[column], column] = np.nan
    return found


def batches_of(rows: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"score": [], "label": []}
    for batch in rows.batches():
        for role, values in found.items():
            values.extend(batch[role].tolist())
    return found


def stored(frame: pd.DataFrame, form: str, folder: Path) -> Any:
    if form == "csv":
        frame.to_csv(folder / "rows.csv", index=False)
        return folder / "rows.csv"
    if form == "parquet":
        frame.to_parquet(folder / "rows.parquet")
        return folder / "rows.parquet"
    if form == "text":
        return {
            name: [*(None if pd.isna(one) else str(one) for one in frame[name][:-1]), " NA "]
            for name in frame
        } | {"site": frame["site"].tolist()}
    return frame


@pytest.mark.parametrize("memory_limit", [2**30, 0])
@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "text"])
def test_rows_are_those_of_the_file_without_them(tmp_path: Path, form: str, memory_limit: int) -> None:
    frame = with_gaps("p", "y")
    data = CompleteRows(data=stored(frame, form, tmp_path), columns=ROLES)
    found = load(data, client="site", columns=ROLES, memory_limit=memory_limit)
    whole = frame.dropna()
    whole = whole.iloc[:-1] if form == "text" else whole
    clean = load(whole, client="site", columns=ROLES)
    assert found.missing == 3 + (form == "text")
    assert clean.missing is None
    assert (list(found.clients), found.rows_per_client.tolist()) == (
        list(clean.clients),
        clean.rows_per_client.tolist(),
    )
    for name in clean.clients:
        assert batches_of(found.rows_of(name)) == batches_of(clean.rows_of(name))
    assert any(text.startswith(f"Left out: {found.missing} of 240 rows") for text in found.warnings)


def test_a_folder_of_sites(tmp_path: Path) -> None:
    for name, mine in with_gaps("p").groupby("site"):
        mine.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "empty.csv").write_bytes(b"")
    found = load(CompleteRows(data=tmp_path, columns=ROLES), columns=ROLES)
    assert (found.missing, found.row_count, found.client_count) == (2, 238, 5)


def test_nothing_is_left_out_unless_it_is_asked_for() -> None:
    with pytest.raises(
        DataError, match=r"\(score\): got 2 bad values .* a missing value .*`missing=\"report\"`"
    ):
        load(with_gaps("p").astype({"p": object}).where(lambda one: one.notna(), None), columns=ROLES)


def test_only_what_is_missing_is_left_out() -> None:
    frame = with_gaps("p")
    frame.loc[20, "p"] = 1.5
    with pytest.raises(
        DataError, match=r"\(complete rows\), column 'p' \(score\): got 1 bad value .*1\.5"
    ) as caught:
        load(CompleteRows(data=frame, columns=ROLES), columns=ROLES)
    assert "missing" not in str(caught.value)


def test_errors_name_the_line_of_the_file(tmp_path: Path) -> None:
    frame = with_gaps("p")
    frame.loc[20, "p"] = 1.5
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match=r"row 18 \(counting from 0\): '1\.5' \(line 22 of the file\)"):
        load(CompleteRows(data=tmp_path / "rows.csv", columns=ROLES), columns=ROLES)


def test_groups_and_clients_have_to_be_repaired() -> None:
    data = {"p": [0.1, 0.2], "y": [0, 1], "sex": ["f", None], "site": ["a", None]}
    roles = {**ROLES, "group": "sex"}
    with pytest.raises(DataError, match=r"\(group\).* such as unknown.* or remove these rows\."):
        load(CompleteRows(data=data, columns=roles), columns=roles)
    with pytest.raises(DataError, match=r"\(client\).* fill in the client or remove these rows\."):
        load(CompleteRows(data=data, columns=ROLES), client="site", columns=ROLES)


def test_nothing_is_left() -> None:
    data = CompleteRows(data={"p": [None, None], "y": [1, 0]}, columns=ROLES)
    with pytest.raises(
        DataError, match=r"got no row to use: 2 of 2 rows without a value \('p': 2\), expected"
    ):
        load(data, columns=ROLES)


def test_logits_and_features() -> None:
    lists = {"y": [0, 1, 1], "z": [[0.1, 0.2], None, [0.3, 0.4]]}
    roles = {"class": "y", "logits": "z"}
    assert load(CompleteRows(data=lists, columns=roles), columns=roles).missing == 1
    numbered = pa.table({"y": [0.0, 1.0, None], "x_0": [1.0, 2.0, 3.0], "x_1": [None, 2.0, 3.0]})
    roles = {"target": "y", "features": "x"}
    found = load(CompleteRows(data=numbered, columns=roles), columns=roles)
    assert (found.missing, found.row_count) == (2, 1)


ENTRIES: dict[str, tuple[tuple[str, ...], Callable[..., Result]]] = {
    "evaluate": (("p", "y"), lambda data, **more: fedassay.evaluate(data, score="p", label="y", **more)),
    "per site": (
        ("p", "y"),
        lambda data, **more: fedassay.evaluate(
            data, score="p", label="y", by="site", per_site=True, privacy="plain", **more
        ),
    ),
    "calibrate": (("p", "y"), lambda data, **more: fedassay.calibrate(data, score="p", label="y", **more)),
    "conformal": (
        ("p", "y"),
        lambda data, **more: fedassay.conformal(data, score="p", label="y", holdout=0.3, **more),
    ),
    "hosmer-lemeshow": (
        ("p", "y"),
        lambda data, **more: fedassay.hosmer_lemeshow(data, score="p", label="y", **more),
    ),
    "ecdf": (
        ("v",),
        lambda data, **more: fedassay.ecdf(data, value="v", lower=0.2, upper=0.8, points=8, **more),
    ),
    "quantiles": (
        ("v",),
        lambda data, **more: fedassay.quantiles(
            data,
            value="v",
            lower=0.2,
            upper=0.8,
            points=8,
            budget=Budget(epsilon=3.0),
            protection=Protection(rows_per_client=60),
            **more,
        ),
    ),
    "infer": (
        ("a", "t"),
        lambda data, **more: fedassay.infer(data, target="t", features="a,b", method="newton", **more),
    ),
    "run_task": (("p", "y"), lambda data, **more: fedassay.run_task("evaluate", data, columns=ROLES, **more)),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_task_says_of_the_other_rows_what_it_says_without_them(name: str) -> None:
    columns, ask = ENTRIES[name]
    frame = with_gaps(*columns)
    clean = ask(frame.dropna(), client="site", simulation=Simulation(seed=1))
    found = ask(frame, client="site", simulation=Simulation(seed=1, missing="report"))
    assert json.dumps(found.results) == json.dumps(clean.results)
    missing = len(frame) - len(frame.dropna())
    assert found.cohort == {**clean.cohort, "missing": missing}
    assert missing > 0
    jsonschema.validate(found.to_dict(), SCHEMA)
    assert set(found.warnings) - set(clean.warnings) == {
        text for text in found.warnings if text.startswith(f"Left out: {missing} of 240 rows without a value")
    }
    with pytest.raises(DataError):
        ask(frame, client="site", simulation=Simulation(seed=1))


def test_classes_from_logits() -> None:
    rng = np.random.default_rng(0)
    logits = pd.DataFrame(rng.normal(size=(90, 3)), columns=["z_0", "z_1", "z_2"])
    frame = logits.assign(y=rng.integers(0, 3, 90).astype(float), site=np.arange(90) % 3)
    frame.loc[[4, 7], "y"] = np.nan
    frame.loc[7, "z_1"] = np.nan
    for ask in (fedassay.evaluate, fedassay.calibrate):
        found = ask(
            frame, label="y", logits="z", client="site", simulation=Simulation(seed=1, missing="report")
        )
        clean = ask(frame.dropna(), label="y", logits="z", client="site", simulation=Simulation(seed=1))
        assert json.dumps(found.results) == json.dumps(clean.results)
        assert found.cohort["missing"] == 2


def test_the_number_is_there_when_it_is_zero_and_was_asked_for() -> None:
    found = fedassay.evaluate(
        rows(3, 30), score="p", label="y", client="site", simulation=Simulation(missing="report")
    )
    assert found.cohort["missing"] == 0
    assert not any("Left out" in text for text in found.warnings)
    assert "missing" not in fedassay.evaluate(rows(3, 30), score="p", label="y", client="site").cohort


def test_another_word_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"missing: got 'drop', expected refuse or report\."):
        Simulation(missing="drop")  # type: ignore[arg-type]


def test_a_check_counts_them() -> None:
    report = check(CompleteRows(data=with_gaps("p", "y"), columns=ROLES), client="site", columns=ROLES)
    assert report.ok
    assert (report.profile["rows"], report.profile["rows_left_out"]) == (237, 3)
    assert any(
        "got 3 of 240 rows without a value ('p': 2, 'y': 2)" in one.sentence() for one in report.findings
    )
