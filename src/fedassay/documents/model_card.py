"""Model card of a study: Markdown with the `model-index` block that Hugging Face reads. Reads only the result's JSON.

The block follows https://github.com/huggingface/hub-docs/blob/main/modelcard.md. Results are marked as not verified by
Hugging Face, which is the meaning of `verified` there; `fedassay verify` is something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedassay.documents import figures, report
from fedassay.documents.blocks import Document
from fedassay.documents.budget import spent
from fedassay.documents.kind import KINDS
from fedassay.documents.markdown import YamlValue, body, front_matter, text
from fedassay.documents.measured import Measured, measured
from fedassay.errors import UsageError

_TO_FILL_IN = "**To be filled in by the owner of the model.**"


def model_card(document: Document) -> str:
    """Return the model card of a study, as Markdown.

    Every number comes from the document. Facts that only the owner can know (the purpose and the training data of the
    model) are left open, and marked. Texts of the study are escaped: none of them becomes markup.
    """
    if not report.is_study(document):
        raise UsageError(f"model card: got a result of the task {document['task']}, expected one of a study.")
    lines = [front_matter(_front(document)).rstrip("\n"), "", f"# {text(_name(document))}", ""]
    for title, paragraphs in (
        ("What was assayed", _assayed(document)),
        (
            "Intended use",
            [f"{_TO_FILL_IN} Who should use the model, for which decision, and who should not."],
        ),
        ("Training", _training(document)),
        ("Data and cohort", _cohort(document)),
        ("Results", _results(document)),
        ("Limitations and assumptions", _limits(document)),
        ("Privacy", _privacy(document)),
        ("How to verify", _how_to_verify()),
    ):
        lines += [f"## {title}", "", *(line for paragraph in paragraphs for line in (paragraph, ""))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _name(document: Document) -> str:
    return str(document["parameters"].get("model") or report.heading(document))


def _front(document: Document) -> dict[str, YamlValue]:
    parameters, privacy = document["parameters"], document["privacy"]
    tags = ["fedassay", "federated-evaluation", f"trust-model:{privacy['trust_model']}"]
    if privacy["epsilon"] is not None:
        tags.append("differential-privacy")
    dataset = {"type": str(parameters["study"]), "name": f"{report.heading(document)} ({_clients(document)})"}
    numbers = [one for one in measured(document) if _is_about_the_model(one, document)]
    results: list[YamlValue] = []
    for task in dict.fromkeys(one.task for one in numbers):
        mine = [one for one in numbers if one.task == task]
        results.append(
            {
                "task": {"type": "other", "name": f"{_use(mine[0])} ({task})"},
                "dataset": {**dataset, "split": "held-out" if mine[0].block else "all"},
                "metrics": [_metric(one) for one in mine],
            }
        )
    index = {"model-index": [{"name": _name(document), "results": results}]}
    return {"tags": tags, **(index if results else {})}


def _is_about_the_model(one: Measured, document: Document) -> bool:
    """Return whether a number has an interval and is about the model in use: calibrated if recommended."""
    recommended = document["results"]["tasks"][one.task]["results"].get("recommended")
    blocks = ("", "after" if recommended else "before", "held_out")
    return bool(_use(one)) and one.block in blocks and one.lower is not None


def _use(one: Measured) -> str:
    """Return the kind of model of a number; distributions of values and coefficients have none."""
    return str(KINDS[one.kind].document.load().use)


def _metric(one: Measured) -> dict[str, YamlValue]:
    ends = {"lower": one.lower, "upper": one.upper, "level": one.level, "threshold": one.at}
    known: dict[str, YamlValue] = {name: value for name, value in ends.items() if value is not None}
    return {
        "type": one.name,
        "name": one.title,
        "value": one.value,
        **({"args": known} if known else {}),
        "verified": False,
    }


def _assayed(document: Document) -> Iterator[str]:
    title = document["parameters"].get("title")
    yield (
        f"The model **{text(_name(document))}**, frozen, in the study **{text(document['parameters']['study'])}**"
        + (f" ({text(title)})" if title else "")
        + f". This card was written by fedassay {text(document['fedassay'])} from `result.json` alone."
    )
    yield text(report.verdict(document).text)
    yield from (f"Warning: {text(warning)}" for warning in document["warnings"])


def _training(document: Document) -> Iterator[str]:
    yield f"{_TO_FILL_IN} On what the model was trained, how, and when."
    cost = document["parameters"].get("training")
    if cost is not None:
        yield (
            f"As its owner states, and fedassay has not checked: training cost ε = {cost['epsilon']:g} at δ = "
            f"{cost['delta']:g}. It is not part of the ε below."
        )


def _clients(document: Document) -> str:
    return f"{report.rows(document)} of {figures.counted(document['cohort']['clients'], 'client')}"


def _cohort(document: Document) -> Iterator[str]:
    lost, clients = document["cohort"]["dropped"], _clients(document)
    dropped = f" {figures.counted(lost, 'client')} did not answer." if lost else ""
    simulated = document["privacy"]["simulated"]
    where = "a simulation, one process held all of them" if simulated else "they stayed where they were"
    yield f"{clients[:1].upper()}{clients[1:]}; {where}.{dropped}"
    columns = (document["parameters"].get("columns") or {}).items()
    if columns:
        yield f"Columns: {', '.join(f'{text(role)}: {text(column)}' for role, column in columns)}."
    yield f"{_TO_FILL_IN} Who these people are, when and how rows were collected, and who is missing."


def _results(document: Document) -> Iterator[str]:
    for section in report.sections(document):
        yield f"### {text(section.title)}"
        yield from body(section.blocks, title=section.title)


def _limits(document: Document) -> Iterator[str]:
    yield "The numbers above hold under these assumptions."
    for title, sentences in report.assumptions(document):
        yield f"{text(title)}:"
        yield "\n".join(f"- {text(sentence)}" for sentence in sentences)
    yield "A client that lies about its own rows is not detected."


def _privacy(document: Document) -> Iterator[str]:
    privacy = document["privacy"]
    yield text(privacy["statement"])
    yield (
        f"Unit: {text(privacy['unit'])}. Neighbours: {text(privacy['neighbours'])}. Trust model: "
        f"{text(privacy['trust_model'])}. {text(spent(document))}"
    )
    yield "The certificate has every release, what is assumed, and what is not covered."


def _how_to_verify() -> Iterator[str]:
    yield "This card is one of several files in a folder; `certificate.json` has their hashes under a signature."
    yield "```\nfedassay verify FOLDER --key PUBLIC_KEY\n```"
    yield (
        "It checks that no file was changed, that releases compose to the stated ε, and who signed, if you know the "
        "key. That is evidence for an evaluation by you, and no substitute for it."
    )
