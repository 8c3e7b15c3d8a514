"""Wrong usages of the command line: each ends with one sentence and the right exit code, and destroys nothing.

`USAGES` has what is typed, `make_files` the data that it is typed about. The stored table has for each the exit code
and the sentence.
"""

from __future__ import annotations

import csv
import gzip
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from golden.runner import call, inside

MEAN = "--client site --score risk --label y"
SIMPLE = "--score risk --label y"

USAGES: Mapping[str, str] = {
    "typo command": "evalute x.csv",
    "typo option": f"evaluate all.csv {MEAN} --epsilom 1",
    "no arguments": "evaluate",
    "no command": "",
    "missing file": f"evaluate nope.csv {SIMPLE}",
    "missing column": "evaluate all.csv --client site --score rsk --label y",
    "score is the label": "evaluate all.csv --client site --score y --label y",
    "epsilon without noise": f"evaluate all.csv {MEAN} --epsilon 1",
    "noise without epsilon": f"evaluate all.csv {MEAN} --privacy distributed-dp",
    "epsilon 0": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon 0",
    "epsilon -1": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon -1",
    "epsilon abc": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon abc",
    "epsilon nan": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon nan",
    "epsilon 1e308": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon 1e308",
    "epsilon 1e-300": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon 1e-300",
    "delta 2": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon 1 --delta 2",
    "privacy typo": f"evaluate all.csv {MEAN} --privacy securesum",
    "option of another trust model": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon 1 --dropout 0.2",
    "unit typo": f"evaluate all.csv {MEAN} --privacy server-dp --epsilon 1 --unit person",
    "threshold 50": f"evaluate all.csv {MEAN} --threshold 50",
    "height 60": f"evaluate all.csv {MEAN} --height 60",
    "level 95": f"evaluate all.csv {MEAN} --level 95",
    "by and versus": f"evaluate all.csv {MEAN} --by sex --versus risk",
    "missing column by": f"evaluate all.csv {MEAN} --by gender",
    "by with a group for each row": f"evaluate all.csv {MEAN} --by patient",
    "per site under noise": f"evaluate all.csv {MEAN} --per-site --privacy server-dp --epsilon 1",
    "seed huge": f"evaluate all.csv {MEAN} --seed 99999999999999999999999",
    "seed negative": f"evaluate all.csv {MEAN} --seed -1",
    "score and logits": f"evaluate all.csv {MEAN} --logits z",
    "empty file": f"evaluate empty.csv {MEAN}",
    "header only": f"evaluate header.csv {MEAN}",
    "random bytes": f"evaluate bin.csv {MEAN}",
    "fake parquet": f"evaluate fake.parquet {MEAN}",
    "ragged rows": f"evaluate ragged.csv {MEAN}",
    "open quote": f"evaluate quote.csv {MEAN}",
    "columns twice": f"evaluate dup.csv {MEAN}",
    "infinite score": f"evaluate inf.csv {MEAN}",
    "score 1e400": f"evaluate big.csv {MEAN}",
    "NUL byte": f"evaluate nul.csv {MEAN}",
    "semicolons": f"evaluate commas.csv {MEAN}",
    "one class": f"evaluate oneclass.csv {MEAN}",
    "one site": f"evaluate onesite.csv {MEAN}",
    "old name of an option": "evaluate 'uni ö 名/dåta file.csv' --score 'Risiko ö 名' --label y --trust plain",
    "letters of other alphabets": (
        "evaluate 'uni ö 名/dåta file.csv' --score 'Risiko ö 名' --label y --privacy plain --json 'uni ö 名/r.json'"
    ),
    "carriage returns": f"check crlf.csv {MEAN}",
    "folder with other files": f"evaluate folder {SIMPLE} --privacy plain",
    "compressed file": f"evaluate x.csv.gz {SIMPLE}",
    "folder as output": f"evaluate all.csv {MEAN} --json ro",
    "report in no folder": f"evaluate all.csv {MEAN} --report nodir/x.html",
    "report that is no page": f"evaluate all.csv {MEAN} --report x.pdf",
    "report and JSON in one file": f"evaluate all.csv {MEAN} --report x.html --json x.html",
    "full disk": f"evaluate all.csv {MEAN} --json /dev/full",
    "run rows": "run all.csv",
    "run nothing": "run nope.toml",
    "run a study with a typo": "run typo.toml",
    "run a study that is not TOML": "run broken.toml",
    "run a study with two trust models' options": "run mixed.toml",
    "verify a file": "verify all.csv",
    "verify nothing": "verify nope",
    "apply a result": "apply result.json all.csv --out o.csv",
    "apply to ragged rows": "apply calibrator.json ragged.csv --out o.csv",
    "apply without the column": "apply calibrator.json hospital_a.csv --out o.csv",
    "apply onto the input": "apply calibrator.json small.csv --out small.csv",
    "apply to a spreadsheet": "apply calibrator.json small.csv --out o.xlsx",
    "init without a terminal": "init all.csv",
    "ledger without a file": "ledger show",
    "ledger of no file": "ledger show nope.sqlite",
    "keys without a name": "keys",
    "keys onto a folder": "keys existing-folder",
    "contribute without options": "contribute all.csv",
    "plan typo": "plan evalute --rows 100",
    "plan no rows": "plan evaluate --rows 0 --prevalence 0.1 --auc 0.8",
    "plan auc 1.5": "plan evaluate --rows 100 --prevalence 0.1 --auc 1.5",
    "plan rows abc": "plan evaluate --rows many --prevalence 0.1 --auc 0.8",
    "plan nothing": "plan evaluate",
    "calibrate method typo": f"calibrate all.csv {MEAN} --method plat",
    "calibrate holdout 2": f"calibrate all.csv {MEAN} --holdout 2",
    "calibrate bins of another method": f"calibrate all.csv {MEAN} --method platt --bins 5",
    "calibrate solver without logits": f"calibrate all.csv {MEAN} --solver fedavg",
    "conformal level 90": f"conformal all.csv {MEAN} --level 90",
    "conformal half of the columns": "conformal all.csv --client site --target risk",
    "conformal sets without logits": f"conformal all.csv {MEAN} --sets aps",
    "ecdf without a range": "ecdf all.csv --client site --value age",
    "ecdf range turned round": "ecdf all.csv --client site --value age --lower 9 --upper 1",
    "ecdf of words": "ecdf all.csv --client site --value sex --lower 0 --upper 1",
    "quantiles under a secure sum": (
        "quantiles all.csv --client site --value age --lower 0 --upper 128 --quantile 0.5 --privacy secure-sum"
    ),
    "hosmer-lemeshow one group": f"hosmer-lemeshow all.csv {MEAN} --groups 1",
    "infer model typo": "infer all.csv --client site --target age --features risk --model liner",
    "infer words as a feature": "infer all.csv --client site --target age --features sex",
    "infer target among the features": "infer all.csv --client site --target age --features age,risk",
    "database without a server": f"evaluate postgresql://nobody@127.0.0.1:1/x --query 'select 1' {SIMPLE}",
    "database of another make": f"evaluate mysql://a@b/c --query 'select 1' {SIMPLE}",
    "query without a database": f"evaluate all.csv --query 'select 1' {SIMPLE}",
    "web address": f"evaluate https://example.org/x.csv {SIMPLE}",
    "bucket": f"evaluate s3://bucket/x.parquet {SIMPLE}",
    "pattern of files": f"evaluate '*.csv' {SIMPLE}",
    "standard input": f"evaluate - {MEAN}",
}

