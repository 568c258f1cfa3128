"""Sums over those of a tree who are there.

Up go partial sums, as in `coke.talk.sums`, each with how many sites are in it. Who is away is left
out, and with him whoever is below. The root says the total where most sites are in it; whoever does
not hear it knows that he has missed it, or that there is none, and does without.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from coke.talk.conversation import Talk, Turn
from coke.talk.place import Place
from coke.talk.sums import Part

R = TypeVar("R")
AWAY = b"\xff" * 9  # in place of a message: the neighbour's edge rests
_COUNT = struct.Struct("<I")


class Attendance(NamedTuple):
    """Of a site's neighbours."""

    here: Callable[[str], bool]  # whether one is there
    rest: Callable[[str], None]  # he is not
    sites: int  # in all

    def said(self, name: str, message: bytes, least: int) -> bytes:
        """What a neighbour has said; nothing, if he is away or made no sense."""
        if message and (message == AWAY or len(message) < least):
            self.rest(name)
            return b""
        return message


class _MissedError(Exception):
    """A total that there is not, or that did not come here."""


def swept_present(
    place: Place, who: Attendance, totals: list[bytes], own: Part,
    concluded: Callable[[bytes], bytes] = bytes,
) -> Talk[bytes]:  # fmt: skip
    """The total of those who are there, as `coke.talk.sums.swept` has it of all."""
    children = [child for child in place.children if who.here(child)]
    heard = (yield Turn({}, children)) if children else {}
    told = {child: who.said(child, heard[child], _COUNT.size) for child in children}
    there = [message for message in told.values() if message]
    count = 1 + sum(_COUNT.unpack_from(message)[0] for message in there)
    total = own([message[_COUNT.size :] for message in there])
    if place.parent is None:
        total = concluded(total) if 2 * count > who.sites else b""
    elif who.here(place.parent):
        said = yield Turn({place.parent: _COUNT.pack(count) + total}, [place.parent])
        total = who.said(place.parent, said[place.parent], 0)
    else:
        total = b""
    children = [child for child in children if who.here(child)]
    if children:
        yield Turn(dict.fromkeys(children, total), (), broadcast=True)
    if not total:
        raise _MissedError
    totals.append(total)
    return total


def or_none(talk: Talk[R]) -> Talk[R | None]:
    """None where one of its totals was missed."""
    try:
        return (yield from talk)
    except _MissedError:
        return None
