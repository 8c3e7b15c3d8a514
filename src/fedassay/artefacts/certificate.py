r"""`certificate.json`: the guarantees of a study, its cost, and the files that belong to it, under one signature.

A certificate is evidence for an independent evaluation of a study. The signature shows that the holder of the key has
signed these very bytes. The reader must know by other means who that is (`fedassay verify --key`). The signature does
not show that clients reported the truth, or that this software works as documented.

The signature is over bytes and not over values: all of the file but its last entry. So every byte counts, however a
parser reads it::

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
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedassay.artefacts.certificate_ledger import doubts, ledger_of, opening_doubts
from fedassay.artefacts.privacy_statement import privacy_statement
from fedassay.artefacts.stored import (
    LARGEST,
    HashedFile,
    content_of,
    entries,
    hashed,
    named_entries,
    no_constant,
    number,
    truth,
    words,
)
from fedassay.crypto.identity import Identity, fingerprint, key_from_text, key_to_text, verifies
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
    *("kind", "format", "meaning", "study", "title", "model", "created", "fedassay", "versions"),
    *("parameters", "tasks", "privacy", "ledger", "openings", "files", "key", "signature"),
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
    """Write the certificate of a study's folder; write it last, as it covers the other files.

    Guarantee: numbers are those of the result; every file is hashed as it is on the disk now. Fails closed: a result
    whose releases do not compose to its stated epsilon, that has spent more than its budget, or that is not the
    content of `result.json` in the folder, gets no certificate (`UsageError`).

    Parameters
    ----------
    files : names of the files in the folder that it covers; `result.json` must be one of them.
    identity : the key to sign with; None draws one for this study and forgets it.
    ledger_head : the hash at the end of the coordinator's ledger, if there is one.
    training : the cost of training the model, as its owner states.
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
    """Refuse a result that is not of a study, or is not the result in the folder."""
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
    """Return the request of each task in a study's results, without its outcome."""
    return {name: {key: one.get(key) for key in _ASKED} for name, one in tasks.items()}


def versions() -> dict[str, str | None]:
    """Return the signer's versions of fedassay, Python and the packages for numbers, noise and signatures."""
    found = {"fedassay": VERSION, "python": platform.python_version(), **dict.fromkeys(_PACKAGES)}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
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
    r"""Return the text of a certificate up to its signature; ASCII only.

    Examples
    --------
    >>> signed_text({"kind": "certificate"})
    '{\n  "kind": "certificate"'
    """
    text = json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False)
    return text.removesuffix("\n}")


# --- a certificate from a file that may hold anything ------------------------------------------------------

_TAIL = re.compile(rb',\n  "signature": "([0-9a-f]{128})"\n\}\n\Z')
_MOST_FILES = 1000
PROMISED = ("statement", "epsilon", "delta", "unit", "neighbours", "trust_model", "simulated")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Content of a certificate, with the types that checks need; `verified.py` checks that it is true."""

    study: str
    created: str
    public: bytes
    made_for_this_study: bool
    files: tuple[HashedFile, ...]
    tasks: dict[str, str]
    """Kind of each task, by name."""
    privacy: dict[str, Any] = field(repr=False)
    ledger: object = field(repr=False)
    content: dict[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    @classmethod
    def of(cls, raw: bytes) -> Certificate:
        """Read the bytes of a file; refuse anything but a certificate with one sentence (`UsageError`)."""
        tail = _TAIL.search(raw)
        content = _parsed(raw)
        if not isinstance(content, dict) or content.get("kind") != KIND:
            raise UsageError("it is no certificate, expected one that `fedassay run` has written.")
        if content.get("format") != FORMAT or type(content["format"]) is not int:
            raise UsageError(
                f"it has another format, expected {FORMAT}; check it with the version that wrote it."
            )
        given = entries(content, KEYS, "the file")
        if tail is None:
            raise UsageError("it does not end with its signature as it was written; it was changed.")
        key = entries(given["key"], ("public", "fingerprint", "made_for_this_study", "meaning"), "key")
        public = key_from_text(key["public"], whose="the certificate")
        if key_to_text(public) != key["public"]:
            raise UsageError("the public key is not written as `fedassay keys` writes it.")
        own = truth(key["made_for_this_study"], "made_for_this_study")
        fixed = (MEANING, KEY_OF_THE_STUDY if own else KEY_OF_SOMEBODY, fingerprint(public))
        if (given["meaning"], key["meaning"], key["fingerprint"]) != fixed:
            raise UsageError(
                "what it says of itself and of its key is not what fedassay writes; it was changed."
            )
        return cls(
            study=words(given["study"], "study"),
            created=words(given["created"], "created"),
            public=public,
            made_for_this_study=own,
            files=_files(given["files"]),
            tasks=_tasks(given["tasks"]),
            privacy=_privacy(given["privacy"]),
            ledger=given["ledger"],
            content=given,
            signed=raw[: tail.start()],
            signature=bytes.fromhex(tail[1].decode("ascii")),
        )

    @property
    def signature_holds(self) -> bool:
        """True if the holder of the stated key has signed the file as it is."""
        return verifies(self.public, PURPOSE, self.signed, self.signature)


def _tasks(content: object) -> dict[str, str]:
    found = named_entries(content, "tasks")
    return {
        words(name, "tasks"): words(named_entries(one, "tasks").get("task"), "task")
        for name, one in found.items()
    }


def parsed_result(raw: bytes) -> dict[str, Any]:
    """Return a result's document from the bytes of a file, or raise `UsageError`."""
    return named_entries(_parsed(raw), "the file")


def _parsed(raw: bytes) -> Any:
    """Parse JSON in which no name comes twice and every number is finite."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_named_once, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "got something that is not JSON, expected what `fedassay run` has written."
        ) from error


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _files(content: object) -> tuple[HashedFile, ...]:
    if not isinstance(content, list) or len(content) > _MOST_FILES:
        raise UsageError(f"the entry 'files' is no list of at most {_MOST_FILES:,} files.")
    found = tuple(HashedFile.from_json(one) for one in content)
    if len({one.name for one in found}) < len(found):
        raise UsageError("a file is listed twice.")
    return found


def _privacy(content: object) -> dict[str, Any]:
    given = named_entries(content, "privacy")
    for name in PROMISED:
        if name not in given:
            raise UsageError(f"the entry {name!r} of privacy is missing.")
    for name in ("statement", "unit", "neighbours", "trust_model"):
        words(given[name], name)
    for name in ("epsilon", "delta"):
        if given[name] is not None:
            number(given[name], name)
    truth(given["simulated"], "simulated")
    return given
