"""A site's own file: every bad entry has its sentence, and what is not clearly allowed is not allowed."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

import sealed_requests
from fedassay.crypto.identity import Identity, key_to_text
from fedassay.data.stores import Holdings, take_stock
from fedassay.errors import PolicyRefusal, UsageError
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import FileStore
from fedassay.kernel.envelope import Refusal, open_reply
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.policy.rules import SitePolicy
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Budget, Protection, Request, Setting, Sum, Summary
from fedassay.summaries.coverage_counts import CoverageCounts
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.secure_sum import SecureSum
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
[policy.total]
epsilon = 3.0
delta = 1e-6
[roster]
hospital-a = "{key_to_text(IDENTITY.public)}"
"""


HISTOGRAM = ScoreHistogram(transform="uniform", height=2)


def answer(client: Client, setting: Setting, summary: Summary[Any], exchange: bytes = bytes(16)) -> Any:
    """The reply to a first question, or the code of a refusal."""
    plan = setting.trust.plan(Sum(of=summary), setting)
    told = Request(exchange=exchange, plans=(plan,), cohort=5, leg=0, recipient=client.name, message={})
    packed = sealed_requests.packed(study="s", trust=setting.trust, tasks=("t",), request=told)
    reply = sealed_requests.answer(client, packed)
    return open_reply(wire.encode(reply), sender=client.name, exchange=exchange, leg=0)


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
    assert isinstance(site.policy, SitePolicy)
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
        return answer(client, setting, summary, exchange=exchange)

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
    with pytest.raises(UsageError, match="site.toml: data: got no database URL") as caught:
        SiteFile.read(written(folder, GOOD.replace('data = "scores.csv"', odd)))
    assert "sesame" not in str(caught.value)


def test_without_a_total_nothing_noisy_is_answered(folder: Path) -> None:
    text = GOOD.replace("[policy.total]\nepsilon = 3.0\ndelta = 1e-6\n", "").replace(
        "smallest_cohort = 4", ""
    )
    client = SiteFile.read(written(folder, text)).open()
    assert SiteFile.read(folder / "site.toml").budget is None
    setting = Setting(trust=ServerDP(), protection=Protection(), budget=Budget(epsilon=1.0), clients=5)
    assert answer(client, setting, HISTOGRAM) is Refusal.POLICY


def test_a_total_that_changes_counts_at_once(folder: Path) -> None:
    """Also in a process that goes on: the ledger is held to what the policy says now."""
    inline, _, roster = GOOD.partition("[policy]")
    head = inline.replace('state = "state"', 'state = "state"\npolicy = "policy.toml"')
    policy = folder / "policy.toml"
    policy.write_text('trust_models = ["server-dp"]\n[total]\nepsilon = 1.0\n')
    site = SiteFile.read(written(folder, head + "[roster]" + roster.partition("[roster]")[2]))
    client = site.open()
    setting = Setting(trust=ServerDP(), protection=Protection(), budget=Budget(epsilon=1.0), clients=5)
    assert not isinstance(answer(client, setting, HISTOGRAM, exchange=bytes(16)), Refusal)
    assert answer(client, setting, HISTOGRAM, exchange=bytes([1] * 16)) is Refusal.BUDGET
    policy.write_text('trust_models = ["server-dp"]\n[total]\nepsilon = 2.0\n')
    assert site.budget == Budget(epsilon=2.0)
    assert not isinstance(answer(client, setting, HISTOGRAM, exchange=bytes([2] * 16)), Refusal)
    policy.write_text('trust_models = ["server-dp"]\n[total]\nepsilon = 1.5\n')
    assert answer(client, setting, HISTOGRAM, exchange=bytes([3] * 16)) is Refusal.BUDGET


