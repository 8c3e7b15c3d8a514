"""A study as a model card: Markdown with the `model-index` block that Hugging Face reads. Reads only the result's JSON.

The block follows https://github.com/huggingface/hub-docs/blob/main/modelcard.md. Results are marked as not verified by
Hugging Face, which is what `verified` means there; `fedassay verify` is something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fedassay.documents import figures
from fedassay.documents.front_matter import Plain, front_matter
from fedassay.documents.sheet import Cell, Document, Notice, Sheet
from fedassay.errors import UsageError
from fedassay.reports import cohort
from fedassay.reports.assumptions import assumptions
from fedassay.reports.budget import spent
from fedassay.reports.contents import contents, section, verdict
from fedassay.reports.measured import Measured, measured
from fedassay.reports.study import is_study, parts
from fedassay.tasks.card import KINDS

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#])")
_MOST_ROWS = 40
_TO_FILL_IN = "**To be filled in by the owner of the model.**"


def model_card(document: Document) -> str:
    """The model card of a study, as Markdown.

    Every number is one of the document. What only the owner can know (what the model is for, what it was trained on) is
    left open, and marked. Texts of the study are escaped: none of them becomes markup.
    """
    if not is_study(document):
        raise UsageError(f"model card: got a result of the task {document['task']}, expected one of a study.")
    lines = [front_matter(_front(document)).rstrip("\n"), "", f"# {_text(_name(document))}", ""]
    for title, paragraphs in (
        ("What was assayed", _assayed(document)),
        (
            "Intended use",
            [_TO_FILL_IN + " Who should use the model, for which decision, and who should not."],
        ),
        ("Training", _training(document)),
        ("Data and cohort", _cohort(document)),
        ("Results", _results(document)),
        ("Limitations and assumptions", _limits(document)),
        ("Privacy", _privacy(document)),
        ("How to verify", _how_to_verify(document)),
    ):
        lines += [f"## {title}", "", *(line for one in paragraphs for line in (one, ""))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _name(document: Document) -> str:
    parameters = document["parameters"]
    return str(parameters.get("model") or parameters.get("title") or parameters["study"])


def _front(document: Document) -> dict[str, Plain]:
    parameters, privacy = document["parameters"], document["privacy"]
    tags: list[Plain] = ["fedassay", "federated-evaluation", f"trust-model:{privacy['trust_model']}"]
    if privacy["epsilon"] is not None:
        tags.append("differential-privacy")
    dataset: dict[str, Plain] = {
        "type": str(parameters["study"]),
        "name": f"{parameters.get('title') or parameters['study']} ({_clients(document)})",
    }
    found = [one for one in measured(document) if _is_about_the_model(one, document)]
    results: list[Plain] = []
    for task in dict.fromkeys(one.task for one in found):
        mine = [one for one in found if one.task == task]
        results.append(
            {
                "task": {"type": "other", "name": f"{_use(mine[0])} ({task})"},
                "dataset": {**dataset, "split": "held-out" if mine[0].block else "all"},
                "metrics": [_metric(one) for one in mine],
            }
        )
    index: dict[str, Plain] = (
        {"model-index": [{"name": _name(document), "results": results}]} if results else {}
    )
    return {"tags": tags, **index}


def _is_about_the_model(one: Measured, document: Document) -> bool:
    """Whether a number has an interval and is about the model as one would use it: calibrated if recommended."""
    recommended = document["results"]["tasks"][one.task]["results"].get("recommended")
    blocks = ("", "after" if recommended else "before", "held_out")
    return bool(_use(one)) and one.block in blocks and one.lower is not None


def _use(one: Measured) -> str:
    """What kind of model the number is about; distributions of values and coefficients are about none."""
    return KINDS[one.kind].document.load().use


def _metric(one: Measured) -> dict[str, Plain]:
    known: dict[str, Plain] = {
        "lower": one.lower,
        "upper": one.upper,
        "level": one.level,
        "threshold": one.at,
    }
    arguments = {name: value for name, value in known.items() if value is not None}
    return {
        "type": one.name,
        "name": one.title,
        "value": one.value,
        **({"args": arguments} if arguments else {}),
        "verified": False,
    }


def _assayed(document: Document) -> Iterator[str]:
    parameters = document["parameters"]
    title = parameters.get("title")
    yield (
        f"The model **{_text(_name(document))}**, frozen, in the study **{_text(parameters['study'])}**"
        + (f" ({_text(title)})" if title else "")
        + f". This card was written by fedassay {_text(document['fedassay'])} from `result.json` alone."
    )
    yield _text(verdict(document))
    yield from (f"Warning: {_text(warning)}" for warning in document["warnings"])


def _training(document: Document) -> Iterator[str]:
    yield f"{_TO_FILL_IN} On what the model was trained, how, and when."
    cost = document["parameters"].get("training")
    if cost is not None:
        yield (
            f"As its owner states, and fedassay has not checked: training cost ε = {cost['epsilon']:g} at δ = "
            f"{cost['delta']:g}. It is not part of the ε below."
        )


def _clients(document: Document) -> str:
    return f"{cohort.rows(document)} of {figures.counted(document['cohort']['clients'], 'client')}"


def _cohort(document: Document) -> Iterator[str]:
    lost, parameters = document["cohort"]["dropped"], document["parameters"]
    dropped = f" {figures.counted(lost, 'client')} did not answer." if lost else ""
    simulated = document["privacy"]["simulated"]
    where = "a simulation, one process held all of them" if simulated else "they stayed where they were"
    yield f"{_capital(_clients(document))}; {where}.{dropped}"
    columns = [
        f"{_text(role)}: {_text(column)}" for role, column in (parameters.get("columns") or {}).items()
    ]
    if columns:
        yield f"Columns: {', '.join(columns)}."
    yield f"{_TO_FILL_IN} Who these people are, when and how rows were collected, and who is missing."


def _results(document: Document) -> Iterator[str]:
    for part in parts(document):
        title = section(part)
        yield f"### {_text(title)}"
        for one in contents(part.document):
            if isinstance(one, Sheet):
                if one.title != title:
                    yield f"**{_text(one.title)}**"
                yield from _sheet(one)
            elif isinstance(one, Notice):
                yield _text(one.text)


def _sheet(sheet: Sheet) -> Iterator[str]:
    if sheet.rows:
        yield "\n".join(
            [
                _row([_text(name) for name in sheet.head]),
                _row(["---", *["---:"] * (len(sheet.head) - 1)]),
                *(_row([_cell(cell) for cell in row]) for row in sheet.rows[:_MOST_ROWS]),
            ]
        )
    if len(sheet.rows) > _MOST_ROWS:
        yield f"And {len(sheet.rows) - _MOST_ROWS:,} more rows: see `report.html`."
    yield from (_text(note) for note in sheet.notes)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    return _text(f"{cell.text} ({cell.detail})" if cell.detail else cell.text)


def _limits(document: Document) -> Iterator[str]:
    yield "The numbers above hold under these assumptions."
    for title, sentences in assumptions(document):
        yield f"{_text(title)}:"
        yield "\n".join(f"- {_text(sentence)}" for sentence in sentences)
    yield "A client that lies about its own rows is not detected."


def _privacy(document: Document) -> Iterator[str]:
    privacy = document["privacy"]
    yield _text(privacy["statement"])
    yield (
        f"Unit: {_text(privacy['unit'])}. Neighbours: {_text(privacy['neighbours'])}. Trust model: "
        f"{_text(privacy['trust_model'])}. {_text(spent(document))}"
    )
    yield "The certificate has every release, what is assumed, and what is not covered."


def _how_to_verify(document: Document) -> Iterator[str]:
    yield "This card is one of several files in a folder; `certificate.json` has their hashes under a signature."
    yield "```\nfedassay verify FOLDER --key PUBLIC_KEY\n```"
    yield (
        "It checks that no file was changed, that releases compose to the stated ε, and who signed, if you know the "
        "key. That is evidence for an evaluation by you, and no substitute for it."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _text(value: object) -> str:
    """Text that Markdown shows as it is: on one line, no markup."""
    line = " ".join(str(value).split())
    return _SPECIAL.sub(r"\\\1", "".join(one for one in line if one.isprintable()))
