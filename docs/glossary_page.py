"""The page of the glossary."""

from __future__ import annotations

from fedassay.protocol.glossary import GLOSSARY


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
