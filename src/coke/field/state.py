"""All of a site that must outlive a crash, as bytes and back; read with suspicion."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np

from coke.data.files import AGAIN, Arrays, pack, unpack
from coke.errors import FileError
from coke.field.edge import CHAIN, Edge, End
from coke.field.frames import TOP, Word, decode, encode
from coke.field.moves import Setup
from coke.field.node import Node
from coke.maths.algorithms.codecs import FINEST, LIMIT
from coke.maths.algorithms.stopping import NEVER
from coke.maths.arrays import Array
from coke.maths.ledger import Ledger

Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
ROWS = ("own", "cp", "g", "h")  # of an end, in arrays; a row an end
STATE = "state."  # before the names of the algorithm's arrays


class _KeptEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The part of an end that is no array."""

    epoch: Annotated[int, msgspec.Meta(ge=0, le=TOP)]
    closed: bool
    s: Natural
    tag: bytes
    out: bytes | None
    prev: bytes | None
    strikes: Natural
    quiet: Annotated[int, msgspec.Meta(gt=-NEVER, lt=NEVER)]
    ending: bool
    last: Natural | None


class _KeptNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The part of a node that is no array."""

    name: str
    k: Natural
    laps: Annotated[int, msgspec.Meta(ge=0, lt=NEVER)]
    countdown: Annotated[int, msgspec.Meta(ge=0, le=NEVER)]
    awaited: list[str]
    fine: bool
    short: bool
    wide: bool
    done: bool
    content: Natural
    ledger: Ledger
    need: Ledger | None
    ends: dict[str, _KeptEnd]


_ALIKE = [f for f in _KeptNode.__struct_fields__ if f in Node._fields]  # but for the ends


def image(node: Node) -> bytes:
    """All that must outlive a crash, in one piece; the caller writes it whole or not at all."""
    fields = {f: getattr(node, f) for f in _ALIKE}
    fields["ends"] = {n: _kept(end) for n, end in node.ends.items()}
    kept = _KeptNode(name=node.setup.name, **fields | {"awaited": sorted(node.awaited)})
    rows = {x: np.array([getattr(end, x) for end in node.ends.values()]) for x in ROWS}
    own = {f"{STATE}{x}": getattr(node.state, x) for x in node.setup.moves.kept}
    return pack("site", kept, {**rows, **own})


def restored(data: bytes, setup: Setup) -> Node:
    """The node of such an image, or FileError."""
    kept, arrays = unpack(data, "site", _KeptNode)
    try:
        return _restored(kept, arrays, setup)
    except ValueError as error:  # a word that does not decode, too
        raise FileError(
            f"the image of {setup.name!r} does not fit together: {error}; {AGAIN}"
        ) from error


def _restored(kept: _KeptNode, arrays: Arrays, setup: Setup) -> Node:
    fresh, E, W = setup.start(), len(kept.ends), setup.moves.width
    own = {f"{STATE}{x}": np.asarray(getattr(fresh, x)) for x in setup.moves.kept}
    wanted = {name: (a.dtype.kind.replace("u", "i"), a.shape) for name, a in own.items()}
    wanted |= dict.fromkeys(ROWS, ("f", (E, W))) | {"h": ("f", (E,))}
    found = {name: (a.dtype.kind, a.shape) for name, a in arrays.items()}
    if found != wanted or kept.name != setup.name:
        raise ValueError(f"{kept.name!r} has {found}, expected {setup.name!r} with {wanted}")
    if not np.isfinite(arrays[f"{STATE}theta"]).all():
        raise ValueError("θ is not finite")
    rows = {n: {x: arrays[x][i] for x in ROWS} for i, n in enumerate(kept.ends)}
    ends = {n: _taken_up(setup.edge(n), end, rows[n]) for n, end in kept.ends.items()}
    fields = {f: getattr(kept, f) for f in Node._fields if f in kept.__struct_fields__}
    fields |= {"ends": ends, "awaited": frozenset(kept.awaited)}
    state = fresh._replace(**{x: arrays[f"{STATE}{x}"] for x in setup.moves.kept})
    return Node(setup=setup, state=state, **fields)


def _kept(end: End) -> _KeptEnd:
    """What to keep of an end, beside its arrays."""
    out, prev = (None if word is None else encode(word) for word in (end.out, end.prev))
    return _KeptEnd(
        epoch=end.epoch, closed=end.closed, s=end.s, tag=end.tag, out=out, prev=prev,
        strikes=end.strikes, quiet=end.quiet, ending=end.ending, last=end.last,
    )  # fmt: skip


def _taken_up(edge: Edge, kept: _KeptEnd, rows: dict[str, Any]) -> End:
    """The end that was kept, with its arrays; ValueError where no end can have been like this."""
    for x in ("own", "cp", "g"):
        _check_grid(rows[x])
    h = float(rows["h"])
    if len(kept.tag) != CHAIN or not 0 <= h < np.inf:
        raise ValueError(f"a chain of {len(kept.tag)} bytes, a threshold of {h}")
    fields = {f: getattr(kept, f) for f in kept.__struct_fields__} | rows | {"h": h}
    fields["out"] = _word(edge, kept, kept.out, kept.s)
    fields["prev"] = _word(edge, kept, kept.prev, kept.s - 1)
    return End(**fields)


def _check_grid(x: Array) -> None:
    scaled = np.ldexp(x, -FINEST)
    if not ((np.abs(x) <= LIMIT) & (scaled == np.rint(scaled))).all():
        raise ValueError("numbers off the grid")


def _word(edge: Edge, kept: _KeptEnd, data: bytes | None, step: int) -> Word | None:
    if data is None:
        return None
    word = decode(data, edge.size)
    if not isinstance(word, Word) or (word.epoch, word.step) != (kept.epoch, step):
        raise ValueError(f"a frame {word!r} in place of the word of step {step}")
    if word.payload:
        edge.codec.decode(word.payload, edge.size)
    return word
