"""A site's own file on a network: what it may say, and what all sites must say alike."""

from __future__ import annotations

from functools import reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from coke.data.learnt import learnt
from coke.data.reading import ADDRESS
from coke.errors import ConfigError
from coke.settings.declaration import KNOBS, Settings, SiteSettings, Toml
from coke.settings.knobs import Face, Scope
from coke.settings.reading import checked, merged, read_toml
from coke.settings.rules import of_stream, on_agents
from coke.talk.names import by_id, site_name

SITE_DAYS = 90  # for which a site's certificate is valid, unless told otherwise
WARNED_DAYS = 30  # before the end of it
LONGEST_DAYS = 366  # nothing revokes a certificate: it must run out


def read_site(path: Path) -> SiteSettings:
    """A site's file, checked; paths in it are relative to its folder."""
    plain, base = read_toml(path), path.resolve().parent
    settings = checked_site(plain)
    names = {one.key: _value(settings, one.path) for one in KNOBS.values() if one.knob.path}
    paths = {key: name for key, name in names.items() if name and ADDRESS not in name}
    full = {key: str(base / name) for key, name in paths.items()}
    return msgspec.convert(merged(settings.plain(), full), learnt(SiteSettings))


def checked_site(plain: Toml) -> SiteSettings:
    """The settings in a site's file, or `ConfigError` naming what is wrong."""
    settings = checked(plain, SiteSettings, on_agents)
    table = settings.site
    site_name(table.network)
    by_id((table.name, *table.neighbours))
    if not table.neighbours:
        raise ConfigError(f"site {table.name!r} has no neighbours: name at least one")
    if settings.data.file is None or settings.data.target is None:
        raise ConfigError(f"site {table.name!r}: name its rows, data.file, and data.target")
    comes = settings.stream.time is not None
    for reason in of_stream(settings) if comes else ():
        raise ConfigError(reason)
    if comes and settings.features.kernels:
        raise ConfigError("kernels on an agent's stream, which has one: name it, or run it online")
    for one in KNOBS.values():
        if Face.SITE not in one.knob.faces and _value(settings, one.path) != one.default:
            raise ConfigError(f"{one.key} is for simulations: leave it out of a site's file")
    return settings


def shared(settings: Settings) -> Toml:
    """What the files of all sites of a network begin with."""
    kept = {
        one.key: _value(settings, one.path)
        for one in KNOBS.values()
        if one.knob.scope is not Scope.RUN and Face.SITE in one.knob.faces and one.path[0] != "site"
    }
    return merged({}, kept)


def compared(settings: SiteSettings) -> dict[str, str]:
    """What all sites must have in common, in words."""
    found: dict[str, str] = {}
    for one in KNOBS.values():
        value = _value(settings, one.path)
        if one.knob.scope is Scope.ALL and value not in (None, []):
            entries = value.items() if isinstance(value, dict) else [("", value)]
            found |= {".".join(filter(None, (one.key, name))): str(v) for name, v in entries}
    return found


def digest_of(common: dict[str, str]) -> str:
    """Of what all sites have in common, in 16 letters to compare over a telephone."""
    plain = msgspec.json.encode(sorted(common.items()))
    return blake2b(plain, digest_size=8).hexdigest()


def expiry_warning(name: str, seconds: float | None) -> str:
    """What to say of an identity that ends in so many seconds; nothing as long as it is far off."""
    days = WARNED_DAYS if seconds is None else seconds / 86400.0
    if days >= WARNED_DAYS:
        return ""
    return f"the identity of {name} ends in {days:.1f} days: renew it (coke identity)"


def _value(settings: Settings, path: tuple[str, ...]) -> Any:
    return reduce(getattr, path, settings)
