"""What there is to say of a setting: what it may be, what it is for, for whom and where."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, Flag, auto
from typing import Any, NamedTuple, get_args

import msgspec


class Scope(Enum):
    """For whom a value holds."""

    ALL = "all sites"  # alike: agents compare it before they train
    SITE = "one site"  # every site may have its own
    RUN = "one run"  # where its rows come from, and what it does beside learning


class Face(Flag):
    """Where a setting can be given: a command's options, a site's file, the estimators."""

    RUN = auto()
    COMPARE = auto()
    AUDIT = auto()
    THEORY = auto()
    NETWORK = auto()
    SITE = auto()
    ESTIMATORS = auto()
    PREDICT = auto()


COMMANDS = Face.RUN | Face.COMPARE | Face.AUDIT | Face.THEORY | Face.NETWORK
EVERYWHERE = COMMANDS | Face.SITE | Face.ESTIMATORS


class Knob(NamedTuple):
    """A setting, beside its name, type and default, which stand where it is declared."""

    help: str
    within: str = ""  # an interval such as "[0, 1)"
    expected: str = ""  # the same in words
    choices: Mapping[str, str] = {}  # name ↦ what it is; of a number, words in its place
    scope: Scope = Scope.ALL
    faces: Face = EVERYWHERE
    resume: bool = False  # whether a resumed run may change it
    option: str = ""  # its name on the command line, where that is not the key's
    path: bool = False  # whether it names a file or folder

    @property
    def described(self) -> str:
        """The help with all choices."""
        if not self.choices or self.expected:
            return self.help
        if not any(self.choices.values()):
            return f"{self.help.removesuffix('.')}: {', '.join(self.choices)}."
        each = (": ".join(filter(None, choice)) for choice in self.choices.items())
        return f"{self.help} {'; '.join(each)}."


class Declared(NamedTuple):
    """A setting where it stands."""

    key: str  # in a file: "lambda", "data.file"
    path: tuple[str, ...]  # of attributes: ("lam",), ("data", "file")
    kind: Any  # its type
    default: Any  # NODEFAULT where it must be given
    knob: Knob

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]

    @property
    def option(self) -> str:
        """What the command line calls it."""
        return self.knob.option or self.name.replace("_", "-")


def declared(kind: Any, above: tuple[str, ...] = ()) -> dict[str, Declared]:
    """All settings of a class and of the tables in it, by key."""
    found: dict[str, Declared] = {}
    for field in msgspec.structs.fields(kind):
        inside, *knobs = get_args(field.type) or (field.type,)
        key, path = ".".join((*above, field.encode_name)), (*above, field.name)
        if knobs and isinstance(knobs[-1], Knob):
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            found[key] = Declared(key, path, inside, default, knobs[-1])
        else:
            found |= declared(field.type, path)
    return found
