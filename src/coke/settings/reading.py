"""From a file, options or a dictionary to settings, or why not: all before any work.

A value is checked by its declaration; a rule between settings yields what it has against them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coke.errors import ConfigError, FileError, nearest, unknown
from coke.maths.algorithms import ALGORITHMS
from coke.maths.losses import CLASSES, LOSSES
from coke.settings.declaration import (
    AUTO,
    KNOBS,
    LOOKING,
    PLAIN,
    PLAIN_LAMBDA,
    PUBLIC,
    TABLES,
    Settings,
    Toml,
)
from coke.settings.knobs import Declared, Face, Knob

S = TypeVar("S", bound=Settings)
Rule = Callable[[Any], Iterator[str]]
SAVED = "settings.json"  # in the folder of a run


def wanted(
    file: Path | None, changes: Mapping[str, Any], face: Face, resume: Path | None = None
) -> Settings:
    """The settings of a command: those of a file or of the run to resume, and what is changed.

    Without a file they are the defaults for rows of one's own, or else the synthetic problem's.
    """
    if resume is not None:
        plain = _saved(resume, [*([str(file)] if file else []), *changes])
    elif file is not None:
        plain = read_toml(file)
    else:
        plain = {} if "data.file" in changes else synthetic()
    if face is Face.THEORY:
        changes = {**changes, "model": "plain"}  # the theorems are about the paper's features
    settings = checked_settings(merged(plain, changes))
    check_source(settings)
    _refuse(_FACES.get(face, ()), settings)
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
    except (OSError, msgspec.DecodeError) as error:
        raise FileError(f"{folder / SAVED}: cannot be read: {error}") from error


def read_toml(path: str | Path) -> Toml:
    """A TOML file as dictionaries."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error


def synthetic() -> Toml:
    """The paper's synthetic problem."""
    text = resources.files("coke").joinpath("resources/synthetic.toml").read_text("utf-8")
    return tomllib.loads(text)


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
        settings = msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"configuration: {error}") from error
    for one in KNOBS.values():
        if one.path[0] in kind.__struct_fields__:
            _check_value(one, reduce(getattr, one.path, settings))
    _refuse((*_RULES, *rules), settings)
    return _without_choice(settings)


def _without_choice(settings: S) -> S:
    """With the plain model's own values where nothing is chosen.

    Nothing is with privacy, where every choice would be one more release of raw rows, and in public
    units, which are there so that no row is looked at.
    """
    looking = settings.privacy == "none" and settings.data.scale != PUBLIC
    if settings.model == AUTO and looking:
        return settings
    given = settings.features
    usual = {name: v for name, v in PLAIN.items() if getattr(given, name) == AUTO}
    lam = PLAIN_LAMBDA if settings.lam == AUTO else settings.lam
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


def check_source(settings: Settings) -> None:
    """The file of the rows and its columns belong together, or `ConfigError`."""
    _refuse((_source,), settings)


def _source(settings: Settings) -> Iterator[str]:
    data = settings.data
    if data.file is not None and data.target is None:
        yield f"data.file = {data.file!r} without data.target: name the target column"
    if data.file is None and (data.target or data.site):
        yield "data.target or data.site without data.file: name the file of the rows"
    folder = data.file is not None and Path(data.file).is_dir()
    if folder and data.site is not None:
        yield f"data.site with the folder {data.file}: its files are the sites"
    if data.out_of_core and (data.file is None or not (folder or data.site)):
        yield "data.out_of_core without sites: name data.file and data.site, or a folder"
    if str(data.file).endswith(".npy") and not (data.out_of_core or data.on_disk):
        yield (
            f"{data.file}: arrays are read in chunks only: add data.out_of_core = true, or for "
            "class labels data.on_disk"
        )
    if data.file is None and LOSSES[settings.loss].kind == CLASSES:
        yield f'loss = "{settings.loss}" needs class labels: name a data.file with them'


def _solvable(settings: Settings) -> Iterator[str]:
    if settings.lam == 0 and not LOSSES[settings.loss].statistics:
        yield f"lambda=0 with the {settings.loss} loss: expected lambda > 0, try 1e-4"
    if (settings.whitening == "sample") != (settings.sample is not None):
        yield (
            f"whitening={settings.whitening!r} with sample={settings.sample!r}: name a file of "
            'public inputs for whitening = "sample", and none for any other'
        )
    if settings.whitening == "range" and settings.data.scale != PUBLIC:
        yield 'whitening = "range" takes the ranges of scale = "public": give them'


def _plainly(settings: Settings) -> Iterator[str]:
    """What only sites that choose can do."""
    f = settings.features
    for name, given in (("inputs", f.inputs == "quantiles"), ("linear", f.linear not in (AUTO, 0))):
        if settings.model == "plain" and given:
            yield f'{name} = {getattr(f, name)!r} with model = "plain": expected model = "auto"'


