"""Checks that a folder still agrees with its certificate, and the errors that they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from fedassay.artefacts.certificate import (
    CERTIFICATE,
    KEY_OF_THE_STUDY,
    PROMISED,
    RESULT,
    Certificate,
    asked_of,
    parsed_result,
)
from fedassay.artefacts.certificate_ledger import doubts, opening_doubts, openings_in_words
from fedassay.artefacts.stored import LARGEST, HashedFile, content_of, hashed
from fedassay.crypto.identity import fingerprint, key_to_text
from fedassay.data.findings import shown
from fedassay.errors import UsageError

ARTEFACTS = ("result.json", "report.html", "model_card.md", "calibrator.json", "conformal.json", "study.toml")
"""Files that a study may write, apart from the certificate and a JSON file under the name of each task."""

_SHOWN_STRANGERS = 5


class Outcome(StrEnum):
    """Outcome of a check; a note is information, and means neither that something holds nor that it is wrong."""

    HOLDS = "holds"
    WRONG = "wrong"
    UNCHECKED = "unchecked"
    NOTE = "note"


class AnyKey(Enum):
    """Marker for any signer: it is enough that files belong together and are unchanged."""

    ANY = "any"


ANY_KEY = AnyKey.ANY


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check of a file (or the key, or the ledger): its outcome, and the reason in one sentence."""

    what: str
    outcome: Outcome
    text: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    """All checks of a folder. The claims of the certificate are None or empty if it cannot be read.

    Parameters
    ----------
    files : the names of the files that the certificate covers, without its own.
    """

    folder: str
    checks: tuple[Check, ...]
    study: str | None = None
    public: bytes | None = None
    files: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[Check, ...]:
        """Checks that do not hold."""
        return tuple(check for check in self.checks if check.outcome is Outcome.WRONG)

    @property
    def unchecked(self) -> bool:
        """True if the signer was not compared with a key: a stranger may have changed and signed everything."""
        return any(check.outcome is Outcome.UNCHECKED for check in self.checks)

    @property
    def holds(self) -> bool:
        """True if nothing is wrong, and the signer is the expected one or any signer was accepted."""
        return not self.wrong and not self.unchecked

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "folder": self.folder,
            "study": self.study,
            "key": None if self.public is None else key_to_text(self.public),
            "fingerprint": None if self.public is None else fingerprint(self.public),
            "holds": self.holds,
            "checks": [asdict(check) | {"outcome": str(check.outcome)} for check in self.checks],
        }


def check(folder: Path, *, key: bytes | AnyKey | None = None) -> Verified:
    """Check a folder against its certificate. Nothing in it is believed, executed or followed out of it.

    Guarantee: if everything holds, then the holder of the certificate's key signed this certificate, the listed files
    are byte for byte what they were then (SHA-256), the releases compose to the stated epsilon at the stated delta,
    within the budget, by an accountant that runs here and now, members who opened totals have signed over which sets of
    clients, and `result.json` says the same.
    Assumption: the signer's key is known by other means and given as `key`.

    Parameters
    ----------
    key : the public key that must have signed. None leaves the signer unchecked, and then the folder does not hold;
        `ANY_KEY` accepts any signer, a stranger included.

    Raises
    ------
    UsageError
        If there is no such folder, or no certificate in it. Everything else that is wrong is reported, not raised.
    """
    if folder.is_file():
        raise UsageError(f"{folder}: is a file, expected the folder that `fedassay run` has written.")
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder, expected one that `fedassay run` has written.")
    if not (folder / CERTIFICATE).is_symlink() and not (folder / CERTIFICATE).exists():
        raise UsageError(
            f"{folder}: there is no {CERTIFICATE} in it, expected a folder that `fedassay run` has written."
        )
    try:
        certificate = Certificate.of(content_of(folder, CERTIFICATE, largest=LARGEST))
    except UsageError as error:
        text = str(error).removeprefix(f"{CERTIFICATE}: ")
        return Verified(folder=str(folder), checks=(_wrong(CERTIFICATE, text),))
    checks = (
        *_signature(certificate, key),
        *(_file(folder, one) for one in certificate.files),
        *_absent(certificate),
        *_strangers(folder, certificate),
        *_ledger(certificate),
        *_openings(certificate),
        *_result(folder, certificate),
    )
    return Verified(
        folder=str(folder),
        checks=checks,
        study=certificate.study,
        public=certificate.public,
        files=tuple(one.name for one in certificate.files),
    )


def _wrong(what: str, text: str) -> Check:
    return Check(what=what, outcome=Outcome.WRONG, text=text)


def _note(what: str, text: str) -> Check:
    return Check(what=what, outcome=Outcome.NOTE, text=text)


def _holds(what: str, text: str) -> Check:
    return Check(what=what, outcome=Outcome.HOLDS, text=text)


def _signature(certificate: Certificate, key: bytes | AnyKey | None) -> Iterator[Check]:
    if certificate.signature_holds:
        yield _holds(CERTIFICATE, "Unchanged since it was signed.")
    else:
        yield _wrong(
            CERTIFICATE, "The signature does not fit: it was changed after it was signed, or never signed."
        )
    signer = fingerprint(certificate.public)
    if key is None:
        yield Check(
            what="key",
            outcome=Outcome.UNCHECKED,
            text=f"Signed with {signer}, which was compared with no key (--key): a stranger could have signed.",
        )
    elif key is ANY_KEY:
        yield _note("key", f"Signed with {signer}; any signer is accepted.")
    elif key == certificate.public:
        yield _holds("key", f"Signed with the expected key, {signer}.")
    else:
        yield _wrong("key", f"{CERTIFICATE} is signed with {signer}, expected {fingerprint(key)}.")
    if certificate.made_for_this_study:
        yield _note("key", KEY_OF_THE_STUDY)


