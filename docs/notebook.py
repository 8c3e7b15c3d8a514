"""Execute a notebook, without Jupyter, and keep what its cells show: `python docs/notebook.py FILE.ipynb`.

A cell is Python, or one line with a command of fedassay (`!fedassay run study.toml`). What is kept is what is printed
and the value of the last expression: displays as pictures, which read everywhere, tables as HTML, the rest as text.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedassay.cli import run_command

Output = dict[str, Any]
_WIDE = "100"


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that can be executed."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def executed(notebook: dict[str, Any]) -> Iterator[list[Output]]:
    """What each code cell shows, one after the other, in the current folder; an exception ends it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value = _value_of("".join(cell["source"]), names)
        stream = {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
        yield [
            *([stream] if stream["text"] else []),
            *([] if value is None else [_result(value, number)]),
        ]


def _value_of(source: str, names: dict[str, Any]) -> Any:
    """The value of the last expression of a cell; None if it ends with something else."""
    if source.startswith("!"):
        program, *arguments = shlex.split(source[1:], comments=True)
        code = run_command(arguments) if program == "fedassay" else None
        if code != 0:
            raise RuntimeError(
                f"{source}: ended with {code}, expected a command of fedassay that ends with 0."
            )
        return None
    parsed = ast.parse(source)
    last = parsed.body[-1] if parsed.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(parsed, "<cell>", "exec"), names)
        return None
    parsed.body.pop()
    exec(compile(parsed, "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def _result(value: Any, number: int) -> Output:
    return {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _shown(value)}


def _shown(value: Any) -> dict[str, Any]:
    if hasattr(value, "alternative"):
        import vl_convert

        return {
            "image/svg+xml": _lines(vl_convert.vegalite_to_svg(value.chart.to_dict())),
            "text/plain": [f"{type(value).__name__}: {value.alternative}"],
        }
    pages = {"text/html": _lines(value._repr_html_())} if hasattr(value, "_repr_html_") else {}
    return {**pages, "text/plain": _lines(repr(value))}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(path: Path) -> None:
    """Execute the notebook in a folder of its own and write it again with what it has shown."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    os.environ["COLUMNS"] = _WIDE
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shown = list(executed(notebook))
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), shown, strict=True), start=1):
        cell |= {"execution_count": number, "outputs": outputs}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
