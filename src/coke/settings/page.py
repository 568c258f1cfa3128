"""docs/settings.md, made from the declaration."""

from __future__ import annotations

from itertools import groupby
from typing import get_args

import msgspec

from coke.settings.declaration import KNOBS, TABLES, Settings
from coke.settings.knobs import COMMANDS, EVERYWHERE, Declared, Face

_HEAD = """# Settings

Made by `make docs` from `coke/settings/declaration.py`. A key stands in a configuration file
(TOML); an option of the same name overrides it; what is misspelt or out of bounds is refused before
any work. Commands are `coke run`, `compare`, `audit`, `theory` and `network init`; `site` is the
file of `coke agent`. *All sites*: must be the same everywhere, agents compare it before they train.
*One site*: every site may have its own. *One run*: where its rows come from, and what it does
beside learning. A resumed run may change what is marked ↻.
"""
_KINDS = {
    "str": "text", "bool": "true or false", "int": "a whole number", "list[str]": "texts",
    "str | list[str]": "text, or texts",
    "list[str | int | float | bool]": "texts or numbers",
    "dict[str, str]": "texts by name", "dict[str, tuple[float, float]]": "pairs by name",
}  # fmt: skip
_WORDS = {
    EVERYWHERE: "everywhere", COMMANDS: "commands", COMMANDS | Face.SITE: "commands, site",
    COMMANDS | Face.SITE | Face.PREDICT: "commands, site, predict",
}  # fmt: skip


def settings_page() -> str:
    """All settings as Markdown, a table for each table of a file."""
    parts = [_HEAD]
    for name, some in groupby(KNOBS.values(), key=lambda one: one.key.rpartition(".")[0]):
        about = TABLES.get(name, Settings).__doc__ or ""
        parts.append(f"## {about.partition('.')[0]}")
        rows = ["", "| key | may be | default | for | where | |", "|---|---|---|---|---|---|"]
        parts += [*rows, *map(_row, some), ""]
    return "\n".join(parts)


def _row(one: Declared) -> str:
    knob = one.knob
    option = f" (`--{knob.option}`)" if knob.option else ""
    mark = " ↻" if knob.resume else ""
    where = _WORDS.get(knob.faces) or ", ".join(str(face.name).lower() for face in knob.faces)
    cells = (f"`{one.name}`{option}{mark}", _values(one), _default(one), knob.scope.value, where)
    return " | ".join(("|", *cells, f"{knob.help} |")).replace("| | ", "| ", 1)


def _values(one: Declared) -> str:
    """The choices with what they are, or the bounds in words, or the type."""
    if one.knob.expected or one.knob.path:
        return one.knob.expected or "a path"
    each = [f"`{name}`" + f": {about}" * bool(about) for name, about in one.knob.choices.items()]
    kind = one.kind.__name__ if isinstance(one.kind, type) and not get_args(one.kind) else one.kind
    return "; ".join(each) or _KINDS[str(kind).removesuffix(" | None")]


def _default(one: Declared) -> str:
    if one.default is msgspec.NODEFAULT:
        return "must be given"
    return (
        ""
        if one.default in (None, [], (), {})
        else f"`{msgspec.json.encode(one.default).decode()}`"
    )
