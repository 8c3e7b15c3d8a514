"""The sections of a study file. The fields are the entries, so that the JSON Schema can be made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fedassay.data.partition import Partition
from fedassay.data.schema import Columns
from fedassay.data.split import HELD_OUT
from fedassay.errors import UsageError
from fedassay.protocol import Budget, Neighbours, Protection, TrustModel, Unit
from fedassay.trust import TRUST_MODELS

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
LONGEST_TITLE = 200


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What the study is about.

    Parameters
    ----------
    name : of the study, and of the folder with its results: up to 40 letters, digits, dots, dashes and underscores.
    title : for the report, in your own words.
    model : the name of the model that is assayed, for the model card.
    """

    name: str
    title: str | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"name: got {self.name!r}, expected up to 40 letters, digits, dots, dashes and underscores, the first "
                "a letter or a digit."
            )
        for what, text in (("title", self.title), ("model", self.model)):
            if text is not None and not (0 < len(text) <= LONGEST_TITLE and text.isprintable()):
                raise UsageError(f"{what}: expected one line of 1 to {LONGEST_TITLE} characters.")


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """The rows of a simulation. In a release sites hold their own.

    Parameters
    ----------
    path : a .parquet, .csv or .npz file or a folder with one file per site, relative to the study file; or a database
        URL.
    query : with a database URL, the SELECT whose rows are used.
    client : the column that names the client. Without it, and without a partition, every row is its own client; of a
        folder, every file is one.
    partition : in its place, how rows are dealt to simulated clients: iid, dirichlet:BETA or by:COLUMN.
    clients : with a partition, how many there are.
    """

    path: str
    query: str | None = None
    client: str | None = None
    partition: str | None = None
    clients: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict, metadata={"entry": False})
    """Role to column, from the section [data.columns]; several features are separated by commas."""

    def __post_init__(self) -> None:
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
class PrivacySection:
    """Who is trusted with what, and the budget of the whole study.

    Parameters
    ----------
    trust : the trust model.
    parameters : of the trust model, such as dropout, collusion and minimum_cohort.
    epsilon : the budget of all tasks together, for trust models that add noise.
    delta : the failure probability of the guarantee; 0 is pure differential privacy.
    unit : what is protected: one example, or everything of one client.
    neighbours : which data sets must look alike.
    rows_per_client : the most rows of a client that are used; needed for the unit client.
    training_epsilon : what the training of the model has cost, which the certificate only repeats.
    training_delta : the delta of the training.
    """

    trust: str = "secure-sum"
    parameters: Mapping[str, Any] = field(default_factory=dict, metadata={"entry": False})
    epsilon: float | None = None
    delta: float | None = None
    unit: str = Unit.EXAMPLE.value
    neighbours: str = Neighbours.ADD_REMOVE.value
    rows_per_client: int | None = None
    training_epsilon: float | None = None
    training_delta: float | None = None

    def __post_init__(self) -> None:
        if self.trust not in TRUST_MODELS:
            raise UsageError(f"trust: got {self.trust!r}, expected one of {', '.join(TRUST_MODELS)}.")
        private = TRUST_MODELS[self.trust].private
        if private and self.epsilon is None:
            raise UsageError(
                f"trust: {self.trust} adds noise, so it needs a budget; give epsilon (1.0, say)."
            )
        if not private and (self.epsilon is not None or self.delta is not None):
            which = "epsilon" if self.epsilon is not None else "delta"
            raise UsageError(
                f"{which}: {self.trust} adds no noise, so that a budget would promise nothing; leave it out, or choose "
                'a trust model that does, such as trust = "distributed-dp".'
            )
        if self.training_epsilon is None and self.training_delta is not None:
            raise UsageError("training delta: got one without training_epsilon, expected both.")
        _ = self.model, self.budget, self.protection, self.training

    @property
    def model(self) -> TrustModel:
        """The trust model with its parameters."""
        return TRUST_MODELS[self.trust](**self.parameters)

    @property
    def budget(self) -> Budget | None:
        """The budget of the study; None where no noise is added."""
        return None if self.epsilon is None else Budget(epsilon=self.epsilon, delta=self.delta or 0.0)

    @property
    def protection(self) -> Protection:
        """What is protected."""
        return Protection(
            unit=self.unit,  # type: ignore[arg-type] # it turns texts into what they name
            neighbours=self.neighbours,  # type: ignore[arg-type]
            rows_per_client=self.rows_per_client,
        )

    @property
    def training(self) -> Budget | None:
        """What the training of the model has cost, if somebody says so."""
        if self.training_epsilon is None:
            return None
        try:
            return Budget(epsilon=self.training_epsilon, delta=self.training_delta or 0.0)
        except UsageError as error:
            raise UsageError(f"training {error}") from error