def _file(folder: Path, listed: HashedFile) -> Check:
    try:
        found = hashed(folder, listed.name)
    except UsageError as error:
        return _wrong(listed.name, str(error).removeprefix(f"{listed.name}: "))
    if found == listed:
        return _holds(listed.name, f"Unchanged: {listed.bytes:,} bytes, SHA-256 {listed.sha256[:16]}...")
    return _wrong(
        listed.name,
        f"Changed since it was certified: {found.bytes:,} bytes, SHA-256 {found.sha256[:16]}..., expected "
        f"{listed.bytes:,} bytes, {listed.sha256[:16]}...",
    )


def _absent(certificate: Certificate) -> Iterator[Check]:
    """Yield a check that fails if the certificate does not cover the result of the study."""
    if not any(one.name == RESULT for one in certificate.files):
        yield _wrong(RESULT, "The certificate does not cover it, and without it certifies nothing.")


def _strangers(folder: Path, certificate: Certificate) -> Iterator[Check]:
    """Yield files without a certificate: wrong if they could be taken for artefacts of this study, else a note."""
    listed = {one.name for one in certificate.files} | {CERTIFICATE}
    try:
        others = sorted(path.name for path in folder.iterdir() if path.name not in listed)
    except OSError as error:
        yield _wrong("other files", f"The folder cannot be listed ({error.strerror}).")
        return
    known = {*ARTEFACTS, *(f"{name}.json" for name in certificate.tasks)}
    for name in others:
        if name in known:
            yield _wrong(name, "It is not among the certified files, but would be taken for one of them.")
    rest = [name for name in others if name not in known]
    if rest:
        more = f" and {len(rest) - _SHOWN_STRANGERS} more" if len(rest) > _SHOWN_STRANGERS else ""
        names = ", ".join(shown(name) for name in rest[:_SHOWN_STRANGERS])
        yield _note("other files", f"Not covered by the certificate: {names}{more}.")


def _ledger(certificate: Certificate) -> Iterator[Check]:
    if certificate.privacy["simulated"]:
        yield _note("privacy", "A simulation: nothing was protected by it; see the statement.")
    found = [
        text.removeprefix("ledger: ")
        for text in doubts(certificate.ledger, certificate.privacy, certificate.tasks)
    ]
    yield from (_wrong("ledger", text[0].upper() + text[1:]) for text in found)
    if found:
        return
    ledger: Mapping[str, Any] = certificate.content["ledger"]
    releases = len(ledger["entries"])
    if ledger["budget"] is None:
        counted = f"{releases} release{'s' * (releases != 1)}"
        yield _holds("ledger", f"{counted} without noise: no differential privacy is promised.")
        return
    yield _holds(
        "ledger",
        f"{releases} releases compose to epsilon {ledger['spent']:.6g} at delta {ledger['delta']:.3g}, within the "
        f"budget of {ledger['budget']:.6g}.",
    )


def _openings(certificate: Certificate) -> Iterator[Check]:
    """Check that members have signed the sets of clients whose totals they opened."""
    content = certificate.content["openings"]
    found = list(opening_doubts(content, certificate.ledger, certificate.privacy))
    yield from (_wrong("openings", text[0].upper() + text[1:]) for text in found)
    if content and not found:
        yield _holds("openings", openings_in_words(content))
        yield _note(
            "openings",
            "The sites' keys are those that these sites have pinned; whose they are was not checked.",
        )


def _result(folder: Path, certificate: Certificate) -> Iterator[Check]:
    """Check that `result.json` agrees with the certificate."""
    try:
        document = parsed_result(content_of(folder, RESULT, largest=LARGEST))
    except UsageError as error:
        yield _wrong(RESULT, str(error).removeprefix(f"{RESULT}: "))
        return
    different = list(_differences(document, certificate))
    for name in different:
        yield _wrong(RESULT, f"Its entry {name} is not what the certificate says.")
    if not different:
        yield _holds(RESULT, "Says the same about privacy, budget and parameters.")


def _differences(document: Mapping[str, Any], certificate: Certificate) -> Iterator[str]:
    content = certificate.content
    for name in ("parameters", "fedassay"):
        if document.get(name) != content[name]:
            yield name
    if _entry(document, "parameters").get("study") != certificate.study:
        yield "parameters.study"
    privacy, results = _entry(document, "privacy"), _entry(document, "results")
    for name in PROMISED:
        if name not in privacy or privacy[name] != certificate.privacy[name]:
            yield f"privacy.{name}"
    budget, ledger = _entry(results, "budget"), _entry(content, "ledger")
    pairs = {"epsilon": "budget", "charges": "entries"} | {
        one: one for one in ("delta", "spent", "remaining")
    }
    for name, other in pairs.items():
        if name not in budget or budget[name] != ledger.get(other):
            yield f"results.budget.{name}"
    if _entry(document, "cohort").get("openings", []) != content["openings"]:
        yield "cohort.openings"
    tasks = _entry(results, "tasks")
    if not all(isinstance(one, dict) for one in tasks.values()) or asked_of(tasks) != content["tasks"]:
        yield "results.tasks"


def _entry(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the entry if it is a mapping, else an empty mapping."""
    found = content.get(name)
    return found if isinstance(found, dict) else {}
