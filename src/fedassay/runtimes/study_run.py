"""A study between sites, as the runtime gets it that is to run it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from fedassay.agenda import Agenda
from fedassay.privacy.ledger import Ledger
from fedassay.protocol import Budget, Protection, Setting, TrustModel
from fedassay.runtimes.progress import Progress


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """One call of `fedassay run` for a study between sites: it begins the study, or goes on with it.

    Parameters
    ----------
    name, agenda, trust, budget, protection : what is asked, under which name and terms.
    ledger, dataset : where the coordinator records what is spent, if its ledger is on this machine.
    require_affordable : call it with the number of sites before anything is announced; it may refuse.
    options : those of the card that were given, as an object of its `options`.
    again : the command that goes on with the study.
    say, warn : tell the person at the terminal.
    progress : makes a progress bar.
    """

    name: str
    agenda: Agenda
    trust: TrustModel
    budget: Budget | None
    protection: Protection
    ledger: Ledger
    dataset: str
    require_affordable: Callable[[int], None]
    options: Any
    again: str
    say: Callable[[str], None]
    warn: Callable[[str], None]
    progress: Callable[[], AbstractContextManager[Progress]]

    def setting(self, clients: int) -> Setting:
        """The setting of the whole study; 0 clients where nobody knows yet how many there are."""
        return Setting(trust=self.trust, protection=self.protection, budget=self.budget, clients=clients)
