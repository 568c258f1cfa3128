"""Fewer links than there are: a consensus goes along the tree and a few edges beside it.

Where a word is copied for each neighbour, most copies tell what comes by another way, too. So of
the edges beside the tree a share is used that leaves about two for every five sites, and the others
are kept in reserve. Which ones follows from the two ends' names: no site has to be asked.
"""

from __future__ import annotations

from hashlib import blake2b

from coke.maths.graph import Shape
from coke.talk.names import SHORT, short_id

_BESIDE = 0.4  # edges beside the tree, a site
_WIDTH = 8  # bytes of a digest


def thinned(shape: Shape) -> Shape:
    """The network, with as many edges as are used in the mean."""
    tree = shape.sites - 1
    return shape._replace(edges=tree + round(_share(shape) * (shape.edges - tree)))


def used(a: str, b: str, shape: Shape) -> bool:
    """Whether an edge beside the tree is; the same at both ends."""
    ids = sorted(map(short_id, (a, b)))
    data = b"".join(one.to_bytes(SHORT, "little") for one in ids)
    drawn = int.from_bytes(blake2b(data, digest_size=_WIDTH).digest(), "little")
    return drawn < _share(shape) * 2 ** (8 * _WIDTH)


def _share(shape: Shape) -> float:
    """Of the edges beside the tree."""
    beside = shape.edges - (shape.sites - 1)
    return min(1.0, _BESIDE * shape.sites / beside) if beside > 0 else 1.0
