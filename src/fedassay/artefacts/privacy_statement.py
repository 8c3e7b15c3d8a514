"""The privacy part of a certificate: what was promised, how, under which assumptions, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedassay.artefacts import privacy_words as words
from fedassay.protocol import Budget
from fedassay.trust.card import TRUST_CARDS

Document = Mapping[str, Any]
_ONE_ROW = (
    "Where noise is added, what one row can change in a release is bounded, as the mechanisms say (l1, l2)."
)
_COSTS = ("law", "scale", "l1", "l2", "shuffled_epsilon", "shuffled_delta", "sampled")


def privacy_statement(document: Document, *, training: Budget | None) -> dict[str, Any]:
    """The statement about a study's document (`result.json`), point by point.

    Guarantee: every number is that of the document; nothing is computed here. The words are about fedassay as it is
    installed now, so that a statement belongs to the version that the certificate names.

    Parameters
    ----------
    training : what the training of the model has cost, as its owner states; it is repeated and not added.
    """
    privacy, charges = document["privacy"], document["results"]["budget"]["charges"]
    noisy = privacy["epsilon"] is not None
    rows = document["parameters"].get("rows_per_client")
    return {
        "form": words.FORM,
        "statement": privacy["statement"],
        "definition": _definition(privacy),
        "epsilon": privacy["epsilon"],
        "delta": privacy["delta"],
        "unit": privacy["unit"],
        "unit_meaning": words.UNITS[privacy["unit"]],
        "neighbours": privacy["neighbours"],
        "neighbours_meaning": words.NEIGHBOURS[privacy["neighbours"]],
        "rows_per_client": rows,
        "contributions": _contributions(rows),
        "mechanisms": _mechanisms(charges),
        "composition": words.COMPOSITION if noisy else words.NO_COMPOSITION,
        "accuracy": words.ACCURACY,
        "trust_model": privacy["trust_model"],
        "trusted": TRUST_CARDS[privacy["trust_model"]].trusted,
        "simulated": privacy["simulated"],
        "implementation": [
            words.SIMULATED if privacy["simulated"] else words.RELEASED,
            *words.IMPLEMENTATION,
        ],
        "assumptions": list(words.ASSUMPTIONS),
        "security": words.SECURITY,
        "data_collection": words.COLLECTION,
        "training": None if training is None else _training(training),
        "not_covered": [
            *([words.TRAINING_UNKNOWN] if training is None else []),
            words.CHOICES,
            words.ELSEWHERE,
            words.COLLECTION,
            words.TRUTH,
        ],
    }


def _definition(privacy: Document) -> str:
    if privacy["epsilon"] is None:
        return "No differential privacy: what is published is exact."
    if privacy["delta"] == 0:
        return "Pure differential privacy: epsilon, with delta = 0."
    return "Approximate differential privacy: epsilon and delta."


def _contributions(rows: int | None) -> str:
    if rows is None:
        return f"A client's number of rows is not bounded. {_ONE_ROW}"
    return f"At most {rows:,} rows of each client are used, the others are left out at random. {_ONE_ROW}"


def _mechanisms(charges: Sequence[Document]) -> list[dict[str, Any]]:
    """Releases that cost the same, once each, in the order of the first of them."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for charge in charges:
        costs = {name: charge[name] for name in _COSTS}
        kind = found.setdefault(
            tuple(costs.values()),
            {**costs, "meaning": words.LAWS[charge["law"]], "releases": 0, "tasks": [], "parts": []},
        )
        kind["releases"] += 1
        for name, among in (("task", "tasks"), ("part", "parts")):
            if charge[name] not in kind[among]:
                kind[among] = [*kind[among], charge[name]]
    return list(found.values())


def _training(training: Budget) -> dict[str, Any]:
    return {"epsilon": training.epsilon, "delta": training.delta, "meaning": words.TRAINING_GIVEN}
