r"""`certificate.json`: what was promised in a study, what it cost, and which files belong to it, under one signature.

A certificate is evidence for an evaluation, by somebody else, of what was done. What the signature shows: whoever held
the key has signed these very bytes. Who that is, is for the reader to know (`fedassay verify --key`). What it does not
show: that clients told the truth, or that this software did what it says.

The signature is over bytes and not over values: all of the file but its last entry. So every byte counts, whatever a
parser would make of it::

    {
      "kind": "certificate",
      ...
      "key": {...},                 <- signed up to here, for the purpose "certificate 1"
      "signature": "<128 hex digits>"
    }
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedassay.artefacts.certificate_ledger import doubts, ledger_of
from fedassay.artefacts.openings import doubts as opening_doubts
from fedassay.artefacts.privacy_statement import privacy_statement
from fedassay.artefacts.stored import LARGEST, content_of, hashed
from fedassay.crypto.identity import Identity, fingerprint, key_to_text
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.files import write_atomically
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget
from fedassay.version import VERSION

FORMAT = 1
KIND = "certificate"
CERTIFICATE, RESULT = "certificate.json", "result.json"
PURPOSE = f"{KIND} {FORMAT}"

KEYS = (
    *(
        "kind",
        "format",
        "meaning",
        "study",
        "title",
        "model",
        "created",
        "fedassay",
        "versions",
        "parameters",
    ),
    *("tasks", "privacy", "ledger", "openings", "files", "key", "signature"),
)

MEANING = (
    "Evidence for an evaluation of this study: what was promised, what it cost, and which files belong to it. "
    "`fedassay verify FOLDER` checks that files are unchanged and numbers agree. It does not show that clients "
    "told the truth."
)
KEY_OF_SOMEBODY = (
    "Signed with the signer's own key: compare it with the one that you know by other means (--key)."
)
KEY_OF_THE_STUDY = (
    "Signed with a key made for this study: it shows that files belong together and are unchanged since, not who "
    "made them."
)

_ASKED = ("task", "share", "after", "parameters")
_PACKAGES = ("numpy", "scipy", "pyarrow", "cryptography", "dp-accounting", "msgpack")


def certify(
    folder: Path,
    result: Result | Mapping[str, Any],
    *,
    files: Sequence[str],
    identity: Identity | None = None,
    ledger_head: str | None = None,
    training: Budget | None = None,
) -> Path:
    """Write the certificate of a study's folder; the last thing to write, as it covers the other files.

    Guarantee: numbers are those of the result; every file is hashed as it is on the disk now. Fails closed: a result
    whose releases do not compose to what it says, that has spent more than its budget, or that is not what
    `result.json` in the folder holds, gets no certificate (`UsageError`).

    Parameters
    ----------
    files : names of the files in the folder that it covers; `result.json` must be one of them.
    identity : the key to sign with; None draws one for this study and forgets it.
    ledger_head : the hash at the end of the coordinator's ledger, if there is one.
    training : what the training of the model has cost, as its owner states.
    """
    document: Mapping[str, Any] = json.loads(result.to_json()) if isinstance(result, Result) else result
    _require_same(folder, document, files)
    ledger = ledger_of(document["results"]["budget"], head=ledger_head)
    openings = document["cohort"].get("openings", [])
    wrong = [*doubts(ledger, document["privacy"]), *opening_doubts(openings, ledger, document["privacy"])]
    if wrong:
        raise UsageError(f"certificate: {' '.join(wrong[:3])} Such a result gets no certificate.")
    content = {
        **_described(document),
        "privacy": privacy_statement(document, training=training),
        "ledger": ledger,
        "openings": openings,
        "files": [hashed(folder, name).to_json() for name in sorted(files)],
    }
    return _write(folder / CERTIFICATE, content, identity)


def _require_same(folder: Path, document: Mapping[str, Any], files: Sequence[str]) -> None:
    """Refuse what is no study, or not the one whose result lies in the folder."""
    if document.get("task") != "study":
        raise UsageError(f"certificate: got a result of the task {document.get('task')!r}, expected a study.")
    if RESULT not in files or CERTIFICATE in files or len(set(files)) < len(files):
        raise UsageError(
            f"certificate: expected {RESULT} among the files, each once, and not {CERTIFICATE} itself."
        )
    try:
        same = json.loads(content_of(folder, RESULT, largest=LARGEST)) == document
    except ValueError:
        same = False
    if not same:
        raise UsageError(f"certificate: {folder / RESULT} is not the result that was given; write it first.")


def _described(document: Mapping[str, Any]) -> dict[str, Any]:
    parameters = document["parameters"]
    return {
        "kind": KIND,
        "format": FORMAT,
        "meaning": MEANING,
        "study": parameters["study"],
        "title": parameters.get("title"),
        "model": parameters.get("model"),
        "created": datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "fedassay": document["fedassay"],
        "versions": versions(),
        "parameters": parameters,
        "tasks": asked_of(document["results"]["tasks"]),
    }


def asked_of(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What was asked in each task of a study's results, without what came out."""
    return {name: {key: one.get(key) for key in _ASKED} for name, one in tasks.items()}


def versions() -> dict[str, str | None]:
    """Of whoever certifies: of fedassay, Python and the packages that numbers, noise and signatures come from."""
    found: dict[str, str | None] = {"fedassay": VERSION, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _write(path: Path, content: dict[str, Any], identity: Identity | None) -> Path:
    signer = Identity.draw(SecureRandomness()) if identity is None else identity
    key = {
        "public": key_to_text(signer.public),
        "fingerprint": fingerprint(signer.public),
        "made_for_this_study": identity is None,
        "meaning": KEY_OF_THE_STUDY if identity is None else KEY_OF_SOMEBODY,
    }
    signed = signed_text({**content, "key": key})
    signature = signer.sign(PURPOSE, signed.encode("ascii")).hex()
    write_atomically(path, f'{signed},\n  "signature": "{signature}"\n}}\n')
    return path


def signed_text(content: Mapping[str, Any]) -> str:
    r"""The text of a certificate up to where the signature follows; ASCII only.

    Examples
    --------
    >>> signed_text({"kind": "certificate"})
    '{\n  "kind": "certificate"'
    """
    text = json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False)
    return text.removesuffix("\n}")
