"""The sections of a study file. The fields are the entries, so that the JSON Schema can be made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from fedassay.data.partition import Partition
from fedassay.data.schema import FEATURES, ROLES, Columns
from fedassay.data.sources import Missing, source_named
from fedassay.data.sql import Database
from fedassay.errors import ParameterError, UsageError
from fedassay.protocol.parameters import INTERNAL, Checked, Fraction, Interval, Parameter, meant, parameters
from fedassay.protocol.vocabulary import Budget, Delta, Epsilon, Protection, TrustModel
from fedassay.runtimes.card import DEFAULT, RUNTIME_CARDS, ReleaseParameters, RuntimeParameters
from fedassay.study.entries import Section
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
    def described(self) -> dict[str, Any]:
        """Entries about the rows for a result: no password of a database, and no folders of the machine that ran it."""
        given = {name: getattr(self, name) for name in ("path", "query", "client", "partition", "clients")}
        given["missing"] = None if self.missing == "refuse" else self.missing
        scheme, url, rest = self.path.partition("://")
        given["path"] = f"{scheme}://{rest.rpartition('@')[2]}" if url else Path(self.path).name
        return {name: value for name, value in given.items() if value is not None}

    @property
    def owner(self) -> str | Partition | None:
        """Assignment of rows to clients, as simulations take it."""
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
        """Trust model with its parameters."""
        return TRUST_MODELS[self.privacy](**self.parameters)

    @property
    def budget(self) -> Budget | None:
        """Budget of the study; None where no noise is added."""
        return _budget(self.epsilon, self.delta)

    @property
    def protection(self) -> Protection:
        """Protection of the study: the unit, the neighbours and the rows of each client."""
        return Protection(unit=self.unit, neighbours=self.neighbours, rows_per_client=self.rows_per_client)

    @property
    def training(self) -> Budget | None:
        """Stated cost of training the model; None where it is not stated."""
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
        """Budget of all studies together; None if it is not limited."""
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
        """Expectations that are stated."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


# --- sections that are more than the fields of one class ----------------------------------------------------


def read_runtime(section: Section) -> RuntimeParameters:
    """Read the parameters of the runtime, which carries the messages."""
    name = section.entries.get("name", DEFAULT)
    if not isinstance(name, str) or name not in RUNTIME_CARDS:
        raise section.problem("name", f"name: got {name!r}, expected one of {', '.join(RUNTIME_CARDS)}.")
    card = RUNTIME_CARDS[name]
    if not card.simulated and "seed" in section:
        raise section.problem(
            "seed", f"seed: {name} is a release, whose noise must stay secret; leave the seed out."
        )
    return section.made(card.parameters, besides=("name",))


def read_privacy(section: Section) -> PrivacySection:
    """Read the privacy section; parameters of the trust model have a section of their own."""
    name = section.entries.get("privacy", PrivacySection.privacy)
    chosen = section.section("parameters")
    given: dict[str, Any] = {}
    if isinstance(name, str) and name in TRUST_MODELS:  # else the section says what is wrong
        kind = TRUST_MODELS[name]
        for entry in chosen.entries if not parameters(kind) else ():
            raise chosen.problem(entry, f"has no {entry!r}: {name} has no parameters; leave it out.")
        given = chosen.given(parameters(kind))
        try:
            kind(**given)
        except UsageError as error:
            raise chosen.located(error) from error
    return section.made(PrivacySection, besides=("parameters",), parameters=given)


def read_data(root: Section, runtime: RuntimeParameters) -> DataSection | None:
    """Read the rows of a simulation; None in a release, which has none of its own."""
    if not runtime.simulated:
        if "data" in root:
            raise root.problem(
                "data",
                f"[data] is for simulations; with {runtime.name} sites hold their own rows, leave it out.",
            )
        return None
    if "data" not in root:
        raise root.problem(
            "runtime", f"a study needs [data] with a path: {runtime.name} simulates clients on rows of yours."
        )
    section = root.section("data")
    columns = section.section("columns")
    columns.only(ROLES)
    if not columns.entries:
        raise section.problem(
            None, 'needs [data.columns] with the roles, such as score = "p" and label = "y".'
        )
    if "logits" in columns and "class" not in columns:
        raise columns.problem(
            "logits", 'logits: they go with class, a column of 0, 1, ..; give class = "COLUMN".'
        )
    names = {role: _column(columns, role) for role in columns.entries}
    data = section.made(DataSection, besides=("columns",), columns=names)
    try:
        source_of(data, root.document.path)
    except UsageError as error:
        raise section.problem("path", str(error)) from error
    return data


def read_ledger(root: Section, runtime: RuntimeParameters) -> LedgerSection:
    """Read where expenses are recorded."""
    section = root.section("ledger")
    if section.entries and isinstance(runtime, ReleaseParameters) and runtime.home is None:
        raise root.problem(
            "ledger", f"[ledger]: with {runtime.name} the coordinator's file says which; leave it out."
        )
    ledger = section.made(LedgerSection)
    if section.entries and ledger.place is None and runtime.simulated:
        raise section.problem(None, 'needs place, a file such as "ledger.sqlite".')
    return ledger


def _column(columns: Section, role: str) -> str:
    """Return the column of a role; features may be a list."""
    if role != FEATURES or isinstance(columns.entries[role], str):
        return str(columns.value(_entry(role, str)))
    names = columns.value(_entry(role, tuple[str, ...]))
    if not names or not all(name and "," not in name for name in names):
        raise columns.problem(role, f"{role}: expected names of columns, without commas in them.")
    return ",".join(names)


def _entry(name: str, annotation: Any) -> Parameter:
    return Parameter(name=name, annotation=annotation, default=MISSING, sentence="")


def source_of(data: DataSection, path: Path) -> Path | Database:
    """Return the place of the rows, relative to the study file."""
    return source_named(data.path, data.query, folder=path.absolute().parent)
