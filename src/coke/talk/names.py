"""What sites are called: any text for people, and an id for files, certificates and keys."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b

from coke.errors import GraphError, InputError

CA = "ca"  # the authority's id, and so no site's
LONGEST = 255  # characters of a name; an id has 63 at most, as a part of a DNS name
_PART = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_PLAIN = re.compile(rf"{_PART}(\.{_PART})*")
_MADE, _DEVICES = ".*-[0-9a-f]{20}", r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?"
_TAKEN = re.compile(f"{CA}|{_MADE}|{_DEVICES}")  # by others: ids made here, devices of Windows
# Ends a line, moves a cursor, turns what follows around, or is half a character.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SHORT = 4  # bytes of a short id
_NUMBERED = re.compile(r"^site-0*(?=\d+$)", re.ASCII)
_SLUG = 40  # characters of a name that its id shows


def site_name(name: str) -> str:
    """The name itself if people can read it: some characters, none that controls a terminal."""
    if not name.strip() or len(name) > LONGEST:
        said = f"{len(name)} characters, {name[:20]!r} …" if len(name) > LONGEST else repr(name)
        raise InputError(f"name of {said}: expected 1 to {LONGEST} characters; rename it")
    wrong = _CONTROLS.search(name)
    if wrong:
        raise InputError(
            f"name {name[:80]!a}: {wrong[0]!a} is no character to read; expected a name "
            "without control characters and line ends; rename it"
        )
    return name


def controls(c: str) -> bool:
    """Ends a line, moves a cursor, turns what follows around, or is no character at all."""
    return _CONTROLS.match(c) is not None


def readable(text: str) -> str:
    """Any text, as it can be shown: what would control a terminal is replaced."""
    return _CONTROLS.sub("\ufffd", text)


def is_id(text: str) -> bool:
    """Whether DNS, certificates and file systems take it, also those that do not tell A from a."""
    return len(text) <= 63 and _PLAIN.fullmatch(text) is not None


def site_id(name: str) -> str:
    """Distinct names ↦ distinct ids that file systems, DNS and certificates take; else an error.

    A name that is such an id already is its own, unless others have it. Others get what
    is left of them in plain letters, and 80 bits of a digest: upper and lower case, signs and
    scripts that no file system tells apart stay apart.
    """
    if is_id(site_name(name)) and not _TAKEN.fullmatch(name):
        return name
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = "-".join(re.findall("[a-z0-9]+", letters))[:_SLUG].rstrip("-") or "site"
    return f"{slug}-{blake2b(name.encode(), digest_size=10).hexdigest()}"


def by_id(names: Iterable[str]) -> dict[str, str]:
    """Id ↦ name; two names of one id are refused."""
    found = dict[str, str]()
    for name in names:
        other = found.setdefault(site_id(name), name)
        if other != name:
            raise InputError(f"sites {other!r} and {name!r} have one id: rename one of them")
    return found


def short_id(name: str) -> int:
    """What sites call each other while they find each other: a digest, so two may share one.

    Site 7 of a simulation is `site-07` of a network that is written for it, and has the same id.
    """
    plain = _NUMBERED.sub("", name)
    return int.from_bytes(blake2b(plain.encode(), digest_size=SHORT).digest(), "little")


def short_ids(names: Iterable[str]) -> dict[str, int]:
    """Name ↦ id; two names of one id are refused."""
    found, ids = dict[int, str](), dict[str, int]()
    for name in names:
        ids[name] = short_id(name)
        other = found.setdefault(ids[name], name)
        if other != name:
            raise GraphError(f"sites {other!r} and {name!r} have one short id: rename one of them")
    return ids
