"""A site's own file: every bad entry has its sentence, and what is not clearly allowed is not allowed."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from fedassay.crypto.identity import Identity, key_to_text
from fedassay.endpoint import FileStore
from fedassay.envelope import Refusal, open_reply, pack_request
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import Budget, Protection, Request, Setting, Sum, Summary
from fedassay.sites import SiteFile
from fedassay.summaries.coverage_counts import CoverageCounts
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.server_dp import ServerDP

IDENTITY = Identity.draw(SecureRandomness())
GOOD = f"""
name = "hospital-a"
dataset = "hospital-a/rows"
data = "scores.csv"
key = "a.key"
state = "state"
[columns]
score = "p"
label = "y"
[policy]
trust_models = ["secure-sum", "server-dp"]
smallest_cohort = 4
[budget]
epsilon = 3.0
delta = 1e-6
[roster]
hospital-a = "{key_to_text(IDENTITY.public)}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    IDENTITY.save(tmp_path / "a.key")
    (tmp_path / "scores.csv").write_text("p,y\n0.5,1\n0.25,0\n")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text)
    return path


def test_a_good_file(folder: Path) -> None:
    site = SiteFile.read(written(folder, GOOD))
    assert site.name == "hospital-a"
    assert site.data == folder / "scores.csv"
    assert site.columns == {"score": "p", "label": "y"}
    assert site.policy.trust_models == {"secure-sum", "server-dp"}
    assert site.policy.smallest_cohort == 4
    assert site.budget == Budget(epsilon=3.0, delta=1e-6)
    assert site.credentials.roster == {"hospital-a": IDENTITY.public}
    assert IDENTITY.private.data.hex() not in repr(site)


def test_an_opened_site_reads_its_rows_and_keeps_its_state_private(folder: Path) -> None:
    client = SiteFile.read(written(folder, GOOD)).open()
    (batch,) = client.site.rows().batches()
    assert batch["score"].tolist() == [0.5, 0.25]
    assert stat.S_IMODE((folder / "state").stat().st_mode) == 0o700
    key = client.site.split_key
    assert len(key) == 32
    assert not client.site.randomness.simulated
    assert isinstance(client.store, FileStore)
    client.store.close()  # one owner at a time
    assert SiteFile.read(folder / "site.toml").open().site.split_key == key


def test_rows_from_a_database(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "scores.db")) as database, database:
        database.execute("create table scores (p, y)")
        database.execute("insert into scores values (0.5, 1), (0.25, 0)")
    data = 'data = "sqlite:///scores.db"\nquery = "select p, y from scores order by p"'
    site = SiteFile.read(written(folder, GOOD.replace('data = "scores.csv"', data)))
    (batch,) = site.open().site.rows().batches()
    assert batch["score"].tolist() == [0.25, 0.5]


