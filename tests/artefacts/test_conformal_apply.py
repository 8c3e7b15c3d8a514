"""Applying a conformal predictor: the same intervals and sets as in memory, from any format, nothing half-written."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import fedassay
from artefact_files import refusal
from command_line import call
from conformal_artefacts import class_rows, predictor, regression_rows, threshold
from fedassay.artefacts.conformal_apply import apply_conformal
from fedassay.data.sql import Database
from fedassay.summaries.maps import Sigmoid

INTERVAL = predictor("normalised", 0.8)
SETS = predictor("aps", 0.85)
NUMBERED = {f"z_{k}": column for k, column in enumerate(class_rows()["z"].T)}


def frame(rows: int = 60) -> pd.DataFrame:
    return pd.DataFrame({"id": [f"00{i}" for i in range(rows)], **regression_rows(rows)})


def written(made: Any, data: Any, out: Path, **options: Any) -> pa.Table:
    applied = apply_conformal(made, data, out, **options)
    table = parquet.read_table(out)
    assert len(table) == applied.rows
    assert table.column_names[-2:] == list(applied.columns)
    return table


def interval_of(table: pa.Table, names: tuple[str, str] = ("lower", "upper")) -> Any:
    assert all(table.schema.field(name).type == pa.float64() for name in names)
    return np.stack([table[name].to_numpy() for name in names], axis=1)


def members_of(table: pa.Table, classes: int = 4) -> Any:
    found = table["prediction_set"].to_pylist()
    assert table["set_size"].to_pylist() == [len(one) for one in found]
    return np.array([[k in one for k in range(classes)] for one in found])


def refused(tmp_path: Path, data: Any, out: str = "out.parquet", made: Any = INTERVAL, **options: Any) -> str:
    return refusal(apply_conformal, made, data, tmp_path / out, **options)


def test_every_form_of_data(tmp_path: Path) -> None:
    data = frame()
    data.to_parquet(tmp_path / "d.parquet")
    data.to_csv(tmp_path / "d.csv", index=False)
    np.savez(tmp_path / "d.npz", p=data.p.to_numpy(), s=data.s.to_numpy())
    forms = {
        "parquet": tmp_path / "d.parquet",
        "csv": str(tmp_path / "d.csv"),
        "npz": tmp_path / "d.npz",
        "pandas": data,
        "polars": pl.from_pandas(data),
        "mapping": {"p": data.p.tolist(), "s": data.s.to_numpy()},
        "arrow": pa.table(data),
        "stream": pa.table(data).to_reader(),
    }
    expected = INTERVAL.predict_interval(data.p, scale=data.s)
    for name, form in forms.items():
        table = written(INTERVAL, form, tmp_path / f"{name}.parquet")
        assert interval_of(table).tobytes() == expected.tobytes(), name
        assert table["p"].to_numpy().tolist() == data.p.tolist(), name
    table = parquet.read_table(tmp_path / "csv.parquet")
    assert table["id"].to_pylist() == data.id.tolist()
    assert table["site"].to_pylist() == data.site.tolist()


def test_streamed_equals_in_memory_over_many_batches(tmp_path: Path) -> None:
    data = frame(200_000)
    data.to_parquet(tmp_path / "d.parquet")
    table = written(INTERVAL, tmp_path / "d.parquet", tmp_path / "o.parquet")
    assert interval_of(table).tobytes() == INTERVAL.predict_interval(data.p, scale=data.s).tobytes()
    assert parquet.read_metadata(tmp_path / "o.parquet").num_row_groups > 1


def test_a_table_of_a_database(tmp_path: Path) -> None:
    data = frame()
    with sqlite3.connect(tmp_path / "d.sqlite") as connection:
        data.to_sql("predictions", connection, index=False)
    source = Database(url=f"sqlite:///{tmp_path}/d.sqlite", query="SELECT p, s FROM predictions ORDER BY id")
    table = written(INTERVAL, source, tmp_path / "o.parquet")
    ordered = data.sort_values("id")
    assert interval_of(table).tolist() == INTERVAL.predict_interval(ordered.p, scale=ordered.s).tolist()


def test_empty_intervals_are_null_infinite_ones_are_not_and_sets_may_be_empty(tmp_path: Path) -> None:
    data = {"a": [0.0, 0.0], "b": [2.0, 0.5]}
    table = written(predictor("cqr", -0.5), data, tmp_path / "cqr.parquet")
    assert table["lower"].to_pylist() == [pytest.approx(0.5), None]
    assert table["upper"].to_pylist() == [pytest.approx(1.5), None]
    table = written(predictor("cqr", math.inf), data, tmp_path / "all.parquet")
    assert table["lower"].to_pylist() == [-math.inf] * 2
    assert table["upper"].to_pylist() == [math.inf] * 2
    table = written(predictor("lac", 0.1), {"z": [[0.0, 0.0], [9.0, 0.0]]}, tmp_path / "lac.parquet")
    assert table["prediction_set"].to_pylist() == [[], [0]]
    assert table["set_size"].to_pylist() == [0, 1]


def test_a_threshold_for_each_class_group_or_client(tmp_path: Path) -> None:
    rows, images = regression_rows(), class_rows()
    by_class = predictor("lac", {"0": 0.5, "1": 0.9, "2": math.inf, "3": 0.2}, by="class")
    table = written(by_class, images, tmp_path / "class.parquet")
    assert members_of(table).tolist() == by_class.predict_set(images["z"]).tolist()
    by_group = predictor("absolute", {"F": 1.0, "M": 2.0, "other": 3.0}, by="group")
    table = written(by_group, rows, tmp_path / "group.parquet")
    assert interval_of(table).tolist() == by_group.predict_interval(rows["p"], group=rows["sex"]).tolist()
    assert table["sex"].to_pylist() == rows["sex"].tolist()
    by_client = predictor("absolute", {"north": 1.0, "south": 2.0}, by="client")
    table = written(by_client, rows, tmp_path / "client.parquet")
    expected = by_client.predict_interval(rows["p"], client=rows["site"])
    assert interval_of(table).tolist() == expected.tolist()


def test_in_a_folder_each_file_is_a_client(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    rows = {name: regression_rows(seed=seed)["p"] for seed, name in enumerate(("north", "south"))}
    for name, p in rows.items():
        pd.DataFrame({"p": p}).to_csv(folder / f"{name}.csv", index=False)
    (folder / "empty.csv").touch()
    made = predictor("absolute", {"north": 1.0, "south": 2.0}, by="client", columns={"prediction": "p"})
    table = written(made, folder, tmp_path / "o.parquet")
    assert table.column_names[0] == "client"
    for name, p in rows.items():
        own = table.filter(pa.compute.equal(table["client"], name))
        assert interval_of(own).tolist() == made.predict_interval(p, client=[name] * len(p)).tolist()
    pd.DataFrame({"p": [1.0]}).to_csv(folder / "west.csv", index=False)
    assert "client: got 'west', which has no threshold" in refused(tmp_path, folder, made=made)
    for name in ("a", "b"):
        (tmp_path / "logits").mkdir(exist_ok=True)
        np.savez(tmp_path / "logits" / f"{name}.npz", z=np.zeros((3, 2 if name == "a" else 3)))
    assert "expected 2 as in" in refused(tmp_path, tmp_path / "logits", made=SETS)


def test_files_without_the_column_of_the_calibration_are_clients_themselves(tmp_path: Path) -> None:
    made = predictor("absolute", {"north": 1.0, "south": 2.0}, by="client")
    assert made.columns["client"] == "site"
    folder = tmp_path / "sites"
    folder.mkdir()
    rows = {name: regression_rows(seed=seed)["p"] for seed, name in enumerate(("north", "south"))}
    for name, p in rows.items():
        pd.DataFrame({"p": p}).to_parquet(folder / f"{name}.parquet")
    table = written(made, folder, tmp_path / "o.parquet")
    sites = np.repeat(list(rows), 60)
    expected = made.predict_interval(np.concatenate(list(rows.values())), client=sites)
    assert interval_of(table).tolist() == expected.tolist()
    assert table["client"].to_pylist() == sites.tolist()
    # Whoever names a column means it, and a column that is there goes before the file's name.
    assert "'site' (client)" in refused(tmp_path, folder, made=made, columns={"client": "site"})
    for name in rows:
        pd.DataFrame({"p": [0.0], "site": ["south"]}).to_parquet(folder / f"{name}.parquet")
    table = written(made, folder, tmp_path / "s.parquet")
    assert interval_of(table).tolist() == [[-2.0, 2.0]] * 2
    assert "'site' (client)" in refused(tmp_path, {"p": [0.0]}, made=made)


def test_csv_out(tmp_path: Path) -> None:
    data = frame().assign(note=['a "b", c', "line\nbreak", None] * 20, n=np.arange(60))
    apply_conformal(INTERVAL, data, tmp_path / "o.csv")
    found = pd.read_csv(tmp_path / "o.csv", dtype={"id": str})
    assert (
        found[["lower", "upper"]].to_numpy().tolist()
        == INTERVAL.predict_interval(data.p, scale=data.s).tolist()
    )
    pd.testing.assert_frame_equal(found[list(data)], data, check_dtype=False)
    # Text of a CSV file comes out as it came in.
    (tmp_path / "in.csv").write_text("p,s,code\n0.50,1.0,007\n1e0,2,\n")
    apply_conformal(INTERVAL, tmp_path / "in.csv", tmp_path / "same.csv")
    found = pd.read_csv(tmp_path / "same.csv", dtype=str).fillna("")
    assert found[["p", "s", "code"]].to_numpy().tolist() == [["0.50", "1.0", "007"], ["1e0", "2", ""]]
    assert list(found) == ["p", "s", "code", "lower", "upper"]


def test_lists_in_a_csv_file_are_text(tmp_path: Path) -> None:
    logits = [[0.0, 0.0, -50.0, 0.0], [9.0, 0.0, 0.5, 0.25], [0.0, 0.0, 0.0, 0.0]]
    forms = {
        "lists": pa.table({"z": logits}),
        "fixed": pa.table({"z": pa.array(logits, pa.list_(pa.float64(), 4))}),
        "sliced": pa.table({"z": [[1.0], *logits]}).slice(1),
        "frame": pd.DataFrame({"z": logits}),
    }
    for name, form in forms.items():
        out = tmp_path / f"{name}.csv"
        apply_conformal(predictor("lac", 0.7), form, out)
        found = pd.read_csv(out, keep_default_na=False)
        assert found.prediction_set.tolist() == ["0 1 3", "0", ""], name
        assert found.set_size.tolist() == [3, 1, 0]
        assert [[float(one) for one in row.split()] for row in found.z] == logits
    nested = pa.table({"p": [1.0], "s": [1.0], "deep": [[[1.0]]]})
    assert "column 'deep'" in refused(tmp_path, nested, out="deep.csv")
    assert ".parquet file instead" in refused(
        tmp_path, pa.table({"p": [1.0], "s": [1.0], "m": [{"a": 1}]}), out="d.csv"
    )


def test_a_csv_file_is_complete_or_not_there(tmp_path: Path) -> None:
    data = frame(300_000)
    data.loc[271_828, "p"] = math.nan
    data.to_parquet(tmp_path / "d.parquet")
    assert "row 271828" in refused(tmp_path, tmp_path / "d.parquet", out="out.csv")
    (tmp_path / "out.csv").write_text("mine")
    assert "--force" in refused(tmp_path, frame(), out="out.csv")
    assert "no rows" in refused(tmp_path, frame(0), out="out.csv", overwrite=True)
    apply_conformal(INTERVAL, frame(7), tmp_path / "out.csv", overwrite=True)
    assert len(pd.read_csv(tmp_path / "out.csv")) == 7


def test_other_names_for_the_columns(tmp_path: Path) -> None:
    data = {"lower": [0.0, 1.0], "upper": [1.0, 4.0]}
    made = predictor("cqr", 0.25)
    roles = {"lower": "lower", "upper": "upper", "logits": None}
    table = written(made, data, tmp_path / "o.parquet", columns=roles, column="conformal")
    assert table.column_names == ["lower", "upper", "conformal_lower", "conformal_upper"]
    ends = interval_of(table, ("conformal_lower", "conformal_upper"))
    assert ends.tolist() == made.predict_interval(lower=[0.0, 1.0], upper=[1.0, 4.0]).tolist()
    table = written(
        SETS, {"w": [[0.0, 1.0]]}, tmp_path / "s.parquet", columns={"logits": "w"}, column="likely"
    )
    assert table.column_names == ["w", "likely", "likely_size"]


def test_what_is_refused(tmp_path: Path) -> None:
    data = frame()
    assert "did you mean" in refused(tmp_path, data.rename(columns={"p": "P"}))
    assert "column 'upper'; give the new one another name with --column" in refused(
        tmp_path, data.assign(upper=1.0)
    )
    assert "--column" in refused(tmp_path, data.assign(c_lower=1.0), column="c")
    assert "expected .parquet or .csv" in refused(tmp_path, data, out="out.xlsx")
    assert "folder does not exist" in refused(tmp_path, data, out="no/out.parquet")
    assert "no rows" in refused(tmp_path, data.head(0))
    assert "above 0" in refused(tmp_path, data.assign(s=0.0))
    assert "give --scale" in refused(
        tmp_path, data, made=predictor("normalised", columns={"prediction": "p"})
    )
    assert "--by: this artefact does not need it" in refused(tmp_path, data, columns={"group": "sex"})
    assert "--logits: this artefact does not need it" in refused(tmp_path, data, columns={"logits": "z"})
    assert "column of your own" in refused(tmp_path, data, made=predictor("conformity"))
    by_client = predictor("absolute", {"north": 1.0}, by="client", columns={"prediction": "p"})
    assert "give --client" in refused(tmp_path, data, made=by_client)
    assert "'south', which has no threshold" in refused(
        tmp_path, data, made=by_client, columns={"client": "site"}
    )
    groups = predictor("absolute", {"F": 1.0, "M": 1.0}, by="group")
    assert "group: got 'X'" in refused(tmp_path, data, made=groups)
    two = predictor("lac", {"0": 0.5, "1": 0.5}, by="class")
    assert "got 4 classes, expected the 2 that it was calibrated on" in refused(
        tmp_path, class_rows(), made=two
    )
    assert "got 4 classes, expected the 5" in refused(
        tmp_path, class_rows(), made=predictor("aps", classes=5)
    )
    assert "did you mean 'z'?" in refused(
        tmp_path, pd.DataFrame(NUMBERED), made=SETS, columns={"logits": "zs"}
    )


def test_an_existing_file_is_replaced_only_if_told(tmp_path: Path) -> None:
    written(INTERVAL, frame(), tmp_path / "out.parquet")
    assert "--force" in refused(tmp_path, frame())
    assert len(written(INTERVAL, frame(7), tmp_path / "out.parquet", overwrite=True)) == 7


# --- the command ------------------------------------------------------------------------------------------


def files(tmp_path: Path, made: Any, data: pd.DataFrame | None = None) -> tuple[Path, Path, Path]:
    artefact, rows, out = tmp_path / "conformal.json", tmp_path / "new.csv", tmp_path / "out.parquet"
    made.save(artefact)
    (frame() if data is None else data).to_csv(rows, index=False)
    return artefact, rows, out


def test_the_command_writes_intervals_and_sets(capsys: Any, tmp_path: Path) -> None:
    data = frame()
    artefact, rows, out = files(tmp_path, INTERVAL, data.drop(columns="y"))
    code, words, _ = call(capsys, "apply", artefact, rows, "--out", out)
    assert code == 0
    assert "(60 rows, columns lower and upper)" in " ".join(words.split())
    assert "Warning" not in words
    expected = INTERVAL.predict_interval(data.p, scale=data.s)
    assert interval_of(parquet.read_table(out)).tolist() == expected.tolist()
    artefact, rows, _ = files(tmp_path, SETS, pd.DataFrame(NUMBERED).rename(columns=lambda name: "l" + name))
    code, words, _ = call(
        capsys, "apply", artefact, rows, "--out", out, "--logits", "lz", "--force", "--column", "likely"
    )
    assert code == 0
    assert "columns likely and likely_size" in " ".join(words.split())
    assert call(capsys, "apply", artefact, rows, "--out", out, "--logits", "lz", "-q", "--force") == (
        0,
        "",
        "",
    )


def test_every_column_can_be_named(capsys: Any, tmp_path: Path) -> None:
    data = frame().rename(columns={"a": "down", "b": "up", "sex": "gender", "site": "hospital", "s": "width"})
    groups = {"F": 1.0, "M": 2.0, "other": 3.0}
    cases = (
        (predictor("cqr", 0.1), ("--lower", "down", "--upper", "up")),
        (predictor("normalised"), ("--prediction", "y", "--scale", "width")),
        (predictor("absolute", groups, by="group"), ("--by", "gender")),
        (predictor("absolute", {"north": 1.0, "south": 1.0}, by="client"), ("--client", "hospital")),
    )
    for made, named in cases:
        artefact, rows, out = files(tmp_path, made, data)
        code, _, err = call(capsys, "apply", artefact, rows, "--out", out, "--force", *named)
        assert code == 0, err
        assert call(capsys, "apply", artefact, rows, "--out", out, "--force")[0] == 2


def test_the_command_warns_of_what_promises_nothing_or_holds_everything(capsys: Any, tmp_path: Path) -> None:
    for one, sentence in (
        (
            threshold(1.0, kind="none", reason="[bold]it is a mean"),
            "No coverage is guaranteed: [bold]it is a mean.",
        ),
        (
            threshold(math.inf, reason="few rows"),
            "The threshold is infinite, so that sets hold everything: few rows.",
        ),
    ):
        artefact, rows, out = files(tmp_path, predictor("absolute", thresholds={"all": one}))
        code, words, _ = call(capsys, "apply", artefact, rows, "--out", out, "--force")
        assert code == 0
        assert f"Warning: {sentence}" in " ".join(words.split())


def test_an_infinite_threshold_is_told_only_where_rows_have_it(capsys: Any, tmp_path: Path) -> None:
    parts = {"F": threshold(1.0), "M": threshold(math.inf, reason="few rows"), "other": threshold(math.inf)}
    made = predictor("absolute", by="group", thresholds=parts)
    data = frame()

    def warned(rows: pd.DataFrame, made: Any = made) -> tuple[str, ...]:
        return apply_conformal(made, rows, tmp_path / "o.parquet", overwrite=True).warnings

    assert warned(data[data.sex == "F"]) == ()
    title = "The threshold is infinite, so that sets hold everything for"
    assert warned(data[data.sex != "X"]) == (f"{title} group 'M' (20 rows): few rows.",)
    assert warned(data) == (f"{title} group 'M', 'other' (40 rows): few rows.",)
    alone = predictor("absolute", {"north": 1.0, "south": math.inf}, by="client")
    assert warned(data, alone) == (f"{title} client 'south' (30 rows).",)
    assert warned(data.head(2), alone) == (f"{title} client 'south' (1 row).",)
    assert warned(data[data.site == "north"], alone) == ()
    classes = predictor("lac", {"0": 0.5, "1": math.inf}, by="class")
    (sentence,) = apply_conformal(classes, {"z": [[0.0, 3.0]]}, tmp_path / "c.parquet").warnings
    assert sentence == "The threshold is infinite for class '1', so that every set holds it."
    artefact, rows, out = files(tmp_path, made, data[data.sex == "F"])
    assert "Warning" not in call(capsys, "apply", artefact, rows, "--out", out)[1]
    artefact, rows, out = files(tmp_path, made, data)
    assert "(40 rows)" in " ".join(call(capsys, "apply", artefact, rows, "--out", out, "--force")[1].split())


def test_the_command_warns_of_probabilities_as_check_does(capsys: Any, tmp_path: Path) -> None:
    p = np.exp(class_rows()["z"])
    p = p / p.sum(axis=1, keepdims=True)
    numbered = pd.DataFrame({f"z_{k}": column for k, column in enumerate(p.T)})
    artefact, rows, out = files(tmp_path, SETS, numbered)
    _, words, _ = call(capsys, "apply", artefact, rows, "--out", out)
    _, checked, _ = call(capsys, "check", rows, "--logits", "z")
    sentence = " ".join(checked.split()).partition("column 'z' (logits)")[2].partition("same model.")[0]
    assert "probabilities by their looks" in sentence
    assert "Warning: " in words
    assert f"column 'z' (logits){sentence}same model." in " ".join(words.split())
    artefact, rows, out = files(tmp_path, SETS, np.log(numbered))
    assert "Warning" not in call(capsys, "apply", artefact, rows, "--out", out, "--force")[1]


def test_a_result_is_no_artefact(capsys: Any, tmp_path: Path) -> None:
    artefact, rows, out = files(tmp_path, INTERVAL)
    result = fedassay.conformal(
        regression_rows(600), client="site", target="y", prediction="p", privacy=fedassay.Plain()
    )
    result.save(artefact)
    code, _, err = call(capsys, "apply", artefact, rows, "--out", out)
    assert code == 2
    assert "this is a result (--json); apply needs the file written by --out." in " ".join(err.split())


def test_the_command_refuses_with_one_sentence_and_exit_code_2(capsys: Any, tmp_path: Path) -> None:
    artefact, rows, out = files(tmp_path, INTERVAL)
    (tmp_path / "odd.json").write_text('{"artefact": "conformal", "format": 9}')
    (tmp_path / "other.json").write_text('{"artefact": "other"}')
    for arguments, words in (
        ((tmp_path / "none.json", rows), "cannot be read"),
        ((rows, rows), "not JSON"),
        ((tmp_path / "odd.json", rows), "another format, expected 1"),
        ((tmp_path / "other.json", rows), "expected what `fedassay calibrate --out`"),
        ((artefact, tmp_path / "none.csv"), "does not exist"),
        ((artefact, rows, "--prediction", "q"), "'q'"),
        ((artefact, rows, "--score", "p"), "--score: this artefact does not need it"),
        ((artefact, rows, "--lower", "a"), "--lower: this artefact does not need it"),
        ((artefact, rows, "--client", "site"), "--client: this artefact does not need it"),
    ):
        code, _, err = call(capsys, "apply", *arguments, "--out", out)
        assert code == 2
        assert words in " ".join(err.split())
        assert "Traceback" not in err
        assert not out.exists()


def test_options_of_intervals_are_refused_for_a_calibrator(capsys: Any, tmp_path: Path) -> None:
    calibrator = fedassay.Calibrator(map=Sigmoid(a=1, b=1, c=0), method="platt", columns={"score": "p"})
    artefact, rows, out = files(tmp_path, calibrator)
    code, _, err = call(capsys, "apply", artefact, rows, "--out", out, "--upper", "b")
    assert code == 2
    assert "--upper: the artefact is a calibrator" in " ".join(err.split())
