"""Privacy part of a certificate: guarantees, mechanisms, assumptions, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedassay.protocol.vocabulary import Budget
from fedassay.trust.card import TRUST_CARDS

# --- meanings of the words of a privacy statement ----------------------------------------------------------

FORM = (
    "The points that NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025) asks about: "
    "the guarantee and its unit, the algorithms and their accuracy, who is trusted, the implementation, security, "
    "and how data were collected. This is evidence for an evaluation by these guidelines, not the evaluation "
    "itself."
)

UNITS: Mapping[str, str] = {
    "example": "One example (row). Somebody with several rows is protected less: k rows of one person count k times.",
    "client": "Everything that one client contributes, about all its people together.",
}

NEIGHBOURS: Mapping[str, str] = {
    "add-remove": "Data sets that differ in one unit, which is there or not; the number of units is protected too.",
    "replace-one": "Data sets that differ in one unit, which is replaced by another; the number of units is public.",
}

LAWS: Mapping[str, str] = {
    "none": "no noise: the exact number",
    "discrete-laplace": "whole numbers x with probability proportional to exp(-|x| / scale)",
    "discrete-gaussian": "whole numbers x with probability proportional to exp(-x^2 / (2 scale^2))",
    "skellam": "the difference of two Poisson draws of mean scale^2 / 2",
    "unary": "bits that are randomised one by one; epsilon of a message is 1 / scale",
    "choice": "a candidate with probability proportional to exp(-loss / scale)",
}

COMPOSITION = (
    "Releases on the same rows are composed from their noise laws: by the sum of pure epsilons, by Rényi "
    "divergences or by privacy loss distributions (dp-accounting), whichever gives the smallest valid epsilon at "
    "the stated delta. Releases on parts of the rows that exclude each other are composed in parallel: the part "
    "with the largest epsilon counts. Releases could be chosen with a view to earlier ones."
)

NO_COMPOSITION = "Releases without noise have no finite epsilon, so that there is nothing to compose."

ACCURACY = (
    "Intervals of the results include the noise. Privacy costs small groups and rare outcomes most: their "
    "intervals are the widest, and what is within an interval must not be read as a difference between groups."
)

IMPLEMENTATION = (
    "In a release, noise is drawn as whole numbers from a cryptographic source, by samplers in which no rounded "
    "floating-point number decides.",
    "Between machines, a release is recorded in a ledger before it leaves, and a question that is asked again gets "
    "the recorded answer.",
    "Sizes of messages depend on the question and not on rows. How long a client takes to answer does depend on "
    "its rows and on the noise that it draws, and nothing here hides it.",
)

ASSUMPTIONS = (
    "A unit of the data is what should be protected: where one person has several units, the guarantee is about "
    "each of them.",
    "Parts of the rows exclude each other: every site splits its rows once, by secret coins, before anything is "
    "asked.",
    "The cryptographic source of random numbers of each machine is good, and its memory is not read by others.",
)

SIMULATED = (
    "This was a simulation: one process held all rows, and its random numbers may come from a seed. It shows what "
    "a release with these settings would guarantee; nothing was protected by it."
)

RELEASED = "This was a release: each client kept its rows, and draws came from a cryptographic source."

SECURITY = (
    "Rows, keys and unreleased summaries are protected by the access control of each party's own machines, which "
    "was not looked at."
)

COLLECTION = (
    "How rows were collected, who may see them there, and whether people agreed to it was not looked at."
)

CHOICES = (
    "Parameters, columns, thresholds and methods that were chosen with a view to the same rows, outside of this "
    "study: that choice may reveal something, and no epsilon here counts it."
)

ELSEWHERE = (
    "Other releases from the same rows, by other studies or other software: epsilons add up over all of them. Each "
    "client's own ledger counts those of fedassay."
)

TRAINING_UNKNOWN = (
    "The training of the model: its parameters and scores may reveal rows that it was trained on. Nothing was said "
    "about what training cost."
)

TRAINING_GIVEN = (
    "As its owner states; fedassay has not checked it. It is about the rows that the model was trained on; where "
    "these are the rows of this study too, both epsilons add up."
)

TRUTH = "That rows are real and labels are right: a client that lies about its own rows is not detected."


# --- the privacy part of a certificate ----------------------------------------------------------------------

_Document = Mapping[str, Any]
_ONE_ROW = (
    "Where noise is added, what one row can change in a release is bounded, as the mechanisms say (l1, l2)."
)
_COSTS = ("law", "scale", "l1", "l2", "shuffled_epsilon", "shuffled_delta", "sampled")


def privacy_statement(document: _Document, *, training: Budget | None) -> dict[str, Any]:
    """Return the statement about a study's document (`result.json`), point by point.

    Guarantee: every number is that of the document; nothing is computed here. The texts describe the installed version
    of fedassay, so that a statement belongs to the version that the certificate names.

    Parameters
    ----------
    training : the cost of training the model, as its owner states; it is repeated and not added.
    """
    privacy, charges = document["privacy"], document["results"]["budget"]["charges"]
    noisy = privacy["epsilon"] is not None
    rows = document["parameters"].get("rows_per_client")
    return {
        "form": FORM,
        "statement": privacy["statement"],
        "definition": _definition(privacy),
        "epsilon": privacy["epsilon"],
        "delta": privacy["delta"],
        "unit": privacy["unit"],
        "unit_meaning": UNITS[privacy["unit"]],
        "neighbours": privacy["neighbours"],
        "neighbours_meaning": NEIGHBOURS[privacy["neighbours"]],
        "rows_per_client": rows,
        "contributions": _contributions(rows),
        "mechanisms": _mechanisms(charges),
        "composition": COMPOSITION if noisy else NO_COMPOSITION,
        "accuracy": ACCURACY,
        "trust_model": privacy["trust_model"],
        "trusted": TRUST_CARDS[privacy["trust_model"]].trusted,
        "simulated": privacy["simulated"],
        "implementation": [SIMULATED if privacy["simulated"] else RELEASED, *IMPLEMENTATION],
        "assumptions": list(ASSUMPTIONS),
        "security": SECURITY,
        "data_collection": COLLECTION,
        "training": None if training is None else _training(training),
        "not_covered": [
            *([TRAINING_UNKNOWN] if training is None else []),
            CHOICES,
            ELSEWHERE,
            COLLECTION,
            TRUTH,
        ],
    }


def _definition(privacy: _Document) -> str:
    if privacy["epsilon"] is None:
        return "No differential privacy: what is published is exact."
    if privacy["delta"] == 0:
        return "Pure differential privacy: epsilon, with delta = 0."
    return "Approximate differential privacy: epsilon and delta."


def _contributions(rows: int | None) -> str:
    if rows is None:
        return f"A client's number of rows is not bounded. {_ONE_ROW}"
    return f"At most {rows:,} rows of each client are used, the others are left out at random. {_ONE_ROW}"


def _mechanisms(charges: Sequence[_Document]) -> list[dict[str, Any]]:
    """Return each kind of release with the same cost once, in the order of the first of them."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for charge in charges:
        costs = {name: charge[name] for name in _COSTS}
        kind = found.setdefault(
            tuple(costs.values()),
            {**costs, "meaning": LAWS[charge["law"]], "releases": 0, "tasks": [], "parts": []},
        )
        kind["releases"] += 1
        for name, among in (("task", "tasks"), ("part", "parts")):
            if charge[name] not in kind[among]:
                kind[among] = [*kind[among], charge[name]]
    return list(found.values())


def _training(training: Budget) -> dict[str, Any]:
    return {"epsilon": training.epsilon, "delta": training.delta, "meaning": TRAINING_GIVEN}
