"""Commands made of shared groups of options, on cyclopts.

An option is declared by the annotation of a parameter, ``Annotated[float, Option(help=...)]``, or by the field of a
dataclass (`OptionsOf`): its type, its choices and its sentence come from there. Nothing is checked here but that words
can be read as numbers: a dataclass checks its own values.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import cyclopts
from annotated_types import Interval
from cyclopts import exceptions

from fedassay.errors import FedassayError, ParameterError, UsageError
from fedassay.protocol.parameters import Parameter, meant, parameters

T = TypeVar("T")
GivenOptions = dict[str, Any]
"""Options that were given, by the name of their parameter."""

METAVARS: Mapping[Any, str] = {str: "TEXT", Path: "FILE", int: "INTEGER", float: "NUMBER"}
NOUNS: Mapping[Any, str] = {int: "a whole number", float: "a number"}

_FLAGS: dict[str, str] = {}
"""Names of the options of the running command, by the name of their parameter."""


def Option(  # noqa: N802 # it stands where a class would
    *names: str,
    help: str = "",  # noqa: A002 # as in every library of this sort
    metavar: str | None = None,
    panel: str | None = None,
    hidden: bool = False,
) -> cyclopts.Parameter:
    """Declare an option, named like its parameter unless other names are given, without a ``--no-x`` form."""
    placed = {} if panel is None else {"group": panel}  # None would be no panel at all
    return cyclopts.Parameter(
        name=names or None,
        help=help,
        metavar=metavar,
        show=not hidden,
        show_choices=metavar is None,
        show_env_var=False,
        show_default=lambda value: None if value is False else value,
        allow_repeating=True,  # the last one counts
        negative=(),
        allow_leading_hyphen=True,  # "-" is standard output, and -1,5 a range; `called` refuses names of options
        **placed,  # type: ignore[arg-type]
    )


def Argument(*, metavar: str, help: str) -> cyclopts.Parameter:  # noqa: N802, A002
    """Declare a word that is no option, and its name in the help."""
    return cyclopts.Parameter(name=metavar, help=help, negative=(), allow_leading_hyphen=False)


def takes(*groups: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command shared options: where it has a parameter named like a group, it gets what the group makes.

    The options of a group stand in the place of the parameter, in the help too. A group may be made of groups.
    """
    signatures = {group.__name__: signature_of(group) for group in groups}

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        own: list[inspect.Parameter] = []
        for parameter in signature_of(command, without=signatures).parameters.values():
            shared = signatures.get(parameter.name)
            own += [parameter] if shared is None else shared.parameters.values()

        @wraps(command)
        def called(*words: Any, **given: Any) -> T:
            values = {one.name: one.default for one in own if one.default is not inspect.Parameter.empty}
            values |= dict(zip((one.name for one in own if is_word(one)), words, strict=False)) | given
            for one in own:
                if not is_word(one):
                    _FLAGS[one.name] = _flag(one)
                _check(one, values[one.name])
            made = {
                group.__name__: group(
                    **{name: values.pop(name) for name in signatures[group.__name__].parameters}
                )
                for group in groups
            }
            return command(**values, **made)

        return with_signature(called, own)

    return decorate


def with_default(group: Callable[..., T], name: str, default: Any) -> Callable[..., T]:
    """Return a group of shared options in which one of them has another default."""
    signature = signature_of(group)

    @wraps(group)
    def same(**values: Any) -> T:
        return group(**values)

    changed = {**signature.parameters, name: signature.parameters[name].replace(default=default)}
    same.__signature__ = signature.replace(parameters=list(changed.values()))  # type: ignore[attr-defined]
    return same


def _check(parameter: inspect.Parameter, value: Any) -> None:
    """Refuse what cannot have been meant: the name of an option as a value, a number out of its range."""
    for text in value if isinstance(value, list) else [value]:
        if str(text).startswith("--"):
            raise ParameterError(parameter.name, f"needs a value, got the option {text}.")
    if value is not None and any(isinstance(one, Interval) for one in get_args(parameter.annotation)):
        Parameter(name=parameter.name, annotation=parameter.annotation, default=None, sentence="").check(
            value
        )


def command(function: Callable[..., T]) -> Callable[..., T]:
    """Make a command of a function without shared options."""
    return takes()(function)