ONLY_EXIT_CODE = frozenset({"no command", "database without a server"})
"""What they say is stored elsewhere, as the help, or in the words of another program's version."""

STUDY = 'name = "s"\n[data]\npath = "all.csv"\nclient = "site"\n[data.columns]\nscore = "risk"\nlabel = "y"\n'


def make_files(folder: Path) -> None:
    """The data that the usages are about."""
    rows = _rows()
    _write(folder / "all.csv", rows)
    _write(folder / "small.csv", rows[:61])
    _write(folder / "hospital_a.csv", [row[1:2] + row[3:] for row in rows[:61]])
    _write(folder / "commas.csv", rows, delimiter=";")
    _write(folder / "oneclass.csv", [rows[0], *([*row[:3], 0, *row[4:]] for row in rows[1:])])
    _write(folder / "onesite.csv", [rows[0], *(["a", *row[1:]] for row in rows[1:])])
    _write(folder / "header.csv", rows[:1])
    _write(folder / "dup.csv", [["site", "risk", "risk", "y"], *([r[0], r[2], r[2], r[3]] for r in rows[1:])])
    for name, score in (("inf", "inf"), ("big", "1e400")):
        _write(folder / f"{name}.csv", [*rows[:20], [*rows[20][:2], score, *rows[20][3:]], *rows[21:]])
    text = (folder / "all.csv").read_text()
    lines = text.split("\n")
    (folder / "ragged.csv").write_text("\n".join([*lines[:10], lines[10] + ",1,2", *lines[11:]]))
    (folder / "quote.csv").write_text("\n".join([*lines[:10], '"' + lines[10], *lines[11:]]))
    (folder / "nul.csv").write_bytes(text.encode().replace(b"\na,", b"\na\0,", 1))
    (folder / "crlf.csv").write_bytes(text.encode().replace(b"\n", b"\r\n"))
    (folder / "empty.csv").write_bytes(b"")
    (folder / "bin.csv").write_bytes(np.random.default_rng(1).bytes(3000))
    (folder / "fake.parquet").write_text("not a table\n")
    (folder / "x.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for name in ("ro", "existing-folder", "folder", "uni ö 名"):
        (folder / name).mkdir()
    pq.write_table(pa.table({"risk": [0.1, 0.9], "y": [0, 1]}), folder / "folder" / "a.parquet")
    (folder / "folder" / "letter.docx").write_bytes(b"PK")
    _write(folder / "uni ö 名" / "dåta file.csv", [["Risiko ö 名", "y"], *(row[2:4] for row in rows[1:])])
    (folder / "typo.toml").write_text(STUDY + "[tasks.evaluate]\nthreshold = [0.5]\n")
    (folder / "broken.toml").write_text(STUDY + "[tasks.evaluate\n")
    mixed = '[privacy]\nprivacy = "server-dp"\nepsilon = 1.0\n[privacy.parameters]\ndropout = 0.2\n[tasks.evaluate]\n'
    (folder / "mixed.toml").write_text(STUDY + mixed)
    (folder / "result.json").write_text(json.dumps({"task": "evaluate", "results": {}}))
    with inside(folder):
        made = f"calibrate all.csv {MEAN} --method platt --seed 1 --quiet --out calibrator.json --json scores.json"
        assert call(*made.split())[0] == 0


def _rows() -> list[list[Any]]:
    """A header, and 600 rows of three sites."""
    rng, many = np.random.default_rng(5), 600
    odds = rng.normal(size=many)
    risk, label = 1 / (1 + np.exp(-odds)), rng.random(many) < 1 / (1 + np.exp(-odds))
    ages = rng.integers(20, 90, many)
    header = ["site", "patient", "risk", "y", "sex", "age", "date", "race"]
    rows = (
        [
            *("abc"[k % 3], f"p{k}", round(float(risk[k]), 4), int(label[k])),
            *("FM"[k % 2], int(ages[k]), f"2025-01-{k % 28 + 1:02d}", "xyz"[k % 3]),
        ]
        for k in range(many)
    )
    return [header, *rows]


def _write(path: Path, rows: Iterable[Sequence[Any]], delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)


def ask(name: str, folder: Path) -> dict[str, Any]:
    """The exit code and the sentence of a usage; no sentence where it works."""
    with inside(folder):
        code, out, err = call(*shlex.split(USAGES[name]))
    sentence = None if code == 0 or name in ONLY_EXIT_CODE else _sentence(err if err.strip() else out, folder)
    return {"arguments": USAGES[name], "exit": code, "says": sentence}


def _sentence(text: str, folder: Path) -> str:
    """One line, without the frames that a library draws; of a traceback only its last line."""
    if "Traceback (most recent call last)" in text:
        return f"Traceback: {text.strip().splitlines()[-1]}"
    words = (word for word in text.replace(str(folder), "FOLDER").split() if set(word) - set("╭─╮│╰╯"))
    return " ".join(words)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(_files(folder))}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