def test_logits_and_classes_of_a_site(folder: Path) -> None:
    (folder / "scores.csv").write_text("y,z_0,z_1,z_2\n2,0.5,1,2\n0,3,4,5\n")
    columns = '[columns]\nclass = "y"\nlogits = "z"'
    site = SiteFile.read(written(folder, GOOD.replace('[columns]\nscore = "p"\nlabel = "y"', columns)))
    (batch,) = site.open().site.rows().batches()
    assert batch["logits"].tolist() == [[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert batch["class"].tolist() == [2, 0]


@pytest.mark.parametrize("rows", ["", "0.5,1\n"])
def test_a_site_refuses_what_it_has_no_columns_for_with_and_without_rows(folder: Path, rows: str) -> None:
    (folder / "scores.csv").write_text("p,y\n" + rows)
    client = SiteFile.read(written(folder, GOOD)).open()
    budget = Budget(epsilon=1.0)
    setting = Setting(trust=ServerDP(), protection=Protection(), budget=budget, clients=5)

    def answered(summary: Summary[Any], exchange: bytes) -> Any:
        plan = setting.trust.plan(Sum(of=summary), setting)
        asked = Request(exchange=exchange, plans=(plan,), cohort=5, leg=0, recipient=client.name, message={})
        packed = pack_request(study="s", trust=setting.trust, tasks=("t",), request=asked)
        return open_reply(client.answer(packed), sender=client.name, exchange=exchange, leg=0)

    missing = CoverageCounts(quantity="conformity", thresholds=(0.5,))
    assert answered(missing, bytes(16)) is Refusal.DATA
    assert client.site.ledger.spent("hospital-a/rows", 0.0) == 0.0
    named = ScoreHistogram(transform="uniform", height=2)
    assert not isinstance(answered(named, bytes(range(16))), Refusal)


def test_the_password_of_a_database_is_not_shown(folder: Path) -> None:
    data = 'data = "postgresql://me:sesame@host/db"\nquery = "select 1"'
    site = SiteFile.read(written(folder, GOOD.replace('data = "scores.csv"', data)))
    assert "postgresql://host/db" in repr(site)
    assert "sesame" not in repr(site)
    odd = data.replace("sesame", "x@sesame")
    with pytest.raises(UsageError, match="site.toml: data: got a database URL with an odd host") as caught:
        SiteFile.read(written(folder, GOOD.replace('data = "scores.csv"', odd)))
    assert "sesame" not in str(caught.value)


def test_without_a_budget_nothing_noisy_is_answered(folder: Path) -> None:
    text = GOOD.replace("[budget]\nepsilon = 3.0\ndelta = 1e-6\n", "")
    site = SiteFile.read(written(folder, text))
    assert site.budget is None
    assert site.policy.trust_models == {"secure-sum"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "hospital-a"', "", "name is missing"),
        ('name = "hospital-a"', "name = 3", "name is missing; expected a text"),
        ('name = "hospital-a"', 'name = ""', "name is missing"),
        ('name = "hospital-a"', 'name = "../a"', "cannot be used"),
        ('name = "hospital-a"', 'name = "coordinator"', "cannot be used"),
        ('dataset = "hospital-a/rows"', "", "dataset is missing"),
        ('data = "scores.csv"', "", "data is missing"),
        ('data = "scores.csv"', 'data = "scores.csv"\nquery = "select 1"', "query: got one for a file"),
        ('data = "scores.csv"', 'data = "sqlite:///scores.db"', "got a database URL without a query"),
        ('data = "scores.csv"', 'data = "sqlite:///scores.db"\nquery = 1', "query must be a text in quotes"),
        ('key = "a.key"', "", "key is missing"),
        ('key = "a.key"', 'key = "b.key"', "cannot be read"),
        ('key = "a.key"', 'key = "scores.csv"', "is not a private key of fedassay"),
        ('state = "state"', "", "state is missing"),
        ('state = "state"', 'state = "state"\nextra = 1', "unknown entry 'extra'"),
        ('[columns]\nscore = "p"\nlabel = "y"', "columns = 1", r"columns must be a section"),
        ('score = "p"', 'skore = "p"', "site.toml: column role: got 'skore', expected one of score, label"),
        ('score = "p"', "score = 3", "site.toml: score column: got 3, expected the name of a column"),
        ('score = "p"', 'score = "y"', "got 'y' as score and as label, expected two different columns"),
        ('trust_models = ["secure-sum", "server-dp"]', "", "the policy needs trust_models"),
        ('["secure-sum", "server-dp"]', '"secure-sum"', "the policy needs trust_models"),
        ("smallest_cohort = 4", "smallest = 4", "the policy has an entry that cannot be used"),
        ("smallest_cohort = 4", "smallest_cohort = 0", "expected at least 1"),
        ("smallest_cohort = 4", "largest_epsilon = -1.0", "largest epsilon of -1"),
        ("smallest_cohort = 4", "largest_epsilon = nan", "largest epsilon of nan"),
        ("epsilon = 3.0", "epsilon = -3.0", "epsilon: got -3"),
        ("epsilon = 3.0", "epsilon = inf", "epsilon: got inf"),
        ("epsilon = 3.0", 'epsilon = "much"', "the budget has entries epsilon and delta only"),
        ("smallest_cohort = 4", "summaries = 3", "summaries must be a list of names"),
        ("smallest_cohort = 4", 'summaries = "abc"', "summaries must be a list of names"),
        ("epsilon = 3.0", "", "the budget has entries epsilon and delta only"),
        ("delta = 1e-6", "delta = 1.0", "delta: got 1"),
        ("delta = 1e-6", "gamma = 1.0", "the budget has entries epsilon and delta only"),
        ("hospital-a = ", "hospital-b = 'x' #", "public key of hospital-b"),
        ("[roster]", "[roster", "is not TOML"),
    ],
)
def test_every_bad_entry_has_its_sentence(folder: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=words):
        SiteFile.read(written(folder, GOOD.replace(old, new)))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        SiteFile.read(tmp_path / "site.toml")
    (tmp_path / "site.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        SiteFile.read(tmp_path / "site.toml")
