"""What a coordinator proposes by files: checked, and announced by the first call."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.crypto.identity import Identity, key_from_text
from fedassay.crypto.prekeys import Prekey
from fedassay.errors import UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.vocabulary import COORDINATOR, Budget, Protection, Setting, TrustModel
from fedassay.runtimes import disclosed
from fedassay.runtimes.file_drop import outcome
from fedassay.runtimes.file_drop.announcement import Announcement
from fedassay.runtimes.file_drop.outcome import Say
from fedassay.runtimes.file_drop.study import FileDropStudy
from fedassay.tasks.card import TASKS


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What is asked, and its terms, as the options of the first call or the file of a study say."""

    name: str
    agenda: Agenda
    trust: TrustModel
    budget: Budget | None
    protection: Protection

    def announce(
        self,
        drop: Path,
        *,
        state: Path,
        identity: Identity,
        roster: dict[str, bytes],
        cards: dict[str, bytes],
        profile: Disclosure | None = None,
    ) -> FileDropStudy:
        """Announce the study; what cannot be answered, or published, is refused before anything is written."""
        setting = Setting(
            trust=self.trust, protection=self.protection, budget=self.budget, clients=len(roster)
        )
        first = self.agenda.rehearse(setting)
        if profile is not None:
            disclosed.require(profile, self.trust, first)
        return FileDropStudy.begin(
            drop,
            state=state,
            identity=identity,
            name=self.name,
            agenda=self.agenda,
            trust=self.trust,
            protection=self.protection,
            budget=self.budget,
            roster=roster,
            cards=cards,
            randomness=SecureRandomness(),
        )

    def check(self, announced: Announcement) -> None:
        """Refuse options that differ from what was announced: a study cannot change."""
        mine = (self.agenda, self.trust, self.protection, self.budget)
        theirs = (announced.agenda, announced.trust, announced.protection, announced.budget)
        if mine != theirs:
            raise UsageError(
                f"study {announced.study}: it was announced with other options, and they cannot change; leave "
                "the task and its options out, or begin a new study in another folder."
            )


def opened_study(
    drop: Path,
    state: Path,
    identity: Identity,
    proposal: Proposal | None,
    roster: Path | None,
    say: Say,
    *,
    profile: Disclosure | None = None,
    before: Callable[[int], None] | None = None,
) -> FileDropStudy:
    """The study of this folder, announced now if there is none; `before` may refuse that, given how many sites."""
    study = FileDropStudy.resume(drop, state=state, identity=identity)
    keys, cards = (None, {}) if roster is None else read_roster(roster, identity)
    if study is not None:
        if proposal is not None:
            proposal.check(study.announcement)
        if keys is not None and keys != study.announcement.roster:
            raise UsageError(f"{roster}: is not the roster of the study in {drop}; leave it out.")
        study.keep_cards(cards)
        return study
    if proposal is None or keys is None:
        raise UsageError(
            f"{drop}: holds no study yet; the first call needs a task and the sites: "
            f"fedassay aggregate {drop} {next(iter(TASKS))} --key KEY --roster roster.toml"
        )
    if before is not None:
        before(len(keys))
    study = proposal.announce(drop, state=state, identity=identity, roster=keys, cards=cards, profile=profile)
    outcome.announced(study, say)
    return study


def read_roster(path: Path, identity: Identity) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The sites of a roster file, a section [roster] of names and cards: their public keys, and their prekeys."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise UsageError(f"{path}: is not TOML ({error}); correct the line it names.") from error
    if set(content) != {"roster"} or not isinstance(content["roster"], dict):
        raise UsageError(f"{path}: expected one section, [roster], with names and public keys.")
    keys = {name: key_from_text(text, whose=name) for name, text in content["roster"].items()}
    if keys.pop(COORDINATOR, identity.public) != identity.public:
        raise UsageError(
            f"{path}: the key of {COORDINATOR} is not the one given as --key; correct one of them."
        )
    if identity.public in keys.values():
        raise UsageError(f"{path}: a site has the key of the coordinator; each needs its own.")
    cards = {
        name: Prekey.from_text(text.partition(" ")[2], whose=name).packed()
        for name, text in content["roster"].items()
        if name in keys and " " in text
    }
    return keys, cards


def require_folder(drop: Path) -> None:
    """Refuse what is no folder."""
    if not drop.is_dir():
        raise UsageError(f"{drop}: is not a folder; create it, or mount what carries the files.")
