"""The glossary: one meaning for each word, in code, help, errors and reports.

The reference page, `fedassay words` and the foot of a report are made from this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

GLOSSARY: Mapping[str, str] = {
    "row": "One line of a table: the features, score and label of one case.",
    "person": "Whom rows are about; a person may have several rows, at several sites.",
    "site": "Who holds rows and decides what leaves: a hospital, a bank, a phone. The protocol calls it a client.",
    "client": "A site, as the protocol calls it.",
    "score": "The number that a model gives a row, mostly the probability of the outcome.",
    "label": "What was true of a row: the outcome that a model predicts.",
    "coordinator": "Who asks the sites, collects their answers and computes results; sees no row.",
    "query": "A question about rows that every site answers with the same public recipe.",
    "summary": "The recipe of a query: what a site may count of its rows, with bounds on each row's part.",
    "unit": "What privacy protects: one row (example), or everything that one client contributes.",
    "noise": "A random whole number that is added to a count before anybody sees it. Its size is its scale.",
    "release": "A value that leaves the protection of the sites; the only thing that costs budget.",
    "budget": "The largest epsilon and delta that releases about the same rows may cost together.",
    "share": "The part of a budget, or of rows, that one task of a study gets.",
    "ledger": "The record of all releases about a data set, from which the cost so far is computed.",
    "policy": "What a site allows, in its own file: tasks, trust models, epsilons, smallest groups.",
    "trust model": "Which parties are believed with what, and therefore who adds noise and what is encrypted.",
    "secure sum": "A total of the answers of many sites that opens without any single answer.",
    "member": "A site that helps to open a secure sum.",
    "round": "One message to every site and one answer back. With files it is called a pass.",
    "runtime": "What carries messages: this process, files, or a federated platform.",
    "simulation": "A run in which one process holds all rows; it protects nothing.",
    "task": "What is asked for: an evaluation, a calibrator, prediction sets, a distribution, coefficients.",
    "method": "One of several ways to carry out a task.",
    "study": "Several tasks about the same rows, in one file and under one budget.",
    "calibrator": "A map from scores to probabilities that can be taken at face value.",
    "prediction set": "The labels, or the interval of values, that hold the truth of a row with a stated probability.",
    "interval": "Where a value lies at the stated confidence, with sampling, noise and binning in it.",
}
"""Meanings by word: the data, what is asked and released, who takes part, what comes of it."""


def words_in(text: str) -> dict[str, str]:
    """The words of the glossary that a text uses, alone or as plurals, with their meanings.

    Examples
    --------
    >>> list(words_in("Two sites answered; the budget is spent."))
    ['site', 'budget']
    """
    return {
        word: meaning
        for word, meaning in GLOSSARY.items()
        if re.search(rf"\b{word.replace(' ', r'[ -]')}s?\b", text, re.IGNORECASE)
    }


def glossary_page() -> str:
    """The reference page."""
    lines = [f"| {word} | {meaning} |" for word, meaning in sorted(GLOSSARY.items())]
    return "\n".join(
        [
            "# Glossary",
            "",
            "One meaning for each word, in the code, the help, errors and reports. `fedassay words` prints this table.",
            "",
            "| word | meaning |",
            "|---|---|",
            *lines,
            "",
        ]
    )