def with_signature(function: Callable[..., T], own: Iterable[inspect.Parameter]) -> Callable[..., T]:
    """Return the function with these parameters: words first, options by name."""
    listed = [
        one.replace(
            kind=inspect.Parameter.POSITIONAL_ONLY if is_word(one) else inspect.Parameter.KEYWORD_ONLY,
            annotation=_with_metavar(one),
        )
        for one in own
    ]
    listed.sort(key=lambda one: one.kind)
    function.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in listed}
    return function


def signature_of(function: Any, *, without: Container[str] = ()) -> inspect.Signature:
    """Return the signature, with annotations as objects; those of some parameters are left unchanged.

    Annotations that are only made from options need not be imported before a command is run.
    """
    found: inspect.Signature | None = getattr(function, "__signature__", None)
    if found is not None:
        return found
    written = inspect.signature(function)
    read = [
        one if one.name in without else one.replace(annotation=_evaluated(one.annotation, function))
        for one in written.parameters.values()
    ]
    return written.replace(parameters=read)


def _evaluated(annotation: Any, function: Any) -> Any:
    return eval(annotation, function.__globals__) if isinstance(annotation, str) else annotation


def _flag(parameter: inspect.Parameter) -> str:
    names: Any = declared(parameter).name
    return str(names[0]) if names else _as_flag(parameter.name)


def _as_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _with_metavar(parameter: inspect.Parameter) -> Any:
    """Return the annotation of an option, with the values that it takes."""
    option = declared(parameter)
    kind, *said = get_args(parameter.annotation) or (parameter.annotation,)
    limits = [one for one in said if not isinstance(one, cyclopts.Parameter)]
    word = METAVARS.get(item_of(kind)) if option.metavar is None else None
    if word is not None:
        option = cyclopts.Parameter.combine(option, cyclopts.Parameter(metavar=word))
    return Annotated[(kind, *limits, option)]


def item_of(kind: Any) -> Any:
    """Return the type of a value of an option, or of each where it may be repeated; without None."""
    is_union = isinstance(kind, UnionType) or get_origin(kind) is Union
    kinds = [one for one in get_args(kind) if one is not NoneType] if is_union else [kind]
    only = kinds[0]
    return get_args(only)[0] if get_origin(only) is list else only


def keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Make a parameter that is given by name."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def declared(parameter: inspect.Parameter) -> cyclopts.Parameter:
    """Return the `Option` or `Argument` that a parameter is annotated with."""
    return next(
        (one for one in get_args(parameter.annotation) if isinstance(one, cyclopts.Parameter)),
        cyclopts.Parameter(),
    )


def is_word(parameter: inspect.Parameter) -> bool:
    """Return whether it is a word without the name of an option before it."""
    names = declared(parameter).name
    return bool(names) and not str(next(iter(names))).startswith("-")  # type: ignore[arg-type]


class ColumnsOf:
    """Group of options that name columns; it makes a mapping of those given.

    Parameters
    ----------
    name : of the parameter of the command that gets the mapping.
    sentences : by the name of an option, its help.
    """

    def __init__(self, name: str, sentences: Mapping[str, str], *, metavar: str | None = None) -> None:
        self.__name__ = name
        options = {one: Option(help=sentence, metavar=metavar) for one, sentence in sentences.items()}
        self.__signature__ = inspect.Signature(
            [keyword(one, Annotated[str | None, option], None) for one, option in options.items()]
        )

    def __call__(self, **given: str | None) -> dict[str, str]:
        """Return the columns that were named, by option."""
        return {option: column for option, column in given.items() if column is not None}


# --- options of dataclasses -------------------------------------------------------------------------------------


