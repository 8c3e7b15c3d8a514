"""The sections of a study file. The fields are the entries, so that the JSON Schema can be made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from fedassay.data.gaps import Missing
from fedassay.data.partition import Partition
from fedassay.data.schema import Columns
from fedassay.errors import ParameterError, UsageError
from fedassay.protocol.parameters import INTERNAL, Checked, Fraction, Interval, meant
from fedassay.protocol.vocabulary import Budget, Delta, Epsilon, Protection, TrustModel
from fedassay.tasks.shared_parameters import HOLDOUT
from fedassay.trust import TRUST_MODELS
from fedassay.trust.card import DEFAULT_TRUST

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
LONGEST_TITLE = 200


@dataclass(frozen=True, kw_only=True)
class Heading(Checked):
    """What the study is about."""

    name: str
    """Name of the study and of the folder with its results: up to 40 letters, digits, dots, dashes and underscores."""
    title: str | None = None
    """Title of the report, in your own words."""
    model: str | None = None
    """Name of the model that is assayed, for the model card."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"name: got {self.name!r}, expected up to 40 letters, digits, dots, dashes and underscores, the first "
                "a letter or a digit."
            )
        for what, text in (("title", self.title), ("model", self.model)):
            if text is not None and not (0 < len(text) <= LONGEST_TITLE and text.isprintable()):
                raise UsageError(f"{what}: expected one line of 1 to {LONGEST_TITLE} characters.")


@dataclass(frozen=True, kw_only=True)
class DataSection(Checked):
    """The rows of a simulation. In a release sites hold their own."""

    path: str
    """A .parquet, .csv or .npz file or a folder with one file per site, relative to the study; or a database URL."""
    query: str | None = None
    """With a database URL: the SELECT whose rows are used."""
    client: str | None = None
    """Column that names the client. Default: every file of a folder is a client, else every row."""
    partition: str | None = None
    """How rows are dealt to simulated clients, in the place of a column: iid, dirichlet:BETA or by:COLUMN."""
    clients: Annotated[int, Interval(ge=1)] | None = None
    """Number of clients of a partition."""
    missing: Missing = "refuse"
    """Rows in which a value is missing are an error (refuse), or are left out and counted in the result (report)."""
    columns: Mapping[str, str] = field(default_factory=dict, metadata=INTERNAL)
    """Role to column, from the section [data.columns]; several features are separated by commas."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise UsageError("path: got an empty text, expected a file, a folder, or a database URL.")
        if self.client == "":
            raise UsageError("client: got an empty text, expected the name of a column.")
        if self.partition is None and self.clients is not None:
            raise UsageError(
                f'clients: got {self.clients} without a partition, expected both; give partition = "iid", say.'
            )
        if self.partition is not None and self.client is not None:
            raise UsageError("partition: got one together with client, expected one of them; leave one out.")
        owner = self.owner
        if isinstance(owner, Partition):
            owner.label_role(self.columns)
            owner = owner.column
        object.__setattr__(self, "columns", Columns(names=self.columns, client=owner).names)

    @property
    def owner(self) -> str | Partition | None:
        """How rows become clients, as simulations take it."""
        return self.client if self.partition is None else Partition(self.partition, clients=self.clients)


@dataclass(frozen=True, kw_only=True)
class PrivacySection(Protection):
    """Who is trusted with what, and the budget of the whole study."""

    privacy: str = DEFAULT_TRUST
    """Trust model."""
    parameters: Mapping[str, Any] = field(default_factory=dict, metadata=INTERNAL)
    """Parameters of the trust model, from the section [privacy.parameters]."""
    epsilon: Epsilon | None = None
    """Budget of all tasks together, for trust models that add noise."""
    delta: Delta | None = None
    """Failure probability of the guarantee; 0 is pure differential privacy."""
    training_epsilon: Epsilon | None = None
    """Cost of the training of the model, which the certificate only repeats."""
    training_delta: Delta | None = None
    """Delta of the training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.privacy not in TRUST_MODELS:
            raise ParameterError("privacy", f"got {self.privacy!r}{meant(self.privacy, TRUST_MODELS)}.")
        private = TRUST_MODELS[self.privacy].private
        if private and self.epsilon is None:
            raise ParameterError(
                "privacy", f"{self.privacy} adds noise, so it needs a budget; give `epsilon` (1.0, say)."
            )
        if not private and (self.epsilon is not None or self.delta is not None):
            which = "epsilon" if self.epsilon is not None else "delta"
            raise ParameterError(
                which,
                f"{self.privacy} adds no noise, so that a budget would promise nothing; leave it out, or choose a "
                'trust model that does, such as privacy = "distributed-dp".',
            )
        if self.training_epsilon is None and self.training_delta is not None:
            raise ParameterError("training_delta", "got one without `training_epsilon`, expected both.")
        _ = self.model

    @property
    def model(self) -> TrustModel:
        """The trust model with its parameters."""
        return TRUST_MODELS[self.privacy](**self.parameters)

    @property
    def budget(self) -> Budget | None:
        """The budget of the study; None where no noise is added."""
        return _budget(self.epsilon, self.delta)

    @property
    def protection(self) -> Protection:
        """What is protected."""
        return Protection(unit=self.unit, neighbours=self.neighbours, rows_per_client=self.rows_per_client)

    @property
    def training(self) -> Budget | None:
        """The stated cost of training the model; None where it is not stated."""
        return _budget(self.training_epsilon, self.training_delta)


