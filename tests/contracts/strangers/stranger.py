"""From another package: a kind of task whose page cannot be made, and a trust model that has all it needs."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from fedassay.documents.blocks import Document, DocumentBlock
from fedassay.documents.kind import KindDocument
from fedassay.protocol.cards import Named
from fedassay.protocol.vocabulary import Setting, Step, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.card import KindCard
from fedassay.trust.card import TrustCard
from fedassay.trust.server_dp import ServerDP


@dataclass(frozen=True, kw_only=True)
class Count:
    """The number of bins of a score histogram."""

    height: int = 4
    """2^height score bins."""

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask for the histogram."""
        released = yield Sum(of=ScoreHistogram(transform="uniform", height=self.height))
        return {"bins": released.value.tree.leaves}


class CountDocument(KindDocument):
    """A page that cannot be made."""

    def blocks(self, document: Document) -> Iterator[DocumentBlock]:
        """Look for an entry that is not there."""
        yield document["results"]["no such entry"]


class OtherServer(ServerDP):
    """The trusted server under another name."""

    name: ClassVar[str] = "other-server"


COUNT = KindCard(
    name="count",
    title="Count",
    section="Count",
    order=1000,
    columns=("score", "label"),
    purpose="how many bins?",
    task=Named("stranger:Count"),
    document=Named("stranger:CountDocument"),
    forecast=Named("fedassay.tasks.forecast:Forecast"),
)

OTHER_SERVER = TrustCard(
    name=OtherServer.name,
    order=1000,
    model=Named("stranger:OtherServer"),
    server_learns="each exact summary",
    readers_learn="noisy totals (ε, δ)",
    rests_on="the other server is trusted",
    rounds=1,
    learnt="the other server learns every histogram",
    trusted="The other server is trusted with exact numbers.",
)