class OptionsOf:
    """A group of options that are the parameters of one or several dataclasses; it makes a mapping of those given.

    Several classes are alternatives: an option that they share stands there once, with the choices of all. What a
    class makes of a value, it says by itself.

    Parameters
    ----------
    name : of the parameter of the command that gets the mapping.
    kinds : the dataclass, or several by what help calls them.
    panels : by these words, the heading of the options that only one of several has.
    only, without : the parameters that have an option here, where not all have one.
    needed : whether parameters without a default have to be given.
    """

    def __init__(
        self,
        name: str,
        kinds: type[Any] | Mapping[str, type[Any]],
        *,
        panels: Mapping[str, str] = MappingProxyType({}),
        only: Container[str] | None = None,
        without: Container[str] = (),
        needed: bool = True,
    ) -> None:
        self.__name__ = name
        self._same: dict[str, Same] = {}
        named = kinds if isinstance(kinds, Mapping) else {"": kinds}
        for label, kind in named.items():
            for one in parameters(kind):
                if one.name not in without and (only is None or one.name in only):
                    self._same.setdefault(flag_of(one)[2:].replace("-", "_"), []).append((label, one))
        options = [
            _option(
                name,
                same,
                panel=panels.get(same[0][0]) if len(same) == 1 else None,
                required=needed and len(same) == len(named) and same[0][1].required,
            )
            for name, same in self._same.items()
        ]
        self.__signature__ = inspect.Signature(
            sorted(options, key=lambda one: one.default is not inspect.Parameter.empty)
        )

    def __call__(self, **given: Any) -> GivenOptions:
        """Return the options that were given, each with the type of its parameter."""
        names = {same[0][1].name: _as_flag(option) for option, same in reversed(self._same.items())}
        _FLAGS.update(names)
        found: GivenOptions = {}
        for option, value in given.items():
            if value is None or value is False:
                continue
            name = self._same[option][0][1].name
            flag = _as_flag(option)
            if name in found:
                raise ParameterError(
                    name, f"got {flag} as well, which is for another task; leave one of them out."
                )
            _FLAGS[name] = flag
            found[name] = _value([one for _, one in self._same[option]], value)
        return found


Same = list[tuple[str, Parameter]]
"""One option of several classes, each by what help calls it."""


def _option(name: str, same: Same, *, panel: str | None, required: bool) -> inspect.Parameter:
    first = same[0][1]
    choices = tuple(dict.fromkeys(choice for _, one in same for choice in one.choices))
    mixed = any(one.mixed for _, one in same)
    metavar = first.listed.metavar if first.listed else "|".join((*choices, "A,B,..")) if mixed else None
    item: Any = Literal[choices] if choices else first.item
    kind = str if metavar is not None else list[item] if first.several else item
    option = Option(flag_of(first), help=_help(same), metavar=metavar, panel=panel)
    switch = first.item is bool
    default = inspect.Parameter.empty if required else False if switch else None
    return keyword(name, Annotated[kind if required or switch else kind | None, option], default)


def _help(same: Same) -> str:
    """Join the sentences of an option, each with the classes it is for if there are several, and the defaults."""
    sentences: dict[str, list[str]] = {}
    defaults: dict[str, list[str]] = {}
    for label, one in same:
        sentences.setdefault(_sentence(one), []).append(label)
        if (default := _default(one)) is not None:
            defaults.setdefault(default, []).append(label)
    said = [
        f"{', '.join(labels)}: {text}" if len(sentences) > 1 else text for text, labels in sentences.items()
    ]
    if same[0][1].several and same[0][1].listed is None:
        said.append("May be repeated.")
    if len(defaults) == 1 and len(next(iter(defaults.values()))) == len(same):
        said.append(f"Default: {next(iter(defaults))}.")
    elif defaults:
        said.append(
            "Default: "
            + ", ".join(f"{value} ({', '.join(labels)})" for value, labels in defaults.items())
            + "."
        )
    return " ".join(said)


def flag_of(parameter: Parameter) -> str:
    """Return the option's name: the parameter's, in the singular where it is repeated, negated for a switch.

    Examples
    --------
    >>> from fedassay.protocol.vocabulary import Budget
    >>> [flag_of(one) for one in parameters(Budget)]
    ['--epsilon', '--delta']
    """
    name = parameter.name.replace("_", "-")
    if parameter.several and parameter.listed is None:
        name = name.removesuffix("s")
    return f"--no-{name}" if parameter.default is True else f"--{name}"


def _sentence(parameter: Parameter) -> str:
    """Return the sentence of a parameter, about what its option does."""
    said = parameter.sentence
    return f"Do not {said[:1].lower()}{said[1:]}" if parameter.default is True else said


