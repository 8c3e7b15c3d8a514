"""The Flower app of fedassay: one `pyproject.toml`, no code. Code comes from what is installed on each machine."""

from __future__ import annotations

import json
from pathlib import Path

from fedassay.errors import UsageError
from fedassay.files import write_atomically
from fedassay.runtimes.flower.study import Study
from fedassay.version import VERSION

COMPONENTS = {
    "serverapp": "fedassay.runtimes.flower.server_app:app",
    "clientapp": "fedassay.runtimes.flower.client_app:app",
}


def write_app(folder: Path, *, components: dict[str, str] | None = None) -> Path:
    """Write the app. It names no file of any machine: whoever submits it could change what it names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be created ({error.strerror}).") from error
    path = folder / "pyproject.toml"
    if path.exists() and "fedassay" not in path.read_text(encoding="utf-8"):
        raise UsageError(f"{path}: exists and is not an app of fedassay; give another folder.")
    config = Study(name="study").to_config()
    lines = [
        "# Written by `fedassay flower app`. fedassay must be installed on the SuperLink's machine,",
        "# on every node, and where `fedassay flower submit` is called.",
        "[project]",
        'name = "fedassay-app"',
        f"version = {to_toml(VERSION)}",
        'description = "Federated evaluation under formal privacy"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "",
        "[tool.flwr.app]",
        'publisher = "fedassay"',
        "",
        "[tool.flwr.app.components]",
        *(f"{name} = {to_toml(value)}" for name, value in (components or COMPONENTS).items()),
        "",
        "[tool.flwr.app.config] # every entry can be overridden when the app is submitted",
        *(f"{name} = {to_toml(value)}" for name, value in config.items()),
        "",
    ]
    write_atomically(path, "\n".join(lines))
    return path


def to_toml(value: str | int | float | list[str]) -> str:
    r"""A value as TOML; JSON's spelling is TOML's too, for these types.

    Examples
    --------
    >>> to_toml('{"thresholds": [0.5]}'), to_toml(0.0)
    ('"{\\"thresholds\\": [0.5]}"', '0.0')
    """
    return json.dumps(value, ensure_ascii=False)
