"""A command's options, made from the declaration of the settings."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand

from coke.cli.console import warn
from coke.data.reading import ADDRESS
from coke.errors import ConfigError
from coke.settings.declaration import KNOBS, Settings
from coke.settings.idle import idle
from coke.settings.knobs import Declared, Face
from coke.settings.reading import wanted

Wanted = Callable[..., Settings]  # reads and checks the settings of a command
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Page = Annotated[
    int | None,
    typer.Option(
        help="Serve a page on this machine: at this port, or at any free one.",
        metavar="[PORT]",
        min=0,
        max=65535,
    ),
]
_LABELS = KNOBS["classes"].kind  # texts or numbers
_KERNELS = KNOBS["features.kernels"].kind
FILE = typer.Argument(help="TOML file; without it, the paper's synthetic problem.")


class Paged(TyperCommand):
    """A command with `Page`: `--page` without a port is `--page 0`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The option parser knows no option whose value may be left out."""
        followed = zip(args, [*args[1:], ""], strict=True)
        each = ([a, "0"] if a == "--page" and not b.isdigit() else [a] for a, b in followed)
        return super().parse_args(ctx, [word for words in each for word in words])


def app(**given: Any) -> typer.Typer:
    """For a command or a group of them; its help is plain, which is quick to show."""
    return typer.Typer(
        rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False, **given
    )


def command(face: Face, file: Any = FILE) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command a configuration file and an option for every setting of its face.

    It is called with `Wanted` and its own options.
    """
    settings = {"_".join(one.path): one for one in KNOBS.values() if face in one.knob.faces}

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        def called(config: Path | None, **given: Any) -> None:
            said = [(one, given.pop(name)) for name, one in settings.items()]
            changes = {one.key: _value(one, it) for one, it in said if it not in (None, [])}
            function(partial(_warned, config, changes, face), **given)

        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [_parameter("config", Path, file), *map(_option, settings.items()), *own]
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(kind=one.KEYWORD_ONLY) for one in parameters]
        )
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        called.__name__, called.__doc__ = function.__name__, function.__doc__
        return called

    return decorated


def _warned(
    config: Path | None, changes: dict[str, Any], face: Face, resume: Path | None = None,
    online: Path | None = None,
) -> Settings:  # fmt: skip
    """The settings; options among them that change nothing are said."""
    if online is not None:
        changes = changes | {"data.file": str(online.resolve())}
    settings = wanted(config, changes, face, resume)
    for line in idle(settings, changes, face):
        warn(line)
    return settings


def _option(named: tuple[str, Declared]) -> inspect.Parameter:
    """None where it is not given, for a file may say otherwise than the default."""
    name, one = named
    flag = f"--{one.option}/--no-{one.option}" if one.kind is bool else f"--{one.option}"
    plain = isinstance(one.default, str | int | float) and one.kind is not bool
    text = one.knob.described + f" [default: {one.default}]" * plain
    return _parameter(
        name, _kind(one), typer.Option(flag, help=text, metavar="PATH" if one.knob.path else None)
    )


def _parameter(name: str, kind: Any, info: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _kind(one: Declared) -> Any:
    """What the command line takes for a setting of that type."""
    union = get_args(one.kind) if isinstance(one.kind, UnionType) else (one.kind,)
    kinds = [kind for kind in union if kind is not NoneType]
    if one.knob.path:
        return str  # not a Path, which would spoil the address of a database
    if list[str] in kinds:  # one or several
        return list[str]
    if len(kinds) > 1:  # a number or a word
        return str
    lines = get_origin(kinds[0]) is dict or kinds[0] in (_LABELS, _KERNELS)
    return list[str] if lines else kinds[0]


def _value(one: Declared, said: Any) -> Any:
    """As a file has it."""
    if one.knob.path:
        return said if ADDRESS in said else str(Path(said).resolve())
    if get_origin(one.kind) is dict:
        return _table(one, said)
    if one.kind == _LABELS:
        return [number_or_word(label, int) for label in said]
    numbers = [kind for kind in (int, float) if kind in get_args(one.kind)]
    return number_or_word(said, numbers[0]) if numbers and isinstance(said, str) else said


def _table(one: Declared, lines: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--{one.option} {lines[0]}: expected as in a file: {error}") from error


def number_or_word(text: Any, kind: type[int] | type[float] = float) -> Any:
    """An option that is a number or a word such as auto."""
    try:
        return kind(text)
    except ValueError:
        return text