def _default(parameter: Parameter) -> str | None:
    """Return the default, where the sentence does not state it."""
    default = parameter.shown_default
    if default in (None, (), "") or isinstance(default, bool) or "Default" in parameter.sentence:
        return None
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _value(same: Sequence[Parameter], given: Any) -> Any:
    first = next((one for one in same if one.mixed), same[0])
    if first.default is True:
        return False
    if first.listed is None and not first.mixed:
        return list(given) if first.several else given
    if given in first.choices:
        return given
    words = [word.strip() for word in str(given).split(",")]
    item = float if first.mixed else first.item
    try:
        return [item(word) for word in words]
    except ValueError:
        expected = first.words if first.mixed else "numbers separated by commas, such as 0,10"
        raise ParameterError(first.name, f"got {given!r}, expected {expected}.") from None


# --- what is reported ---------------------------------------------------------------------------------------------


_NAMED = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
"""Pattern of parameters in errors: `` `points` ``, `` `method="newton"` ``."""


def forget_options() -> None:
    """Forget the options of an earlier command, before one runs: errors do not speak of them."""
    _FLAGS.clear()


def in_options(error: FedassayError) -> str:
    """Return the sentence of an error, with the options of the command where it names parameters."""
    subject, _, rest = str(error).partition(": ")
    name = re.sub(r"[ -]", "_", subject)
    said = f"{_FLAGS[name]}: {rest}" if isinstance(error, UsageError) and name in _FLAGS else str(error)
    return phrased(said)


def phrased(text: str) -> str:
    """Return a sentence with the options of the command where it names parameters."""
    return _NAMED.sub(_as_option, text)


def _as_option(match: re.Match[str]) -> str:
    name, value = match.groups()
    flag = _FLAGS.get(name)
    if flag is None:  # an entry of a study, or a column
        return name if value is None else f"{name} = {value}"
    return flag if value in (None, "True") else " ".join((flag, value.strip("'\"")))


def misread(error: exceptions.CycloptsError) -> str:
    """Describe in one sentence words that are no command, no option, or not what an option takes."""
    if isinstance(error, exceptions.UnknownOptionError):
        known = sorted({name for one in error.argument_collection or () for name in one.names})
        got = error.token.keyword or error.token.value
        if got == "-":
            return "-: standard input is not read, as rows are read more than once; give a file."
        return f"{got}: no such option{_meant(got, known)}."
    if isinstance(error, exceptions.UnknownCommandError):
        word = (error.unused_tokens or [""])[0]
        known = [name for name in (error.app or ()) if not name.startswith("-")]
        return f"{word}: no such command{meant(word, known)}."
    if isinstance(error, exceptions.UnusedCliTokensError):
        words = " ".join(error.unused_tokens or ())
        return f"got {words!r}, expected no further words; names with spaces need quotes."
    name = _name(error)
    if isinstance(error, exceptions.CoercionError):
        got = error.token.value if error.token is not None else ""
        argument = error.argument
        choices = argument.get_choices() if argument is not None else None
        if choices:
            return f"{name}: got {got!r}{meant(got, choices)}."
        expected = NOUNS.get(error.target_type, "another value")
        return f"{name}: got {got!r}, expected {expected}."
    if isinstance(error, exceptions.MissingArgumentError):
        return f"{name}: {'needs a value' if error.keyword else 'missing'}{_about(error)}."
    if isinstance(error, exceptions.RepeatArgumentError):
        return f"{name}: given twice, expected once."
    return " ".join(str(error).split())


def _meant(word: str, known: Sequence[str]) -> str:
    names = {name.lstrip("-"): name for name in known}  # what all begin with makes none of them alike
    close = get_close_matches(word.lstrip("-"), names, n=1)
    return f" (did you mean {names[close[0]]!r}?); see --help" if close else "; see --help"


def _name(error: exceptions.CycloptsError) -> str:
    token = getattr(error, "token", None)
    if token is not None and token.keyword:
        return str(token.keyword)
    if error.argument is None:
        return "option"
    return str(error.argument.names[0] if error.argument.names else error.argument.name)


def _about(error: exceptions.CycloptsError) -> str:
    """Describe the missing word, from its help."""
    text = error.argument.parameter.help if error.argument is not None else None
    if not text:
        return ""
    first = re.sub(r"(?<!\.)[.;]$", "", re.split(r"(?<=[^.][.;])\s", text)[0])
    return f", expected: {first[:1].lower()}{first[1:]}"
