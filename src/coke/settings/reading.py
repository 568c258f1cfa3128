"""From a file, options or a dictionary to settings, or why not: all before any work.

A value is checked by its declaration; a rule between settings yields what it has against them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coke.data.learnt import learnt
from coke.errors import ConfigError, FileError, nearest, unknown
from coke.maths.losses import CLASSES, LOSSES
from coke.settings.declaration import (
    AUTO,
    KNOBS,
    PLAIN,
    PLAIN_LAMBDA,
    PUBLIC,
    TABLES,
    Settings,
    Toml,
)
from coke.settings.kernels import kernels_of
from coke.settings.knobs import Declared, Face, Knob
from coke.settings.rules import FACES, RULES, Rule, of_source

S = TypeVar("S", bound=Settings)
SAVED = "settings.json"  # in the folder of a run


def wanted(
    file: Path | None, changes: Mapping[str, Any], face: Face, resume: Path | None = None
) -> Settings:
    """The settings of a command: those of a file or of the run to resume, and what is changed.

    Without a file they are the defaults for rows of one's own, or else those of an example.
    """
    if resume is not None:
        plain = _saved(resume, [*([str(file)] if file else []), *changes])
    elif file is not None:
        plain = read_toml(file)
    else:
        plain = {} if "data.file" in changes else example(changes.get("data.example"))
    if face is Face.THEORY:
        changes = {**changes, "model": "plain"}  # the theorems are about the paper's features
    settings = checked_settings(merged(plain, changes))
    _refuse((of_source, *FACES.get(face, ())), settings)
    return settings


def _saved(folder: Path, changed: list[str]) -> Toml:
    """The settings of the run in that folder, if what is changed may change."""
    free = [one.key for one in KNOBS.values() if one.knob.resume]
    fixed = [name for name in changed if name not in free]
    if fixed:
        raise ConfigError(
            f"--resume {folder} with {', '.join(fixed)}: a resumed run keeps its own settings; "
            f"only {', '.join(free)} may change"
        )
    if not folder.is_dir():
        raise FileError(f"{folder}: there is no such folder to resume from")
    if not (folder / SAVED).exists():
        raise FileError(f"{folder}: no checkpoint to resume from; was --out this folder?")
    try:
        return msgspec.json.decode((folder / SAVED).read_bytes(), type=Toml)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{folder / SAVED}: cannot be read: {error}") from error


def read_toml(path: str | Path) -> Toml:
    """A TOML file as dictionaries."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error


def example(name: str | None = None) -> Toml:
    """The settings of an example; without a name, the paper's synthetic problem."""
    known = KNOBS["data.example"].knob.choices
    if name is not None and name not in known:
        raise ConfigError(unknown("example", name, known))
    path = f"resources/{name or KNOBS['data.example'].default}.toml"
    return tomllib.loads(resources.files("coke").joinpath(path).read_text("utf-8"))


def merged(plain: Toml, changes: Mapping[str, Any]) -> Toml:
    """`plain` with changes by dotted key, such as "data.file"."""
    result = {key: dict(v) if isinstance(v, dict) else v for key, v in plain.items()}
    for dotted, value in changes.items():
        *table, key = dotted.split(".")
        (result.setdefault(table[0], {}) if table else result)[key] = value
    return result


def checked_settings(plain: Toml) -> Settings:
    """The settings in such a file, or `ConfigError` naming the one at fault."""
    return checked(plain, Settings)


def checked(plain: Toml, kind: type[S], *rules: Rule) -> S:
    """The same for settings with more tables, or more rules."""
    _known_keys(plain, kind)
    try:
        settings = msgspec.convert(plain, learnt(kind))
    except msgspec.ValidationError as error:
        raise ConfigError(f"configuration: {error}") from error
    for one in KNOBS.values():
        if one.path[0] in kind.__struct_fields__:
            _check_value(one, reduce(getattr, one.path, settings))
    settings = _without_choice(_one_target(_in_letters(settings)))
    _refuse((*RULES, *rules), settings)
    return settings


def checked_again(settings: S) -> S:
    """The same, if the rules allow it with what was found out since it was read."""
    _refuse(RULES, settings)
    return settings


def _in_letters(settings: S) -> S:
    """With several kernels each written in one way, likewise."""
    if not settings.features.kernels:
        return settings
    kernels = tuple(map(str, kernels_of(settings.features)))
    features = msgspec.structs.replace(settings.features, kernels=kernels)
    return msgspec.structs.replace(settings, features=features)


def _one_target(settings: S) -> S:
    """With a name in place of a list of one, so that all who compare settings see the same."""
    if isinstance(settings.data.target, str | None) or len(settings.data.target) != 1:
        return settings
    data = msgspec.structs.replace(settings.data, target=settings.data.target[0])
    return msgspec.structs.replace(settings, data=data)


def _without_choice(settings: S) -> S:
    """With the plain model's own values where nothing is chosen.

    Nothing is with privacy, where every choice would be one more release of raw rows; in public
    units, which are there so that no row is looked at; with a loss for outliers, for a choice
    goes by squared errors, which outliers own; and with several kernels, which say what to choose
    from.
    """
    loss = LOSSES[settings.loss]
    squared = loss.statistics or loss.kind == CLASSES
    looking = settings.privacy == "none" and settings.data.scale != PUBLIC and squared
    if settings.model == AUTO and looking and not settings.features.kernels:
        return settings
    given = settings.features
    usual = {name: v for name, v in PLAIN.items() if getattr(given, name) == AUTO}
    open_ = (looking and loss.kind == CLASSES) or settings.loss == AUTO
    lam = PLAIN_LAMBDA if settings.lam == AUTO and not open_ else settings.lam
    features = msgspec.structs.replace(given, **usual)
    return msgspec.structs.replace(settings, model="plain", lam=lam, features=features)


def _known_keys(plain: Toml, kind: Any, where: str = "") -> None:
    keys = kind.__struct_encode_fields__
    for key, value in plain.items():
        if key not in keys:
            raise ConfigError(
                f"configuration: unknown key {where + key!r}.{nearest(key, keys)} "
                f"Expected one of {', '.join(keys)}"
            )
        if isinstance(value, dict) and key in TABLES and not where:
            _known_keys(value, TABLES[key], f"{key}.")


def _check_value(one: Declared, value: Any) -> None:
    """A word is one of the choices, a number within the bounds; so is every entry of a list."""
    knob = one.knob
    if isinstance(value, list | tuple):
        for entry in value:
            _check_value(one, entry)
    elif isinstance(value, str) and knob.choices and value not in knob.choices:
        if knob.within:
            raise ConfigError(f"{one.name}={value!r}: expected {knob.expected}")
        raise ConfigError(unknown(one.option, value, knob.choices))
    elif isinstance(value, int | float) and knob.within and not _within(knob, value):
        raise ConfigError(f"{one.name}={value}: expected {knob.expected}")


def _within(knob: Knob, value: float) -> bool:
    low, high = map(float, knob.within[1:-1].split(","))
    ends = (knob.within[0] == "(", low), (knob.within[-1] == ")", high)
    return low <= value <= high and not any(out and value == end for out, end in ends)


def _refuse(rules: tuple[Rule, ...], settings: Settings) -> None:
    for rule in rules:
        for reason in rule(settings):
            raise ConfigError(reason)