def _compiled(settings: Settings) -> Iterator[str]:
    if settings.fast and not LOSSES[settings.loss].statistics:
        yield f'fast with loss = "{settings.loss}": only {_summed()} rounds are compiled'
    if settings.fast and find_spec("numba") is None:
        yield "fast needs Numba: pip install 'coke[fast]', or leave it out"


def _summed() -> str:
    """The losses of which sums over the rows are all that training needs."""
    return " or ".join(name for name, loss in LOSSES.items() if loss.statistics)


def _out_of_core(settings: Settings) -> Iterator[str]:
    """What needs a row again after it has gone by cannot do without it in memory."""
    bases = [name for name in (settings.algorithm, *settings.beside) if ALGORITHMS[name].basis]
    needs_rows = {
        f'loss = "{settings.loss}"': not LOSSES[settings.loss].statistics,
        f'privacy = "{settings.privacy}"': settings.privacy != "none",
        f'split = "{settings.data.split}"': settings.data.split is not None,
        f'whitening = "{settings.whitening}" of {", ".join(bases)}': bases
        and settings.whitening in LOOKING,
    }
    for what, refused in needs_rows.items():
        if settings.data.out_of_core and refused:
            yield (
                f"out_of_core with {what}: that needs rows in memory; out of core is for sites "
                f"with names, the {_summed()} loss, and for a common basis whitening = "
                '"gram" or "sample"; for class labels use on_disk'
            )
    if settings.data.on_disk is not None and LOSSES[settings.loss].statistics:
        yield (
            f'data.on_disk with loss = "{settings.loss}", which keeps no features: for rows that '
            "do not fit into memory use data.out_of_core"
        )


def _private(settings: Settings) -> Iterator[str]:
    """Nothing by which raw rows would speak past the noise."""
    if settings.privacy != "dp":
        for name in ("epsilon", "secure_sum", "new_budget"):
            if getattr(settings, name):
                yield f'{name} without privacy = "dp": set both'
        return
    if settings.epsilon is None:
        yield 'privacy = "dp" without epsilon: 1 is strict, 10 weak'
    if not LOSSES[settings.loss].statistics:
        yield (
            f'privacy = "dp" with loss = "{settings.loss}": only the {_summed()} loss has '
            "statistics that can be noised once; others touch raw rows in every round"
        )
    if settings.data.scale != PUBLIC:
        yield (
            f'privacy = "dp" with scale = "{settings.data.scale}": ranges must be known '
            'beforehand; use scale = "public" and data.ranges'
        )
    if settings.features.sigma == AUTO:
        yield 'privacy = "dp" with sigma = "auto": that looks at raw rows; give σ'
    if settings.whitening in LOOKING:
        yield (
            f'privacy = "dp" with whitening = "{settings.whitening}": moments of raw inputs are '
            'not noised; use "range" (of public units), "sample" (public inputs) or "gram" '
            "(noised statistics)"
        )


def _compared(settings: Settings) -> Iterator[str]:
    if settings.privacy != "none":
        yield (
            f'privacy = "{settings.privacy}": a comparison looks at raw rows; compare on public '
            "data, or without it"
        )


def _audited(settings: Settings) -> Iterator[str]:
    if not LOSSES[settings.loss].statistics:
        yield (
            f'loss = "{settings.loss}": the attacks are on the {_summed()} loss; others send what '
            "is no less telling"
        )
    reason = ALGORITHMS[settings.algorithm].not_for.get("audit")
    if reason:
        yield f'algorithm = "{settings.algorithm}" cannot be audited: {reason}'


def _in_theory(settings: Settings) -> Iterator[str]:
    if not LOSSES[settings.loss].statistics:
        yield f'loss = "{settings.loss}": the theorems\' constants need the {_summed()} loss'
    if settings.data.out_of_core:
        yield "out_of_core: the constants need rows in memory; use some of the rows"


def on_agents(settings: Settings) -> Iterator[str]:
    """Why these settings cannot run on agents."""
    reason = ALGORITHMS[settings.algorithm].not_for.get("agents")
    if reason:
        yield f'algorithm = "{settings.algorithm}" cannot run on agents: {reason}'
    if settings.data.out_of_core:
        yield "data.out_of_core is for coke run: an agent reads its own rows at once"


_RULES = (_solvable, _plainly, _compiled, _out_of_core, _private)
_FACES: dict[Face, tuple[Rule, ...]] = {
    Face.COMPARE: (_compared,),
    Face.AUDIT: (_audited,),
    Face.THEORY: (_in_theory,),
    Face.NETWORK: (on_agents,),
}
