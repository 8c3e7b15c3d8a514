"""A certificate from a file that may hold anything: its values, and what its signature covers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from fedassay.artefacts.certificate import (
    FORMAT,
    KEY_OF_SOMEBODY,
    KEY_OF_THE_STUDY,
    KEYS,
    KIND,
    MEANING,
    PURPOSE,
)
from fedassay.artefacts.stored import HashedFile, entries, named_entries, number, truth, words
from fedassay.crypto.identity import fingerprint, key_from_text, key_to_text, verifies
from fedassay.errors import UsageError

_TAIL = re.compile(rb',\n  "signature": "([0-9a-f]{128})"\n\}\n\Z')
_MOST_FILES = 1000
PROMISED = ("statement", "epsilon", "delta", "unit", "neighbours", "trust_model", "simulated")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What a certificate says, with the types that checks need; whether it is true is for `verified.py`."""

    study: str
    created: str
    public: bytes
    made_for_this_study: bool
    files: tuple[HashedFile, ...]
    tasks: dict[str, str]
    """Name to kind."""
    privacy: dict[str, Any] = field(repr=False)
    ledger: object = field(repr=False)
    content: dict[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    @classmethod
    def of(cls, raw: bytes) -> Certificate:
        """From the bytes of a file; what is no certificate is refused with one sentence (`UsageError`)."""
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
        """Whether the holder of the stated key has signed the file as it is."""
        return verifies(self.public, PURPOSE, self.signed, self.signature)


def _tasks(content: object) -> dict[str, str]:
    found = named_entries(content, "tasks")
    return {
        words(name, "tasks"): words(named_entries(one, "tasks").get("task"), "task")
        for name, one in found.items()
    }


def parsed_result(raw: bytes) -> dict[str, Any]:
    """A result's document from the bytes of a file, or a `UsageError`."""
    return named_entries(_parsed(raw), "the file")


def _parsed(raw: bytes) -> Any:
    """JSON in which no name comes twice and every number is finite."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_named_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "got something that is not JSON, expected what `fedassay run` has written."
        ) from error


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


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
