"""Folders of a study as `fedassay run` leaves them, small enough to be certified hundreds of times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedassay.artefacts.certificate import CERTIFICATE, PURPOSE, certify, signed_text
from fedassay.artefacts.certificate_ledger import ENTRY_KEYS, charge_of_entry
from fedassay.crypto.identity import Identity, fingerprint, key_to_text
from fedassay.crypto.keys import Secret
from fedassay.privacy.ledger.charges import compose
from fedassay.version import VERSION

OWNER, STRANGER = (Identity.of(Secret(bytes([number]) * 32)) for number in (1, 2))

FILES = {
    "report.html": "<!doctype html>\n<title>Report</title>\n",
    "model_card.md": "# A model\n",
    "calibrator.json": '{"artefact": "calibrator"}\n',
    "conformal95.json": '{"artefact": "conformal"}\n',
    "study.toml": 'name = "spring"\n',
}
METRIC = {
    "value": 0.8,
    "interval": [0.7, 0.9],
    "level": 0.95,
    "error": {"sampling": 0.05, "privacy": 0.0, "discretisation": 0.0},
}


def entry(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A release that costs epsilon = 0.5 by itself; its own epsilon is computed by `document`."""
    values = {
        "id": f"release-{number}",
        "task": "evaluate",
        "summary": "score-histogram",
        "part": "all",
        "law": "discrete-laplace",
        "scale": 4.0,
        "l1": 2.0,
        "l2": 2.0,
        "trust_model": "server-dp",
        "unit": "example",
        "neighbours": "add-remove",
    }
    return {**dict.fromkeys(ENTRY_KEYS), **values, **changes}


def exact_entry(number: int = 1) -> dict[str, Any]:
    return entry(number, law="none", scale=None, l1=None, l2=None, trust_model="secure-sum")


ENTRIES = (
    entry(1),
    entry(2, part="first-fit", task="calibrate"),
    entry(3, part="held-out", task="calibrate", scale=8.0),
)


def document(
    entries: Sequence[dict[str, Any]] = ENTRIES, *, epsilon: float | None = 1.5, delta: float | None = 0.0
) -> dict[str, Any]:
    """A result of a study; without an epsilon its releases are exact."""
    charges = [charge_of_entry(one) for one in entries]
    spent = None if epsilon is None or delta is None else compose(charges, delta)
    alone = [None if spent is None else compose([one], delta or 0.0) for one in charges]
    listed = [{**one, "epsilon": cost} for one, cost in zip(entries, alone, strict=True)]
    remaining = None if spent is None or epsilon is None else epsilon - spent
    first = entries[0] if entries else entry()
    names = {"evaluate": "evaluate", "calibrate": "calibrate", "conformal95": "conformal"}
    asked = {"share": 0.5, "after": None, "parameters": {"level": 0.95}, "results": {"roc_auc": METRIC}}
    return {
        "task": "study",
        "parameters": {"study": "spring", "title": "A title", "model": "a model 1.0", "seed": 1},
        "results": {
            "verdict": {"needs_calibration": False, "text": "The model needs no calibration."},
            "tasks": {name: {"task": kind, **asked} for name, kind in names.items()},
            "budget": {
                "epsilon": epsilon,
                "delta": delta if epsilon is not None else None,
                "spent": spent,
                "remaining": remaining,
                "charges": listed,
            },
        },
        "privacy": {
            "trust_model": first["trust_model"],
            "unit": first["unit"],
            "neighbours": first["neighbours"],
            "epsilon": epsilon,
            "delta": delta if epsilon is not None else None,
            "simulated": True,
            "statement": "What is published is private.",
        },
        "cohort": {"clients": 3, "dropped": 0, "truncated": 0, "rows": 100},
        "runtime": {
            "name": "in-process",
            "mode": "faithful",
            "rounds": 1,
            "bytes_per_client": 1,
            "seconds": 0.1,
        },
        "warnings": [],
        "fedassay": VERSION,
    }


def exact_document() -> dict[str, Any]:
    return document([exact_entry(1), exact_entry(2)], epsilon=None, delta=None)


def written(folder: Path, content: dict[str, Any], files: dict[str, str] | None = None) -> list[str]:
    """Write the files of a study but for the certificate; their names."""
    folder.mkdir(exist_ok=True)
    named = {"result.json": json.dumps(content, indent=2) + "\n", **(FILES if files is None else files)}
    for name, text in named.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "journal").write_text("private", encoding="utf-8")
    return list(named)


def certified(folder: Path, content: dict[str, Any] | None = None, **options: Any) -> Path:
    """A folder whose certificate holds, signed by `OWNER`."""
    found = document() if content is None else content
    certify(folder, found, files=written(folder, found), **{"identity": OWNER, **options})
    return folder


def content_of_certificate(folder: Path) -> dict[str, Any]:
    return json.loads((folder / CERTIFICATE).read_text(encoding="ascii"))  # type: ignore[no-any-return]


def forge(folder: Path, content: dict[str, Any], *, identity: Identity = STRANGER) -> None:
    """Sign any content anew, with any key, as somebody could who is not bound to our code."""
    key = content.get("key")
    if isinstance(key, dict):
        key = {**key, "public": key_to_text(identity.public), "fingerprint": fingerprint(identity.public)}
    signed = signed_text(
        {**{name: value for name, value in content.items() if name != "signature"}, "key": key}
    )
    signature = identity.sign(PURPOSE, signed.encode("ascii")).hex()
    (folder / CERTIFICATE).write_text(f'{signed},\n  "signature": "{signature}"\n}}\n', encoding="ascii")
