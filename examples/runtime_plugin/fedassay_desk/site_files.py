"""A release over sites whose files lie on this machine: each with its own policy, ledger and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from time import perf_counter

from fedassay.crypto.identity import Credentials, Identity, key_to_text
from fedassay.crypto.keys import KEY_BYTES, KeyPair, Secret
from fedassay.errors import UsageError
from fedassay.kernel.client import Client
from fedassay.kernel.endpoint import kept_secret
from fedassay.kernel.journal import FileJournal
from fedassay.kernel.sites import SiteFile
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import COORDINATOR, Party
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.released import StudyRun, release
from fedassay.runtimes.simulated import Progress
from fedassay_desk.card import SiteFiles


class SiteFilesRuntime(MessagingRuntime):
    """Asks sites one after the other; each is open only while it answers."""

    name = "site-files"
    mode = "files"
    simulated = False

    def __init__(
        self, sites: Mapping[str, SiteFile], identity: Identity, reply_pair: KeyPair, progress: Progress
    ) -> None:
        roster = {name: site.credentials.identity.public for name, site in sites.items()}
        super().__init__(
            reply_pair=reply_pair,
            credentials=Credentials(identity=identity, roster={**roster, COORDINATOR: identity.public}),
            asker=key_to_text(identity.public),
        )
        self._sites, self._progress = sites, progress
        self.clients = list(sites)

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Fresh ones, from the sites themselves."""
        for name in names:
            self.keep(name, self._sites[name].offer(1, asker=self.asker))
        return super().prekeys(names)

    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Iterator[tuple[str, bytes]]:
        """Open each site, hand it its request, and close it again."""
        for done, (name, request) in enumerate(requests.items(), 1):
            client: Client = self._sites[name].open()
            with closing(client.store):  # type: ignore[type-var]
                yield name, client.answer(request, asker=self.asker)
            self._progress(leg, done, len(requests))


def carry(parameters: SiteFiles, study: StudyRun) -> Result:
    """See `fedassay.runtimes.card.RuntimeCard`; the same call again goes on with what broke off."""
    sites = {one.name: one for one in map(SiteFile.read, sorted(parameters.sites.glob("*/site.toml")))}
    if not sites:
        raise UsageError(f"{parameters.sites}: got no site, expected folders with a site.toml in them.")
    study.require_affordable(len(sites))
    started = perf_counter()
    parameters.home.mkdir(mode=0o700, exist_ok=True)
    with (
        study.progress() as progress,
        closing(FileJournal(parameters.home / f"{study.name}.journal")) as journal,
    ):
        # The same one when the study goes on.
        pair = KeyPair.of(Secret(kept_secret(parameters.home / f"{study.name}.key", KEY_BYTES)))
        runtime = SiteFilesRuntime(sites, Identity.load(parameters.key), pair, progress)
        result = release(
            study.name,
            study.agenda,
            study.setting(clients=len(sites)),
            runtime=runtime,
            ledger=study.ledger,
            dataset=study.dataset,
            journal=journal,
            seconds=lambda: perf_counter() - started,
        )
        for name, refusal in runtime.refusals.items():
            study.say(f"{name} did not answer: {refusal}.")
        return result
