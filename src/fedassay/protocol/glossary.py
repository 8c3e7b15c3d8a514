"""The glossary: one meaning for each word, in code, help, errors and reports.

The reference page, `fedassay words` and the foot of a report are made from this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

GLOSSARY: Mapping[str, str] = {
    "row": "One line of a table: the features, score and label of one case.",
    "person": "A human being whom rows describe; may have several rows, at several sites.",
    "site": "The holder of rows, who decides what leaves: a hospital, a bank, a phone. The protocol calls it a client.",
    "client": "A site, as the protocol calls it.",
    "score": "The number that a model gives a row, mostly the probability of the outcome.",
    "label": "The true outcome of a row, which a model predicts.",
    "coordinator": "The party that asks the sites, collects their answers and computes results. It sees no row.",
    "query": "A question about rows that every site answers with the same public recipe.",
    "summary": "The recipe of a query: what a site may count of its rows, with bounds on each row's part.",
    "unit": "The thing that privacy protects: one row (example), or everything that one client contributes.",
    "noise": "A random whole number that is added to a count before it is seen. Its size is its scale.",
    "release": "A value that leaves the protection of the sites; the only thing that costs budget.",
    "budget": "The largest epsilon and delta that releases about the same rows may cost together.",
    "share": "The part of a budget, or of rows, that one task of a study gets.",
    "ledger": "The record of all releases about a data set, from which the cost so far is computed.",
    "policy": "The file in which a site says what it allows: tasks, trust models, epsilons, smallest groups.",
    "trust model": "The rules of who is trusted with which data, who adds noise, and what is encrypted.",
    "secure sum": "A total of the answers of many sites that opens without any single answer.",
    "member": "A site that helps to open a secure sum.",
    "round": "One message to every site and one answer back. With files it is called a pass.",
    "runtime": "The carrier of messages: this process, files, or a federated platform.",
    "simulation": "A run in which one process holds all rows; it protects nothing.",
    "task": "A question of the user: an evaluation, a calibrator, prediction sets, a distribution, coefficients.",
    "method": "One of several ways to carry out a task.",
    "study": "Several tasks about the same rows, in one file and under one budget.",
    "calibrator": "A map from scores to probabilities that agree with observed frequencies.",
    "prediction set": "The labels, or the interval of values, that hold the truth of a row with a stated probability.",
    "interval": "The range in which a value lies with the stated confidence, all errors included.",
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
