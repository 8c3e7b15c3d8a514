"""A study in MLflow: numbers, terms and certified files, and nothing else that lies in the folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from certified_folders import certified
from fedassay.errors import UsageError
from fedassay.study.mlflow import log_study
from study_documents import study_document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("mlflow") / "study", study_document(noise=False))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the database takes ten seconds to set up
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return pytest.importorskip("mlflow", reason="MLflow is an extra: pip install 'fedassay[mlflow]'")


def test_numbers_terms_and_files_are_logged(mlflow: Any, folder: Path, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/runs"
    run_id = log_study(folder, tracking_uri=uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.get_run(run_id)
    tasks = study_document(noise=False)["results"]["tasks"]
    auc = tasks["evaluate"]["results"]["roc_auc"]
    metrics = run.data.metrics
    assert metrics["evaluate.roc_auc"] == auc["value"]
    assert [metrics["evaluate.roc_auc.lower"], metrics["evaluate.roc_auc.upper"]] == auc["interval"]
    assert metrics["calibrate.after.log_loss"] == tasks["calibrate"]["results"]["after"]["log_loss"]["value"]
    assert run.data.params["privacy.trust_model"] == "plain"
    assert run.data.params["conformal.level"] == "0.9"
    assert run.data.tags["fedassay.study"] == "readmission-spring"
    assert run.info.status == "FINISHED"
    logged = {one.path for one in client.list_artifacts(run_id)}
    assert logged == {path.name for path in folder.iterdir()} - {"journal"}
    again = log_study(folder, tracking_uri=uri, run_id=run_id)
    assert again == run_id


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of MLflow about SQLAlchemy
def test_a_database_takes_it_too(
    mlflow: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MLflow puts artefacts beside itself
    uri = f"sqlite:///{tmp_path}/runs.db"
    run = mlflow.MlflowClient(tracking_uri=uri).get_run(log_study(folder, tracking_uri=uri))
    auc = study_document(noise=False)["results"]["tasks"]["evaluate"]["results"]["roc_auc"]
    assert run.data.metrics["evaluate.roc_auc"] == auc["value"]


def test_a_server_that_cannot_be_reached_is_one_sentence_without_the_password(
    mlflow: Any, folder: Path
) -> None:
    with pytest.raises(UsageError, match="MLflow: ") as error:
        log_study(folder, tracking_uri="http://me:secret@127.0.0.1:9")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_without_mlflow_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in [name for name in sys.modules if name.split(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match=r"fedassay\[mlflow\]"):
        log_study(folder)


def test_usage_statistics_are_off_unless_somebody_chose_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for chosen, found in ((None, "true"), ("false", "false")):
        monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
        if chosen is not None:
            monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", chosen)
        with pytest.raises(UsageError):
            log_study(folder)
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == found


def test_a_folder_that_does_not_hold_is_not_logged(tmp_path: Path) -> None:
    folder = certified(tmp_path / "study")
    (folder / "report.html").write_text("changed")
    with pytest.raises(UsageError, match="report.html does not hold"):
        log_study(folder)
