"""Databases as data: what only they can get wrong. The common contract is in the tests of the other forms."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_forms import COLUMNS, in_form, small, write
from test_data_formats import column

import postgres
from fedassay.cli import run_command
from fedassay.data import sql
from fedassay.data.check import check
from fedassay.data.federation import load
from fedassay.data.sources import source_named
from fedassay.data.sql import Database
from fedassay.errors import DataError, FedassayError, UsageError

KINDS = ["sqlite", "postgresql"]
SECRET = "sesame"


def database(kind: str, folder: Path, *statements: str, query: str = "select * from t") -> Database:
    """A database in which these statements were executed."""
    if kind == "postgresql":
        postgres.execute("drop table if exists t, u", *statements)
        return Database(url=postgres.server(), query=query)
    with contextlib.closing(sqlite3.connect(folder / "t.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return Database(url=f"sqlite:///{folder / 't.db'}", query=query)


def executed(kind: str, folder: Path, statement: str) -> None:
    if kind == "postgresql":
        postgres.execute(statement)
    else:
        with contextlib.closing(sqlite3.connect(folder / "t.db")) as connection, connection:
            connection.execute(statement)


THREE_ROWS = (
    "create table t (p double precision, y integer)",
    "insert into t values (0.25, 0), (0.5, 1), (0.75, 1)",
)


# --- types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "type_name"),
    [
        *(("postgresql", name) for name in ("real", "double precision", "numeric", "numeric(10, 4)", "text")),
        *(("sqlite", name) for name in ("real", "numeric", "decimal(10, 4)", "text", "")),
    ],
)
def test_scores_of_every_type(kind: str, type_name: str, tmp_path: Path) -> None:
    data = database(
        kind, tmp_path, f"create table t (p {type_name})", "insert into t values ('0.25'), ('1'), ('0')"
    )
    federation = load(data, columns={"score": "p"})
    assert column(federation.pooled(), "score") == [0.25, 1.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "type_name", "values"),
    [
        *(("postgresql", name, "('0'), ('1')") for name in ("smallint", "bigint", "numeric", "text", "real")),
        ("postgresql", "boolean", "(false), (true)"),
        ("postgresql", "text", "('False'), ('TRUE')"),
        ("sqlite", "integer", "(0), (1)"),
        ("sqlite", "boolean", "(false), (true)"),
        ("sqlite", "text", "('0.0'), ('1.0')"),
        ("sqlite", "", "(0), ('true')"),
    ],
)
def test_labels_of_every_type(kind: str, type_name: str, values: str, tmp_path: Path) -> None:
    data = database(kind, tmp_path, f"create table t (y {type_name})", f"insert into t values {values}")
    assert column(load(data, columns={"label": "y"}).pooled(), "label") == [0, 1]


@pytest.mark.parametrize(
    ("kind", "type_name", "stored", "name"),
    [
        ("postgresql", "integer", "7", "7"),
        ("postgresql", "numeric", "7", "7"),
        ("postgresql", "varchar(9)", "'007'", "007"),
        (
            *("postgresql", "uuid", "'5f0c3a52-6a1e-4d33-9f2c-0a8b7d5e1c11'"),
            "5f0c3a52-6a1e-4d33-9f2c-0a8b7d5e1c11",
        ),
        ("postgresql", "date", "'2020-01-02'", "2020-01-02"),
        ("postgresql", "bytea", "'é'::bytea", "é"),
        ("postgresql", "inet", "'10.0.0.1'", "10.0.0.1"),
        ("sqlite", "integer", "7", "7"),
        ("sqlite", "text", "'007'", "007"),
        ("sqlite", "real", "7", "7"),
    ],
)
def test_clients_of_every_type(kind: str, type_name: str, stored: str, name: str, tmp_path: Path) -> None:
    data = database(
        kind, tmp_path, f"create table t (c {type_name}, y integer)", f"insert into t values ({stored}, 1)"
    )
    assert list(load(data, client="c", columns={"label": "y"}).clients) == [name]


@pytest.mark.parametrize(
    ("kind", "type_name", "good", "bad", "shown"),
    [
        ("postgresql", "numeric", "0.5", "null", "a missing value"),
        ("postgresql", "numeric", "0.5", "'NaN'", "a missing value"),
        ("postgresql", "real", "0.5", "1.5", "1.5"),
        ("postgresql", "text", "'0.5'", "'n/a'", "'n/a'"),
        ("sqlite", "real", "0.5", "null", "a missing value"),
        ("sqlite", "real", "0.5", "1.5", "1.5"),
        ("sqlite", "real", "0.5", "'n/a'", "'n/a'"),
    ],
)
def test_bad_values_name_their_row(
    kind: str, type_name: str, good: str, bad: str, shown: str, tmp_path: Path
) -> None:
    values = f"({good}), ({good}), ({bad})"
    data = database(kind, tmp_path, f"create table t (p {type_name})", f"insert into t values {values}")
    with pytest.raises(DataError, match=r"got 1 bad value in 3 rows") as caught:
        load(data, columns={"score": "p"})
    assert f"the first in row 2 (counting from 0): {shown}" in str(caught.value)
    assert str(caught.value).startswith(data.label)


def test_truth_values_are_labels_but_not_scores(tmp_path: Path) -> None:
    data = database("postgresql", tmp_path, "create table t (p boolean)", "insert into t values (true)")
    with pytest.raises(DataError, match="the first in row 0 .counting from 0.: True"):
        load(data, columns={"score": "p"})
    assert load(data, columns={"label": "p"}).row_count == 1


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_repeat_and_columns_that_are_missing(kind: str, tmp_path: Path) -> None:
    data = database(kind, tmp_path, *THREE_ROWS, query="select p, y, y as p from t")
    with pytest.raises(DataError, match=r"column 'p' \(score\): got 2 columns of this name"):
        load(data, columns=COLUMNS)
    with pytest.raises(
        DataError, match=r"column 'yy' \(label\): got no such column, expected one of 'p', 'y', 'p'"
    ):
        load(data, columns={"label": "yy"})


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows(kind: str, tmp_path: Path) -> None:
    data = database(kind, tmp_path, *THREE_ROWS, query="select * from t where p > 1")
    with pytest.raises(DataError, match="got no rows, expected at least one"):
        load(data, columns=COLUMNS)
    assert load(data, columns=COLUMNS, empty_is_fine=True).row_count == 0


@pytest.mark.parametrize("kind", KINDS)
def test_special_characters_of_drivers_are_just_characters(kind: str, tmp_path: Path) -> None:
    query = "select p, y, '100 %s %(a)s ? :b $1' as note from t where '5%' like '5%';"
    data = database(kind, tmp_path, *THREE_ROWS, query=query)
    (batch,) = data.open().batches(["note"])
    assert batch.column(0).to_pylist() == ["100 %s %(a)s ? :b $1"] * 3


# --- one snapshot, one order ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_later_passes_see_the_rows_of_the_first_in_their_order(kind: str, tmp_path: Path) -> None:
    """Streamed, so that every pass would ask again if it could."""
    data = database(
        kind,
        tmp_path,
        "create table t (p double precision)",
        "insert into t select n / 1000.0 from generate_series(0, 999) as s(n)"
        if kind == "postgresql"
        else "insert into t with recursive s(n) as (select 0 union all select n + 1 from s where n < 999) "
        "select n / 1000.0 from s",
        query="select p from t order by random()",
    )
    federation = load(data, columns={"score": "p"}, memory_limit=0)
    first = column(federation.pooled(), "score")
    assert first != sorted(first)
    executed(kind, tmp_path, "update t set p = 1")
    executed(kind, tmp_path, "insert into t values (0.5)")
    assert column(federation.pooled(), "score") == first
    assert column(federation.rows_of("17"), "score") == [first[17]]
    # The same question asked anew does see the change: the copy belongs to one opening.
    assert sorted(column(load(data, columns={"score": "p"}).pooled(), "score")) == [0.5] + [1.0] * 1000


def test_a_copy_that_outgrows_memory_goes_to_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_IN_MEMORY", 4096)
    monkeypatch.setattr(sql, "_ROWS_AT_ONCE", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    data = small()
    table = in_form("sqlite", data, tmp_path).open()
    assert table.copy._file._rolled
    assert list((tmp_path / "temporary").iterdir()) == []
    one, other = table.batches(["p"]), table.batches(["p", "site"])  # two readers, in turn
    together = [(a.column(0).to_pylist(), b.column(0).to_pylist()) for a, b in zip(one, other, strict=True)]
    assert len(together) == 5
    assert all(a == b for a, b in together)
    assert [p for part, _ in together for p in part] == data["p"].tolist()


# --- reading only ---------------------------------------------------------------------------------------------

WRITES = [
    *("delete from t", "insert into t values (1, 1) returning p, y", "create table u (a integer)"),
    *("drop table t", "select p, y from t; delete from t", "select p, y from t; commit; delete from t"),
    *("with gone as (delete from t returning p, y) select * from gone", "update t set y = 1 - y returning *"),
    *("begin", "pragma user_version = 3", "vacuum", "select p, y into u from t"),
    *("create temporary table v as select 1", "set transaction read write", "copy t to stdout"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statement", WRITES)
def test_the_database_refuses_to_write(kind: str, statement: str, tmp_path: Path) -> None:
    data = database(kind, tmp_path, *THREE_ROWS, query=statement)
    with pytest.raises(
        DataError, match="got an error from the database .*; write one SELECT that only reads"
    ):
        data.open()
    kept = Database(url=data.url, query="select * from t order by p")
    assert column(load(kept, columns=COLUMNS).pooled(), "score") == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_without_end_is_ended(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "with recursive n (i) as (select 1 union all select 1 from n) select count(*) from n"
    data = database(kind, tmp_path, *THREE_ROWS, query=endless)
    monkeypatch.setattr(sql, "_MOST_SECONDS", 1)
    with pytest.raises(DataError, match="interrupted|statement timeout"):
        data.open()


def test_a_url_may_name_another_time_for_queries(tmp_path: Path) -> None:
    data = database("postgresql", tmp_path, *THREE_ROWS, query="select pg_sleep(20)")
    mark = "&" if "?" in data.url else "?"
    with pytest.raises(DataError, match="statement timeout"):
        replace(data, url=f"{data.url}{mark}options=-cstatement_timeout%3D500").open()


def test_functions_that_write_are_refused_by_postgresql(tmp_path: Path) -> None:
    body = "$$ begin delete from t; return 1; end $$"
    data = database(
        "postgresql",
        tmp_path,
        *THREE_ROWS,
        f"create or replace function sly() returns integer language plpgsql as {body}",
        query="select p, y, sly() from t",
    )
    with pytest.raises(DataError, match="cannot execute DELETE in a read-only transaction"):
        data.open()


def test_sqlite_writes_no_other_file_either(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for statement in (
        f"vacuum into '{other}'",
        f"attach database '{other}' as o",
        "select load_extension('x')",
    ):
        with pytest.raises(DataError, match="authoriz"):
            database("sqlite", tmp_path, query=statement).open()
    assert not other.exists()


# --- secrets --------------------------------------------------------------------------------------------------

ODD_URLS = [
    f"postgresql://me:{SECRET}@x@host/db",
    f"postgresql://me:x@{SECRET}@host/db",
    f"postgresql://me:x@{SECRET}/y@host/db",
    f"postgresql://host:{SECRET}/db",
    f"postgresql://me:{SECRET}@host:port/db",
    f"postgresql:/me:{SECRET}@host/db",
    f"mysql://me:{SECRET}@host/db",
    f"{SECRET}://me@host/db",
    f"postgresql+{SECRET}://host/db",
    f"sqlite://me:{SECRET}@/t.db",
    f"sqlite:///t.db?key={SECRET}",
]


@pytest.mark.parametrize("url", ODD_URLS)
def test_a_url_that_is_not_understood_is_not_quoted(url: str) -> None:
    with pytest.raises(UsageError, match="data: got .*, expected ") as caught:
        Database(url=url, query="select 1")
    shown = "".join(traceback.format_exception(caught.value, chain=True)[-1:]) + repr(caught.value)
    assert SECRET not in shown
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "query", ["select * from t", "select nope from t", "delete from t", "select * from none"]
)
def test_the_password_is_never_shown(query: str, tmp_path: Path, capsys: Any) -> None:
    good = database("postgresql", tmp_path, *THREE_ROWS, query=query)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"postgresql://me:{SECRET}@127.0.0.1:{unused.getsockname()[1]}/db"
    wrong = good.url.partition("@")[2]
    urls = {postgres.PASSWORD: good.url, SECRET: nobody, "wr0ng": f"postgresql://reader:wr0ng@{wrong}"}
    for secret, url in urls.items():
        said = repr(Database(url=url, query=query))
        try:
            said += repr(load(Database(url=url, query=query), columns=COLUMNS))
        except FedassayError as error:
            said += "".join(traceback.format_exception(error))
        arguments = [url, "--query", query, "--score", "p", "--label", "y", "--json", "-"]
        codes = [run_command([command, *arguments]) for command in ("check", "evaluate")]
        assert codes in ([0, 0], [2, 2])
        captured = capsys.readouterr()
        said += captured.out + captured.err
        password = url.partition("//reader:")[2].partition("@")[0] or secret
        assert secret not in said
        assert password not in said


def test_failures_to_connect_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which does not exist, expected a database file"):
        Database(url=f"sqlite:///{tmp_path}/no.db", query="select 1").open()
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "bad.db").write_bytes(b"not a database" * 100)
    with pytest.raises(DataError, match="file is not a database"):
        Database(url=f"sqlite:///{tmp_path}/bad.db", query="select * from t").open()
    url = postgres.server().rpartition(":")[0] + ":1/postgres"
    with pytest.raises(DataError, match="check the URL, the password and the network"):
        Database(url=url, query="select 1").open()


def test_a_postgresql_url_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"run: pip install 'fedassay\[postgres\]'"):
        Database(url="postgresql://host/db", query="select 1").open()


# --- from the command line ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_give_the_same_result_as_a_file(kind: str, tmp_path: Path, capsys: Any) -> None:
    rng = np.random.default_rng(2)
    rows = {**small(4000), "p": np.round(rng.beta(2, 3, 4000), 6)}
    write(tmp_path / "rows.csv", rows)
    data = in_form(kind, rows, tmp_path)
    options = ["--client", "site", "--score", "p", "--label", "y", "--seed", "3", "--json", "-", "--quiet"]
    noisy = ["--privacy", "server-dp", "--epsilon", "1"]
    for privacy in ([], noisy):
        documents = []
        for source in ([str(tmp_path / "rows.csv")], [data.url, "--query", data.query]):
            assert run_command(["evaluate", *source, *options, *privacy]) == 0
            document = json.loads(capsys.readouterr().out)
            del document["runtime"]["seconds"]
            documents.append(document)
        assert documents[0] == documents[1]
    assert check(data, client="site", columns=COLUMNS).profile["rows"] == 4000


@pytest.mark.parametrize("command", ["check", "evaluate"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sqlite:///t.db"], "got a database URL without a query, expected both"),
        (["rows.csv", "--query", "select 1"], "query: got one for a file"),
        (["sqlite:///t.db", "--query", " "], "query: got an empty text"),
        (["sqlite:///t.db", "--query", "select p, y from t"], "which does not exist"),
        (["mysql://host/t", "--query", "select 1"], "got a URL of another kind of database"),
    ],
)
def test_bad_use_has_its_sentence(command: str, arguments: list[str], words: str, capsys: Any) -> None:
    assert run_command([command, *arguments, "--score", "p", "--label", "y"]) == 2
    captured = capsys.readouterr()
    assert words in (captured.out + captured.err).replace("\n", " ")


def test_relative_paths_start_where_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database("sqlite", tmp_path, *THREE_ROWS)
    source = source_named("sqlite:///t.db", "select * from t", folder=tmp_path)
    assert load(source, columns=COLUMNS).row_count == 3
    monkeypatch.chdir(tmp_path)
    assert load(source_named("sqlite:///t.db", "select * from t"), columns=COLUMNS).row_count == 3
    assert source_named("rows.csv", None, folder=tmp_path) == tmp_path / "rows.csv"