@dataclass(frozen=True, kw_only=True)
class LedgerSection(Checked):
    """Where all studies of the same rows record what they spend, and how much they may spend together."""

    place: str | None = None
    """File, relative to the study, or PostgreSQL URL. Default for file drop: ledger.sqlite in the private state."""
    dataset: str = "federation"
    """Name under which what is spent on these rows is added up."""
    epsilon: Epsilon | None = None
    """Largest epsilon of all studies together; without it, what is spent is recorded only."""
    delta: Delta | None = None
    """Delta at which it is added up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.place == "":
            raise UsageError("place: got an empty text, expected a file or a PostgreSQL URL.")
        if not NAME.fullmatch(self.dataset):
            raise UsageError(
                f"dataset: got {self.dataset!r}, expected up to 40 letters, digits, dots and dashes."
            )
        if self.delta is not None and self.epsilon is None:
            raise UsageError("delta: got one without epsilon, expected both, or neither.")

    @property
    def cap(self) -> Budget | None:
        """What all studies may spend together; None if that is not limited."""
        return _budget(self.epsilon, self.delta)


def _budget(epsilon: float | None, delta: float | None) -> Budget | None:
    return None if epsilon is None else Budget(epsilon=epsilon, delta=delta or 0.0)


@dataclass(frozen=True, kw_only=True)
class SplitSection(Checked):
    """How the rows of a simulation are split. In a release sites decide themselves."""

    holdout: Fraction = HOLDOUT
    """Share of the units that is kept to judge what is fitted."""


@dataclass(frozen=True, kw_only=True)
class ExpectedSection(Checked):
    """What one expects of the data, for plans and for shares that are not given."""

    rows: Annotated[float, Interval(ge=1)] | None = None
    """Number of rows, in all."""
    clients: Annotated[int, Interval(ge=1)] | None = None
    """Number of clients, of equal size."""
    prevalence: Fraction | None = None
    """Share of positive rows."""
    auc: Annotated[float, Interval(gt=0.5, lt=1)] | None = None
    """AUC of the model."""
    classes: Annotated[int, Interval(ge=2)] | None = None
    """Number of classes of the model."""
    accuracy: Fraction | None = None
    """Accuracy of a model with several classes."""
    temperature: Annotated[float, Interval(gt=0)] | None = None
    """Best temperature of a model with several classes; above 1 if it is too sure of itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None and self.clients is not None and self.clients > self.rows:
            raise UsageError(
                f"clients: got {self.clients:,} for {self.rows:,.0f} rows, expected no more of them."
            )

    @property
    def given(self) -> dict[str, Any]:
        """What is said of it."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}
