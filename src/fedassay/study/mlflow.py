"""A study in MLflow: its numbers, terms and files as one run (extra `mlflow`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fedassay.artefacts.certificate import CERTIFICATE, RESULT
from fedassay.artefacts.verified import ANY_KEY, Verified, check
from fedassay.crypto.identity import fingerprint
from fedassay.documents.measured import measured
from fedassay.errors import UsageError

EXPERIMENT = "fedassay"
_LONGEST_KEY, _LONGEST_VALUE = 200, 480
"""Lengths below those that any release of MLflow demands (250 and 500)."""

_BATCH = 100
_SECRET = re.compile(r"//[^/\s]*@")
"""Pattern of a name and a password in a URL, which errors must not repeat."""

_ALLOWED = re.compile(r"[^A-Za-z0-9_. -]")


def log_study(
    folder: Path, *, tracking_uri: str | None = None, experiment: str = EXPERIMENT, run_id: str | None = None
) -> str:
    """Log a study's folder, as `fedassay run` leaves it, to MLflow; return the id of the run.

    Logged are the numbers (`evaluate.roc_auc`, with `.lower` and `.upper` where there is an interval), the terms
    of the study as parameters, and the certified files: never the journal, nor anything else that lies in the folder.

    Guarantee: only a folder whose certificate holds is logged, by any signer; nothing is sent anywhere but to the
    tracking server (the usage statistics of MLflow are switched off, unless the user has chosen otherwise).

    Parameters
    ----------
    tracking_uri : such as ``http://host:5000`` or ``sqlite:///mlflow.db``; None is MLflow's own default.
    experiment : the name of the experiment for a new run; it is made if need be.
    run_id : a run that exists, to add to; None begins a new one and ends it.

    Raises
    ------
    UsageError
        If MLflow is not installed, the folder is not what its certificate says, or the tracking server cannot be
        reached, or refuses.
    """
    found = check(folder, key=ANY_KEY)
    if not found.holds:
        wrong = found.wrong[0]
        raise UsageError(f"{folder}: {wrong.what} does not hold ({wrong.text}); see `fedassay verify`.")
    document = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    mlflow = _installed()
    failure: type[Exception] = mlflow.exceptions.MlflowException
    try:
        client = mlflow.MlflowClient(tracking_uri=tracking_uri)
        run = run_id or _begun(client, experiment, str(document["parameters"]["study"]))
        for batch in _batches(document, found, mlflow.entities):
            client.log_batch(run, **batch)
        for name in (CERTIFICATE, *found.files):
            client.log_artifact(run, str(folder / name))
        if run_id is None:
            client.set_terminated(run)
    except failure as error:
        said = _SECRET.sub("//", str(error)).strip().partition("\n")[0][:200] or type(error).__name__
        raise UsageError(f"MLflow: {said}; the study is complete, log it again.") from None
    return run


def _installed() -> Any:
    """Return the module; it has types of its own, which need not be there to check ours."""
    # Before the import, which is when MLflow looks. A private study must not be reported in passing.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        for name in ("mlflow.exceptions", "mlflow.entities"):
            import_module(name)
        return import_module("mlflow")
    except ImportError:
        raise UsageError(
            "MLflow is not installed; install it with `pip install 'fedassay[mlflow]'`."
        ) from None


def _begun(client: Any, experiment: str, study: str) -> str:
    known = client.get_experiment_by_name(experiment)
    place = client.create_experiment(experiment) if known is None else known.experiment_id
    return str(client.create_run(place, run_name=study).info.run_id)


def _batches(document: Mapping[str, Any], found: Verified, entities: Any) -> Iterator[dict[str, Any]]:
    """Yield the metrics, parameters and tags of a run, in batches that every server takes."""
    parameters = {_key(key): _value(value) for key, value in _parameters(document)}
    entries = {
        "metrics": [entities.Metric(_key(key), value, 0, 0) for key, value in _numbers(document)],
        "params": [entities.Param(key, value) for key, value in parameters.items()],
        "tags": [entities.RunTag(key, value) for key, value in _tags(document, found)],
    }
    for name, listed in entries.items():
        for begin in range(0, len(listed), _BATCH):
            yield {name: listed[begin : begin + _BATCH]}


def _numbers(document: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for one in measured(document):
        for suffix, value in (("", one.value), (".lower", one.lower), (".upper", one.upper)):
            if value is not None:
                yield f"{one.key}{suffix}", float(value)
    for name in ("epsilon", "spent", "remaining"):
        value = document["results"]["budget"][name]
        if value is not None:
            yield f"budget.{name}", float(value)


def _parameters(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the terms and parameters of the study; parameters without a value are left out."""
    for name in ("trust_model", "unit", "neighbours", "epsilon", "delta", "simulated"):
        yield f"privacy.{name}", document["privacy"][name]
    for task, entry in document["results"]["tasks"].items():
        yield f"{task}.task", entry["task"]
        yield f"{task}.share", entry["share"]
        for name, value in entry["parameters"].items():
            if value not in (None, "", [], {}):
                yield f"{task}.{name}", value


def _tags(document: Mapping[str, Any], found: Verified) -> Iterator[tuple[str, str]]:
    assert found.public is not None  # a certificate that holds has a key
    yield "fedassay.version", _value(document["fedassay"])
    yield "fedassay.study", _value(document["parameters"]["study"])
    yield "fedassay.model", _value(document["parameters"].get("model") or "")
    yield "fedassay.verdict", _value(document["results"]["verdict"]["text"])
    yield "fedassay.privacy", _value(document["privacy"]["statement"])
    yield "fedassay.certificate.key", fingerprint(found.public)


def _key(text: str) -> str:
    return _ALLOWED.sub("_", text)[:_LONGEST_KEY]


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
