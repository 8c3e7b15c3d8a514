"""`fedassay words`: the meanings of the words that commands, errors and reports use."""

from __future__ import annotations

from typing import Annotated

from fedassay.cli.command import Argument, command
from fedassay.errors import UsageError
from fedassay.protocol.glossary import GLOSSARY, words_in


@command
def words(
    word: Annotated[
        str | None, Argument(metavar="[WORD]", help="A word, or a sentence with several.")
    ] = None,
) -> None:
    """Show what the words mean that commands, errors and reports use."""
    meanings = GLOSSARY if word is None else words_in(word)
    if not meanings:
        raise UsageError(f"{word}: is not in the glossary; expected one of {', '.join(GLOSSARY)}.")
    width = max(map(len, meanings))
    for name, meaning in meanings.items():
        print(f"{name:{width}}  {meaning}")
