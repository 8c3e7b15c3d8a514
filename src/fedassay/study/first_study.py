"""The text of a first study: the answers of the user, with a comment on every entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedassay.data.sources import Missing
from fedassay.protocol.parameters import in_words
from fedassay.runtimes.card import DEFAULT, RUNTIME_CARDS
from fedassay.tasks.card import KINDS
from fedassay.trust import TRUST_MODELS

_Lines = list[str | None]

SIMULATED_CLIENTS = 10
"""Number of clients to which rows are dealt where no column names the client."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Content of a first study.

    Parameters
    ----------
    path, query, client, dealt : the rows, relative to the study file; `dealt` says that they are dealt to simulated
        clients.
    missing : the treatment of rows in which a value is missing.
    columns : role to column.
    parameters : by task, entries that it needs.
    expected : the properties of the file, for plans.
    """

    name: str
    path: str
    query: str | None = None
    client: str | None = None
    dealt: bool = False
    missing: Missing = "refuse"
    columns: Mapping[str, str]
    trust: str
    epsilon: float | None
    delta: float
    rows_per_client: int | None = None
    tasks: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    schema: str | None = None

    def text(self) -> str:
        """Return the text of the study file."""
        parts = (self._heading(), self._data(), self._privacy(), self._runtime(), self._expected())
        lines = (line for part in (*parts, self._tasks()) for line in (*part, ""))
        return "\n".join(line for line in lines if line is not None)

    def _heading(self) -> _Lines:
        return [
            None if self.schema is None else f"#:schema {self.schema}",
            "# A study of fedassay: several tasks over one federation under one budget.",
            "# What will come of it: fedassay plan study FILE. Run it: fedassay run FILE.",
            _entry("name", self.name),
            '# title = "What this is about"     # for the report',
            '# model = "my-model 1.0"           # for the model card',
        ]

    def _data(self) -> _Lines:
        dealt = self.dealt and self.client is None
        why = "no column names the clients: rows are dealt to this number of them"
        columns = {
            role: name.split(",") if role == "features" else name for role, name in self.columns.items()
        }
        return [
            "[data]  # the rows of a simulation; in a real federation sites hold their own",
            _entry("path", self.path),
            _entry("query", self.query),
            _entry("client", self.client, "the column that says whose row it is"),
            _entry("partition", "iid" if dealt else None, why),
            _entry("clients", SIMULATED_CLIENTS if dealt else None),
            _entry(
                "missing",
                "report" if self.missing == "report" else None,
                'rows that miss a value are left out and counted; or "refuse"',
            ),
            "",
            "[data.columns]",
            *(_entry(role, name) for role, name in columns.items()),
        ]

    def _privacy(self) -> _Lines:
        budget = "the budget of all tasks together"
        exact = f"# epsilon = 1.0   # {budget}, for trust models that add noise"
        return [
            "[privacy]",
            _entry("privacy", self.trust, f"or {', '.join(n for n in TRUST_MODELS if n != self.trust)}"),
            _entry("epsilon", self.epsilon, budget) or exact,
            None if self.epsilon is None else _entry("delta", self.delta, "0 is pure differential privacy"),
            _entry("rows_per_client", self.rows_per_client, "the most rows of a client that are used"),
            _entry("unit", "example", "what is protected: one row, or everything of one client"),
        ]

    def _runtime(self) -> _Lines:
        releases = [name for name, card in RUNTIME_CARDS.items() if not card.simulated]
        return [
            "[runtime]",
            _entry("name", DEFAULT, f"a simulation; {in_words(releases, last='and')} are the real thing"),
            _entry("seed", 1, "the same numbers again at every run; a release takes no seed"),
            "",
            "[split]",
            _entry("holdout", 0.3, "the share of the rows that is kept to judge what is fitted"),
        ]

    def _expected(self) -> _Lines:
        if not self.expected:
            return []
        guesses = {"auc": "a guess"}
        return [
            "[expected]  # your best guess; used only for planning",
            *(_entry(name, value, guesses.get(name)) for name, value in self.expected.items()),
        ]

    def _tasks(self) -> _Lines:
        lines: _Lines = []
        for task in self.tasks:
            given = self.parameters.get(task, {})
            lines += ["", f"[tasks.{task}]  # {KINDS[task].purpose}"]
            lines += [_entry(name, value, _COMMENTS.get(name)) for name, value in given.items()]
        if len(self.tasks) > 1 and self.epsilon is not None:
            lines.append(
                "# Who wants to divide the budget otherwise than the planner gives every task a share = 0.3, say."
            )
        return lines[1:]


_COMMENTS = {
    "score_range": "public: scores above make sets hold everything; from the first rows, check it",
    "lower": "public: the range of the values; from the first rows, check it",
    "level": "the share of new rows that sets shall cover",
    "conditional": 'a guarantee for each class; "none": over all rows together, which may miss the rarer class',
}


def _entry(name: str, value: Any, comment: str | None = None) -> str | None:
    """Return a line of TOML, if there is a value; JSON spells texts, numbers and lists of them as TOML does."""
    if value is None:
        return None
    line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    return line if comment is None else f"{line:<24}  # {comment}"
