"""The fields of a conformal predictor from a result, and from a file that may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.artefacts.stored import column_names, entries, name, number, privacy_terms, words
from fedassay.artefacts.thresholds import Threshold
from fedassay.data.schema import CLIENT
from fedassay.errors import UsageError
from fedassay.protocol.result import Result
from fedassay.summaries.quantities import QUANTITIES
from fedassay.summaries.scored import EVERYONE
from fedassay.version import VERSION

FORMAT = 1
"""Raised when a file of an older version would be misread by a newer one, or the other way round."""

KIND = "conformal"
_KEYS = (
    *("artefact", "format", "fedassay", "method", "level", "score", "by", "classes"),
    *("thresholds", "columns", "notes", "privacy"),
)


def fields_of(result: Result) -> dict[str, Any]:
    """What a result of the task conformal says. Raises `DataError` with the reason if it has no threshold."""
    if result.task != KIND:
        raise UsageError(f"result: got one of the task {result.task}, expected one of {KIND}.")
    results = result.results
    by, thresholds = thresholds_of(results)
    score = QUANTITIES[results["score"]["name"]]
    roles = (*score.columns, "group", CLIENT)
    return {
        "method": results["method"],
        "level": results["level"],
        "score": results["score"]["name"],
        "parameters": tuple(results["score"]["parameters"]),
        "by": by,
        "classes": result.parameters.get("classes") if score.gives_sets else None,
        "thresholds": thresholds,
        "columns": {role: result.parameters[role] for role in roles if role in result.parameters},
        "notes": tuple(results["notes"]),
        "privacy": dict(result.privacy),
        "fedassay": result.fedassay,
    }


def thresholds_of(results: Mapping[str, Any]) -> tuple[str, dict[str, Threshold]]:
    """By what thresholds of a conformal run are told apart, and the thresholds by name.

    Raises `DataError` with the reason if there is none.
    """
    if results["conditional"]:
        return results["conditional"], {part: Threshold.of(one) for part, one in results["groups"].items()}
    if results["method"] == "local":
        promised = results["guarantee"]
        return CLIENT, {one["site"]: Threshold.of({**one, "guarantee": promised}) for one in results["sites"]}
    return "", {EVERYONE: Threshold.of(results)}


def fields_from_json(content: object) -> dict[str, Any]:
    """What `ConformalPredictor.to_json` says; anything else is refused with one sentence (`UsageError`)."""
    if not isinstance(content, dict) or content.get("artefact") != KIND:
        raise UsageError(
            "it is no conformal predictor, expected what `fedassay conformal --out` has written."
        )
    if type(content.get("format")) is not int or content["format"] != FORMAT:
        raise UsageError(
            f"it has another format, expected {FORMAT}; conformalise again with this version ({VERSION}), or use the "
            "one that wrote it."
        )
    given = entries(content, _KEYS, "the file")
    score = entries(given["score"], ("name", "parameters"), "score")
    for what, value, kind in (
        ("by", given["by"], str),
        ("thresholds", given["thresholds"], dict),
        ("notes", given["notes"], list),
        ("parameters", score["parameters"], list),
    ):
        if not isinstance(value, kind):
            raise UsageError(f"the entry {what!r} is no {kind.__name__}; conformalise again.")
    return {
        "method": words(given["method"], "method"),
        "level": number(given["level"], "level"),
        "score": words(score["name"], "score"),
        "parameters": tuple(number(one, "parameters") for one in score["parameters"]),
        "by": given["by"],
        "classes": given["classes"],
        "thresholds": {
            name(part, "thresholds"): Threshold.from_json(one) for part, one in given["thresholds"].items()
        },
        "columns": column_names(given["columns"]),
        "notes": tuple(words(note, "notes") for note in given["notes"]),
        "privacy": privacy_terms(given["privacy"]),
        "fedassay": words(given["fedassay"], "fedassay"),
    }
