"""Study files: what they say, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.data.partition import Partition
from fedassay.data.sql import Database
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import Budget, Neighbours, Part, Protection, Unit
from fedassay.runtimes.file_drop.card import FileDrop
from fedassay.runtimes.flower.card import FlowerDeployment, FlowerSimulation
from fedassay.runtimes.in_process.card import InProcess
from fedassay.study import StudyFile
from fedassay.trust import DistributedDP, SecureSum
from study_files import BINARY, CLASSES, DEPLOYMENT, FILE_DROP


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as error:
        StudyFile.parse(text)
    return str(error.value)


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


# --- what files say -------------------------------------------------------------------------------------------


def test_everything_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(BINARY)
    study = StudyFile.read(path)
    assert (study.name, study.title, study.model) == (
        "readmission-spring",
        "Readmission within 30 days",
        "readmission-net 2.1",
    )
    assert study.source == tmp_path / "scores.parquet"
    assert study.data is not None
    assert (study.data.owner, dict(study.data.columns)) == ("hospital", {"score": "p", "label": "y"})
    assert study.trust == DistributedDP(dropout=0.2)
    assert study.budget == Budget(epsilon=2.0, delta=1e-6)
    assert study.training == Budget(epsilon=3.0)
    assert study.protection == Protection(rows_per_client=100)
    assert study.runtime == InProcess(seed=1)
    assert study.holdout == 0.25
    assert study.expected == {"rows": 100_000, "clients": 40, "prevalence": 0.2, "auc": 0.8}
    assert [(task.name, task.kind, task.after) for task in study.tasks] == [
        ("evaluate", "evaluate", None),
        ("calibrate", "calibrate", None),
        ("conformal", "conformal", "calibrate"),
        ("conformal95", "conformal", "calibrate"),
    ]
    assert study.tasks[2].parameters == {"level": 0.9, "holdout": 0.25, "sets": "binary"}
    assert not study.gives_shares


def test_defaults() -> None:
    study = StudyFile.parse(
        'name = "a"\ndata.path = "a.csv"\ndata.columns.value = "v"\n[tasks.ecdf]\nlower = 0\nupper = 1'
    )
    assert (study.trust, study.budget, study.training) == (SecureSum(), None, None)
    assert study.protection == Protection(unit=Unit.EXAMPLE, neighbours=Neighbours.ADD_REMOVE)
    assert study.runtime == InProcess(seed=None, mode="auto")
    assert (study.holdout, study.expected) == (0.3, None)
    assert study.data is not None
    assert study.data.owner is None


def test_equal_shares_are_as_large_as_the_parts_allow() -> None:
    agenda = StudyFile.parse(BINARY).agenda()
    assert max(agenda.spent().values()) == pytest.approx(1)
    alone = BINARY.replace("[tasks.evaluate]\nthresholds = [0.1, 0.5]", "").replace(
        '[tasks.conformal95]\ntask = "conformal"\nlevel = 0.95', ""
    )
    spent = StudyFile.parse(alone).agenda().spent()
    assert spent[Part.FIRST_FIT] == spent[Part.SECOND_FIT] == 0.5
    assert spent[Part.HELD_OUT] == 1


def test_shares_of_the_file_win_over_those_of_the_planner() -> None:
    text = BINARY
    for task, share in (("evaluate", 0.4), ("calibrate", 0.3), ("conformal", 0.2), ("conformal95", 0.1)):
        text = text.replace(f"[tasks.{task}]", f"[tasks.{task}]\nshare = {share}")
    study = StudyFile.parse(text)
    assert study.gives_shares
    shares = dict.fromkeys(study.names, 0.25)
    assert [item.share for item in study.agenda(shares=shares).items] == [0.4, 0.3, 0.2, 0.1]
    assert [item.share for item in StudyFile.parse(BINARY).agenda(shares=shares).items] == [0.25] * 4
    assert refusal(text.replace("share = 0.4", "share = 0.6")).startswith(
        f"study.toml, line {line_of(text, 'share = 0.4')}: share: evaluate 0.6 + calibrate 0.3 + "
    )


def test_logits_make_tasks_of_classes() -> None:
    study = StudyFile.parse(CLASSES)
    assert [task.kind for task in study.tasks] == ["evaluate-classes", "calibrate-classes", "conformal"]
    assert all(task.looked_up == ("classes",) for task in study.tasks)
    assert study.tasks[1].parameters["holdout"] == 0.3
    assert study.data is not None
    assert study.data.owner == Partition("iid", clients=5)
    agenda = study.agenda(known={name: {"classes": 4} for name in study.names})
    assert agenda.items[0].parameters["classes"] == 4
    assert agenda.items[2].parameters["groups"] == ["0", "1", "2", "3"]
    assert agenda.items[2].parameters["sets"] == "lac"


@pytest.mark.parametrize(
    ("roles", "sets"),
    [
        (("target", "prediction"), "absolute"),
        (("target", "prediction", "scale"), "normalised"),
        (("target", "lower", "upper"), "cqr"),
        (("conformity",), "conformity"),
        (("class", "logits"), "lac"),
        (("score", "label"), "binary"),
    ],
)
def test_columns_say_which_conformity_score_is_meant(roles: tuple[str, ...], sets: str) -> None:
    columns = "\n".join(f'{role} = "{role}"' for role in roles)
    study = StudyFile.parse(
        f'name = "a"\n[data]\npath = "a.csv"\n[data.columns]\n{columns}\n[tasks.conformal]\n'
    )
    assert study.tasks[0].parameters["sets"] == sets
    assert set(study.tasks[0].roles) == set(roles)
    assert study.tasks[0].after is None


def test_columns_that_would_do_for_two_scores() -> None:
    text = BINARY.replace('label = "y"', 'label = "y"\nconformity = "s"')
    assert "needs sets: the columns would do for conformity and for binary" in refusal(text)


def test_features_are_names_or_are_looked_up() -> None:
    data = 'name = "a"\n[data]\npath = "a.csv"\n[data.columns]\ntarget = "y"\nfeatures = {}\n'
    text = data + '[tasks.infer]\nmethod = "newton"'
    several = StudyFile.parse(text.replace("{}", '["age", "bmi"]')).tasks[0]
    assert (several.parameters["features"], several.parameters["target"]) == (["age", "bmi"], "y")
    assert several.looked_up == ()
    one = StudyFile.parse(text.replace("{}", '"x"')).tasks[0]
    assert one.looked_up == ("features",)
    assert "without commas" in refusal(text.replace("{}", '["a,b"]'))
    assert "leave it out here" in refusal(text.replace("{}", '["age", "bmi"]') + '\nfeatures = ["sex"]')


def test_a_release(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(FILE_DROP)
    study = StudyFile.read(path)
    assert study.runtime == FileDrop(
        drop=tmp_path / "drop", key=tmp_path / "keys" / "coordinator.key", roster=tmp_path / "roster.toml"
    )
    assert (study.data, study.source, study.simulated) == (None, None, False)
    deployed = StudyFile.parse(DEPLOYMENT, tmp_path / "a.toml").runtime
    assert isinstance(deployed, FlowerDeployment)
    assert (deployed.root_certificates, deployed.timeout) == (tmp_path / "ca.crt", 30.0)
    simulated = StudyFile.parse(BINARY.replace("seed = 1", 'name = "flower"\nseed = 1')).runtime
    assert simulated == FlowerSimulation(seed=1)


def test_a_database() -> None:
    text = BINARY.replace('"scores.parquet"', '"sqlite:///scores.db"\nquery = "select * from scores"')
    assert isinstance(StudyFile.parse(text).source, Database)
    assert "query" in refusal(text.replace('query = "select * from scores"', ""))


def test_the_digest_is_that_of_what_is_said() -> None:
    study = StudyFile.parse(BINARY)
    assert (
        StudyFile.parse("# a comment\n\n" + BINARY.replace("epsilon = 2.0", "epsilon  =  2.0")).digest
        == study.digest
    )
    swapped = BINARY.replace("epsilon = 2.0\ndelta = 1e-6", "delta = 1e-6\nepsilon = 2.0")
    assert StudyFile.parse(swapped).digest == study.digest
    assert StudyFile.parse(BINARY.replace("epsilon = 2.0", "epsilon = 2.5")).digest != study.digest
    first, second = (
        "[tasks.conformal]\nlevel = 0.9\n",
        '[tasks.conformal95]\ntask = "conformal"\nlevel = 0.95\n',
    )
    moved = BINARY.replace(first, "").replace(second, second + first)
    assert StudyFile.parse(moved).digest != study.digest
    assert len(study.digest) == 64


# --- what is refused ------------------------------------------------------------------------------------------

REFUSED = [
    # what is written in the place of what, the words, and what stands in the line that is named
    ("[tasks.calibrate]", "[tasks.calibrate]\nmethd = 'x'", "has no 'methd' (did you mean 'method'?)", "methd"),
    ("client =", "clint =", "[data] has no 'clint' (did you mean 'client'?)", "clint"),
    ("score =", "scores =", "[data.columns] has no 'scores' (did you mean 'score'?)", "scores"),
    ("dropout =", "dropot =", "[privacy.parameters] has no 'dropot' (did you mean 'dropout'?)", "dropot"),
    ("title =", "titel =", "a study has no 'titel' (did you mean 'title'?)", "titel"),
    ("auc =", "acu =", "[expected] has no 'acu' (did you mean 'auc'?)", "acu"),
    ("seed = 1", "sed = 1", "[runtime] has no 'sed' (did you mean 'seed'?)", "sed"),
    ("holdout =", "hold_out =", "[split] has no 'hold_out'", "hold_out"),
    ("level = 0.95", "level = 1.5", "[tasks.conformal95] level: got 1.5", "level = 1.5"),
    ("level = 0.95", "level = 'high'", "level: got 'high', expected a number", "high"),
    ("level = 0.95", "level = true", "level: got true, expected a number", "level = true"),
    ("level = 0.95", "level = nan", "level: got nan, expected a number", "level = nan"),
    ("[0.1, 0.5]", "'a'", "thresholds: got 'a', expected a number from 0 to 1 or a list of numbers", "thresholds"),
    ("[0.1, 0.5]", "[0.1, 'a']", "thresholds: got 'a', expected a number from 0 to 1.", "thresholds"),
    ('"isotonic"', '"isotone"', "[tasks.calibrate] method: got 'isotone'", "isotone"),
    ("rows_per_client = 100", "rows_per_client = 1.5", "got 1.5, expected a whole number", "rows_per_client"),
    ("rows_per_client = 100", "rows_per_client = 0", "rows_per_client: got 0", "rows_per_client"),
    ("rows_per_client = 100", 'unit = "row"', "unit: got 'row', expected example or client", "unit"),
    ("rows_per_client = 100", 'unit = "client"', "give rows_per_client", "unit"),
    ("epsilon = 2.0", "epsilon = 0", "epsilon: got 0", "epsilon = 0"),
    ("epsilon = 2.0\ndelta = 1e-6", "", "distributed-dp adds noise, so it needs a budget", "privacy = "),
    ('"distributed-dp"', '"plain"', "[privacy.parameters] has no 'dropout'", "dropout"),
    ('"distributed-dp"', '"secure-sum"', "epsilon: secure-sum adds no noise", "epsilon"),
    ('"distributed-dp"', '"dp"', "privacy: got 'dp'; expected plain", 'privacy = "dp"'),
    ("training_epsilon = 3.0", "training_epsilon = -1", "training_epsilon: got -1", "training_epsilon"),
    ("training_epsilon = 3.0", "training_delta = 0.1", "training_delta: got one without", "training_delta"),
    ("dropout = 0.2", "dropout = 2.0", "expected a number from 0 and below 1", "dropout"),
    ("seed = 1", "seed = -1", "seed: got -1", "seed"),
    ("seed = 1", "mode = 'fast'", "mode: got 'fast'", "mode"),
    ("seed = 1", "name = 'cloud'", "name: got 'cloud', expected one of in-process", "cloud"),
    ("seed = 1", "name = 'flower'\nmode = 'auto'", "[runtime] has no 'mode'", "mode"),
    ("holdout = 0.25", "holdout = 1", "holdout: got 1", "holdout"),
    ("rows = 100_000", "rows = 0", "rows: got 0", "rows = 0"),
    ("clients = 40", "clients = 200000", "clients: got 200,000 for 100,000 rows", "clients"),
    ('label = "y"', "", "[tasks.evaluate] needs a column with the role label", "[tasks.evaluate]"),
    ('label = "y"', 'label = "p"', "got 'p' as score and as label", "[data.columns]"),
    ('label = "y"', 'label = "y"\ngroup = "g"', "no task reads the role group", "group"),
    ('label = "y"', 'label = "y"\nlogits = "z"', "they go with class", "logits"),
    ("thresholds", "groups = ['a']\nthresholds", "needs a column with the role group", "[tasks.evaluate]"),
    ("thresholds", "versus = true\nthresholds", "needs a column with the role versus", "[tasks.evaluate]"),
    ("thresholds", "share = 0.5\nthresholds", "[tasks.calibrate] has no share", "[tasks.calibrate]"),
    ("thresholds", "share = 1.5\nthresholds", "share: got 1.5, expected a number above 0 and at most 1", "share"),
    ("thresholds", "after = 'calibrate'\nthresholds", "[tasks.evaluate] has no 'after'", "after"),
    ('task = "conformal"', "", "[tasks.conformal95] is no task", "[tasks.conformal95]"),
    ('task = "conformal"', 'task = "conforml"', "task: got 'conforml'", "conforml"),
    ('task = "conformal"', 'task = "conformal"\nafter = "x"', "it builds on 'x'", "[tasks.evaluate]"),
    ("[tasks.conformal95]", "[tasks.result]", "cannot be called 'result'", "[tasks.result]"),
    ("[tasks.conformal95]", "[tasks.Conformal]", "lower-case letters", "[tasks.Conformal]"),
    ('name = "readmission-spring"', 'name = "a/b"', "name: got 'a/b'", "name"),
    ('client = "hospital"', 'client = "hospital"\nclients = 3', "clients: got 3 without a partition", "clients = 3"),
    ('client = "hospital"', 'client = "h"\npartition = "iid"', "partition: got one together with client", "partition"),
    ('client = "hospital"', 'partition = "iid"', "clients: got none, expected over how many", "[data]"),
    ("[tasks.evaluate]", "[tasks.ecdf]\n[tasks.evaluate]", "[tasks.ecdf] lower: missing", "[tasks.ecdf]"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "words", "there"), REFUSED)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, words: str, there: str) -> None:
    assert old in BINARY
    text = BINARY.replace(old, new, 1)
    said = refusal(text)
    assert words in said
    place, _, _ = said.partition(": ")
    line = int(place.removeprefix("study.toml, line ").partition(",")[0])
    assert there in text.splitlines()[line - 1]
    assert said.endswith(".")
    assert "--" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BINARY.replace("= 2.0", "= = 2.0"), "study.toml, line 15, column 11: is not TOML"),
        (BINARY + "x", "is not TOML"),
        (BINARY[: BINARY.index("[tasks.evaluate]")], "a study needs tasks"),
        (BINARY.replace('name = "readmission-spring"', ""), "a study needs name, a text"),
        (BINARY[BINARY.index("[privacy]") :].replace("[privacy]", 'name = "a"\n[privacy]'), "needs [data] with a path"),
        ("name = 'a'\ndata = 3\ntasks.evaluate = {}", "line 2: data: got 3, expected a section"),
        ("name = 'a'\ntasks = 3", "study.toml: a study needs [data]"),
        ("name = 'a'\ndata.path = 'a'\ntasks.ecdf = {}", "needs [data.columns] with the roles"),
        (FILE_DROP.replace('drop = "drop"', ""), "line 5: [runtime] needs drop, a path"),
        (FILE_DROP.replace('"drop"', '""'), "drop: got '', expected a path"),
        (FILE_DROP + "[data]\npath = 'a.csv'", "[data] is for simulations; with file-drop sites hold their own rows"),
        (FILE_DROP + "[split]\nholdout = 0.2", "[split] is for simulations"),
        (FILE_DROP.replace("[runtime]", "[runtime]\nseed = 1"), "line 6: [runtime] seed: file-drop is a release"),
        (FILE_DROP.replace('sets = "binary"', ""), "needs sets, because sites name their own columns"),
        (FILE_DROP.replace("evaluate", "evaluate-classes"), "needs classes: in a release it must be said"),
        (FILE_DROP.replace("evaluate", "infer"), "needs features: in a release"),
        (DEPLOYMENT.replace("root_certificates", "# "), "expected root_certificates"),
        (DEPLOYMENT.replace("timeout = 30", "timeout = 0"), "timeout: got 0"),
        (DEPLOYMENT.replace("address", "# "), "either an address"),
    ],
)  # fmt: skip
def test_what_else_is_wrong(text: str, words: str) -> None:
    assert words in refusal(text)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read .*fedassay init"):
        StudyFile.read(tmp_path / "study.toml")
    (tmp_path / "study.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(UsageError, match="is not UTF-8"):
        StudyFile.read(tmp_path / "study.toml")


def test_prediction_sets_build_on_the_calibration_above_them() -> None:
    calibrate = '[tasks.calibrate]\nmethod = "isotonic"\n'
    below = BINARY.replace(calibrate, "") + calibrate
    assert "[tasks.conformal] builds on [tasks.calibrate], which stands below it" in refusal(below)
    alone = below.replace("level = 0.9\n", 'level = 0.9\nafter = "none"\n').replace(
        "level = 0.95", 'level = 0.95\nafter = "none"'
    )
    assert {task.after for task in StudyFile.parse(alone).tasks} == {None}
    two = BINARY.replace("[tasks.conformal]", '[tasks.platt]\ntask = "calibrate"\n[tasks.conformal]')
    assert "could build on calibrate, platt" in refusal(two)
    named = two.replace("level = 0.9\n", 'level = 0.9\nafter = "platt"\n').replace(
        "level = 0.95", 'level = 0.95\nafter = "calibrate"'
    )
    assert [task.after for task in StudyFile.parse(named).tasks][-2:] == ["platt", "calibrate"]


def test_errors_of_others_can_name_lines_too() -> None:
    study = StudyFile.parse(BINARY)
    error = study.problem(("privacy", "epsilon"), "epsilon: too little; give rows_per_client.")
    assert str(error) == "study.toml, line 15: epsilon: too little; give rows_per_client."