def test_charges_note_the_data_and_files_are_counted_again_only_when_they_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def counted(*given: Any, **more: Any) -> Any:
        passes.append(1)
        return take_stock(*given, **more)

    monkeypatch.setattr("fedassay.kernel.sites.take_stock", counted)
    setting = Setting(trust=SecureSum(minimum_cohort=4), protection=Protection(), budget=None, clients=5)

    def stock() -> Holdings:
        client = SiteFile.read(written(folder, GOOD)).open()
        assert client.site.holdings is not None
        assert isinstance(client.store, FileStore)
        client.store.close()
        return client.site.holdings()

    first = stock()
    assert (first.rows, stock(), len(passes)) == (2, first, 1)
    (folder / "scores.csv").write_text("p,y\n0.5,1\n0.25,0\n0.75,1\n")
    second = stock()
    assert (second.rows, len(passes)) == (3, 2)
    assert first.fingerprint != second.fingerprint
    (folder / "scores.csv").write_text("p,y\n0.25,0\n0.5,1\n")
    assert stock() != first  # the same rows in another order: others are held out
    (folder / "scores.csv").write_text("y,p\n1,0.5\n0,0.250\n")
    assert stock() == first  # written otherwise
    (folder / "state" / "holdings.json").write_text("[")
    assert stock() == first

    client = SiteFile.read(folder / "site.toml").open()
    answer(client, setting, HISTOGRAM)
    (charge,) = client.site.ledger.charges  # type: ignore[attr-defined]
    assert charge.fingerprint == first.fingerprint


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
        (
            "[policy.total]",
            "[budget]",
            r"the budget belongs to the policy; write \[policy.total\] for \[budget\]",
        ),
        ("hospital-a = ", "hospital-b = 'x' #", "public key of hospital-b"),
        ("[roster]", "[roster", "is not TOML"),
    ],
)
def test_every_bad_entry_has_its_sentence(folder: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=words):
        SiteFile.read(written(folder, GOOD.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('trust_models = ["secure-sum", "server-dp"]', "", "site.toml, line 10: trust_models is missing"),
        ("smallest_cohort = 4", "smallest = 4", "site.toml, line 12: unknown entry 'smallest'"),
        ("epsilon = 3.0", "epsilon = -3.0", "site.toml, line 14: total epsilon: got -3"),
        ("epsilon = 3.0", "", r"site.toml, line 13: total must be a section"),
        ("[policy]", "[others]", None),
        (
            '[policy]\ntrust_models = ["secure-sum", "server-dp"]\nsmallest_cohort = 4\n',
            "",
            "trust_models is missing",
        ),
        ("[policy]\n", "policy = 3\n", None),
        ('state = "state"', 'state = "state"\npolicy = "policy.toml"', None),
    ],
)
def test_a_policy_that_is_not_understood_lets_the_site_run_and_refuse_everything(
    folder: Path, old: str, new: str, words: str | None
) -> None:
    assert old in GOOD
    path = written(folder, GOOD.replace(old, new))
    if words is None:  # then the file itself is not a site's
        with pytest.raises(UsageError):
            SiteFile.read(path)
        return
    site = SiteFile.read(path)
    assert site.budget is None
    with pytest.raises(PolicyRefusal, match=words):
        site.policy.now()
    setting = Setting(trust=SecureSum(), protection=Protection(), budget=None, clients=5)
    assert answer(site.open(), setting, HISTOGRAM) is Refusal.POLICY


@pytest.mark.parametrize("entry", ["", "policy = 3\n"])
def test_a_site_without_a_policy_refuses_everything(folder: Path, entry: str) -> None:
    head, _, rest = GOOD.partition("[columns]")
    site = SiteFile.read(
        written(folder, head + entry + "[columns]\nscore = 'p'\n[roster]" + rest.partition("[roster]")[2])
    )
    with pytest.raises(PolicyRefusal, match="the policy is missing; expected policy = "):
        site.policy.now()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        SiteFile.read(tmp_path / "site.toml")
    (tmp_path / "site.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        SiteFile.read(tmp_path / "site.toml")