@dataclass(frozen=True, kw_only=True)
class LedgerSection:
    """Where all studies of the same rows record what they spend, and how much they may spend together.

    Parameters
    ----------
    place : a file, relative to the study file, or a PostgreSQL URL. By files: ledger.sqlite in the coordinator's
        state, if nothing is said.
    dataset : the name under which what is spent on these rows is added up.
    epsilon : that all studies together may spend; without it, what is spent is recorded only.
    delta : the delta at which it is added up.
    """

    place: str | None = None
    dataset: str = "federation"
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.place == "":
            raise UsageError("place: got an empty text, expected a file or a PostgreSQL URL.")
        if not NAME.fullmatch(self.dataset):
            raise UsageError(
                f"dataset: got {self.dataset!r}, expected up to 40 letters, digits, dots and dashes."
            )
        if self.delta is not None and self.epsilon is None:
            raise UsageError("delta: got one without epsilon, expected both, or neither.")
        _ = self.cap

    @property
    def cap(self) -> Budget | None:
        """What all studies may spend together; None if that is not limited."""
        return None if self.epsilon is None else Budget(epsilon=self.epsilon, delta=self.delta or 0.0)


@dataclass(frozen=True, kw_only=True)
class SplitSection:
    """How the rows of a simulation are split. In a release sites decide themselves.

    Parameters
    ----------
    holdout : the share of the units that is kept to judge what is fitted.
    """

    holdout: float = HELD_OUT

    def __post_init__(self) -> None:
        if not 0 < self.holdout < 1:
            raise UsageError(f"holdout: got {self.holdout:g}, expected a number between 0 and 1.")


@dataclass(frozen=True, kw_only=True)
class ExpectedSection:
    """What one expects of the data, for plans and for shares that are not given.

    Parameters
    ----------
    rows : how many there are, in all.
    clients : how many there are, of equal size.
    prevalence : the share of positive rows.
    auc : of the model.
    classes : how many classes the model has.
    accuracy : of a model with several classes.
    temperature : the best one for a model with several classes; above 1 if it is too sure of itself.
    """

    rows: float | None = None
    clients: int | None = None
    prevalence: float | None = None
    auc: float | None = None
    classes: int | None = None
    accuracy: float | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        for what, least, value in (
            ("rows", 1, self.rows),
            ("clients", 1, self.clients),
            ("classes", 2, self.classes),
        ):
            if value is not None and value < least:
                raise UsageError(f"{what}: got {value:g}, expected a number of at least {least}.")
        for what, share in (("prevalence", self.prevalence), ("accuracy", self.accuracy)):
            if share is not None and not 0 < share < 1:
                raise UsageError(f"{what}: got {share:g}, expected a number between 0 and 1.")
        if self.auc is not None and not 0.5 < self.auc < 1:
            raise UsageError(f"auc: got {self.auc:g}, expected a number between 0.5 and 1.")
        if self.temperature is not None and not self.temperature > 0:
            raise UsageError(f"temperature: got {self.temperature:g}, expected a number above 0.")
        if self.rows is not None and self.clients is not None and self.clients > self.rows:
            raise UsageError(
                f"clients: got {self.clients:,} for {self.rows:,.0f} rows, expected no more of them."
            )

    @property
    def given(self) -> dict[str, Any]:
        """What is said of it."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}
