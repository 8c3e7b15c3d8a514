"""`fedassay infer`: coefficients of a regression over many clients, with intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedassay.cli import options, output
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.errors import ParameterError, UsageError
from fedassay.files import write_atomically
from fedassay.tasks.inference.parameters import InferParameters
from fedassay.version import VERSION

if TYPE_CHECKING:
    from fedassay.result import Result

KIND = "fedassay regression state"


@takes(
    options.run, OptionsOf("regression", InferParameters, without=("features", "target", "offset", "seed"))
)
def infer(
    target: Annotated[str, Option(help="Column with the target: a number, or 0 and 1 for logistic.")],
    features: Annotated[
        str,
        Option(
            metavar="A,B,..",
            help="Columns of the features; or one name: a column of lists, or how numbered columns begin.",
        ),
    ],
    offset: Annotated[
        str | None, Option(metavar="COLUMN", help="Column with a known part of the linear predictor.")
    ] = None,
    state: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Go on from what this file holds, if it is there, with the (new) rows of DATA; written afterwards.",
        ),
    ] = None,
    *,
    regression: Given,
    run: options.Run,
) -> None:
    """Fit a linear or logistic regression, with a confidence interval for every coefficient."""
    output.check_writable(state)
    if state is not None and regression.get("method") == "newton":
        raise ParameterError(
            "state", "newton keeps none, it looks at all rows at once; leave one of them out."
        )
    if state is not None and run.terms.trust.private:
        raise ParameterError(
            "state", f"rounds under {run.terms.trust.name} cannot be taken up again; leave it out."
        )
    kept = None if state is None else read_state(state)
    result = run.ask(
        "infer", in_rounds=True, target=target, features=features, offset=offset, state=kept, **regression
    )
    written = []
    if state is not None and "state" in result.results:  # without a fit, the state stays as it was
        write_state(state, result)
        written.append(state)
    run.delivery.deliver(result, also=written)


def read_state(path: Path) -> dict[str, Any] | None:
    """What an earlier run wrote, None if there is no such file; anything else is refused, and kept."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise UsageError(
            f"--state {path}: got a file that is not the state of a regression, and would be overwritten; expected "
            "one that an earlier run wrote, or a new name."
        )
    return found


def write_state(path: Path, result: Result) -> None:
    """Write what is needed to go on."""
    document = {"kind": KIND, "fedassay": VERSION, **result["state"]}
    write_atomically(path, json.dumps(document, allow_nan=False) + "\n")
