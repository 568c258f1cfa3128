"""All of a site that must outlive a crash, as bytes and back; read with suspicion."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from coke.data.files import AGAIN, Arrays, pack, unpack
from coke.errors import FileError
from coke.field.edge import CHAIN, Edge, End, Setup, decoded
from coke.field.node import Site
from coke.field.words import TOP, Word, decode, encode
from coke.maths.algorithms.codecs import FINEST, LIMIT
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger

Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of an end that is kept on disk and is no array."""

    epoch: Annotated[int, msgspec.Meta(ge=0, le=TOP)]
    closed: bool
    s: Natural
    tag: bytes
    out: bytes | None
    prev: bytes | None
    strikes: Natural
    quiet: Annotated[int, msgspec.Meta(gt=-NEVER, lt=NEVER)]
    ending: bool


class _Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a site that is no array."""

    name: str
    k: Natural
    laps: Natural
    countdown: Natural
    awaited: list[str]
    fine: bool
    short: bool
    wide: bool
    done: bool
    ledger: Ledger
    ends: dict[str, _Kept]


def image(site: Site) -> bytes:
    """All that must outlive a crash, in one piece; the caller writes it whole or not at all."""
    kept = {n: _kept(end) for n, end in site.ends.items()}
    ends_at = (site.k, site.laps, site.countdown, sorted(site.awaited))
    flat = (*ends_at, site.fine, site.short, site.wide)
    meta = _Meta(site.setup.name, *flat, site.done, site.ledger, kept)
    ends = site.ends.values()
    rows = {x: np.array([getattr(end, x) for end in ends]) for x in ("own", "cp", "g", "h")}
    return pack("site", meta, {"theta": site.theta, "loss": np.array([site.loss]), **rows})


def restored(data: bytes, setup: Setup) -> Site:
    """The site of such an image, or FileError."""
    meta, arrays = unpack(data, "site", _Meta)
    try:
        return _restored(meta, arrays, setup)
    except ValueError as error:  # a word that does not decode, too
        raise FileError(
            f"the image of {setup.name!r} does not fit together: {error}; {AGAIN}"
        ) from error


def _restored(meta: _Meta, arrays: Arrays, setup: Setup) -> Site:
    D, E = setup.risk.size, len(meta.ends)
    wanted = {"theta": (1, D), "loss": (1,), "own": (E, D), "cp": (E, D), "g": (E, D), "h": (E,)}
    found = {name: a.shape for name, a in arrays.items() if a.dtype == np.float64}
    if found != wanted or meta.name != setup.name or max(meta.countdown, meta.laps + 1) > NEVER:
        raise ValueError(f"{meta.name!r} has {found}, expected {setup.name!r} with {wanted}")
    if not np.isfinite(arrays["theta"]).all():
        raise ValueError("θ is not finite")
    rows = zip(arrays["own"], arrays["cp"], arrays["g"], arrays["h"].tolist(), strict=True)
    ends = {
        n: _taken_up(setup.edge(n), kept, *row)
        for (n, kept), row in zip(meta.ends.items(), rows, strict=True)
    }
    site = Site(setup, ends, arrays["theta"], float(arrays["loss"][0]), meta.k, meta.laps)
    return site._replace(
        countdown=meta.countdown, awaited=frozenset(meta.awaited), fine=meta.fine,
        short=meta.short, wide=meta.wide, done=meta.done, ledger=meta.ledger,
    )  # fmt: skip


def _kept(end: End) -> _Kept:
    """What to keep of an end, beside its arrays."""
    out, prev = (None if word is None else encode(word) for word in (end.out, end.prev))
    return _Kept(end.epoch, end.closed, end.s, end.tag, out, prev, *end[10:13])


def _taken_up(edge: Edge, kept: _Kept, own: Array, cp: Array, g: Array, h: float) -> End:
    """The end that was kept, with its arrays; ValueError where no end can have been like this."""
    for x in (own, cp, g):
        scaled = np.ldexp(x, -FINEST)
        if not ((np.abs(x) <= LIMIT) & (scaled == np.rint(scaled))).all():
            raise ValueError("numbers off the grid")
    out, prev = _word(edge, kept, kept.out, kept.s), _word(edge, kept, kept.prev, kept.s - 1)
    if len(kept.tag) != CHAIN or not 0 <= h < np.inf:
        raise ValueError(f"a chain of {len(kept.tag)} bytes, a threshold of {h}")
    at = (kept.epoch, kept.closed, kept.s, own, cp, g, h, kept.tag)
    return End(*at, out, prev, kept.strikes, kept.quiet, kept.ending)


def _word(edge: Edge, kept: _Kept, data: bytes | None, step: int) -> Word | None:
    if data is None:
        return None
    word = decode(data, edge.coder.size)
    if not isinstance(word, Word) or (word.epoch, word.step) != (kept.epoch, step):
        raise ValueError(f"a frame {word!r} in place of the word of step {step}")
    if word.payload:
        decoded(edge.coder, word.payload)
    return word
