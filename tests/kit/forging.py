"""Forged files with a right digest: the digest is no signature."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coke.data.files import DIGEST, MAGIC

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
EXTREMES = st.sampled_from([10**400, 2**63, -1, 0, 1e308, 5e-324, [[]], {"": 0}])
VALUES = EXTREMES | st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
SIZES = st.sampled_from([0, 1, 3, 8, 10**12, 2**40 - 1, 2**62, 10**400, -1]) | st.integers(0, 5)
FIENDISH = st.sampled_from([[1] * 65, [0, 10**12, 10**12], [0, *[2**40 - 1] * 3], [2**62, 4]])
SHAPES = FIENDISH | st.lists(SIZES, max_size=5) | VALUES
FLOATS = st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1e300, 1e308, np.inf, np.nan]) | st.floats()


def forged(header: Any, body: bytes = b"") -> bytes:
    """Any header and body with a right digest; a header of bytes is taken as it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = MAGIC + len(text).to_bytes(4, "little") + text + body
    return whole + hashlib.blake2b(whole, digest_size=DIGEST).digest()


def parts_of(data: bytes) -> tuple[Any, bytes]:
    """Header and body of a file, as a forger sees them."""
    start = len(MAGIC) + 4
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    return json.loads(data[start:end]), data[end:-DIGEST]


PLAUSIBLE = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.text(max_size=3), min_size=3, max_size=3)
    | st.lists(st.integers() | st.floats(-9, 9) | st.booleans(), min_size=3, max_size=3)
    | st.sampled_from(["hinge", "logistic", "quadratic"])
)


@st.composite
def forgeries(draw: Any, whole: bytes) -> bytes:
    """A good file in which one thing is replaced by anything."""
    header, body = parts_of(whole)
    what = draw(st.sampled_from(["all", "part", "meta", "entry", "entry", "values"]))
    if what == "all":
        return forged(draw(VALUES | st.binary(max_size=50)), body)
    if what == "part":
        header[draw(st.sampled_from([*header, "more"]))] = draw(VALUES)
    if what == "meta":
        name = draw(st.sampled_from([*header["meta"], "more"]))
        header["meta"][name] = draw(PLAUSIBLE | VALUES)
    if what == "entry":
        name = draw(st.sampled_from(["name", "dtype", "shape", "shape", "shape", "more"]))
        other = {"dtype": VALUES | st.sampled_from(["<i8", "|b1"]), "shape": SHAPES}
        draw(st.sampled_from(header["arrays"]))[name] = draw(other.get(name, VALUES))
    if what == "values":
        arrays, at = split(header, body), draw(st.integers(0, len(header["arrays"]) - 1))
        shape = st.just(header["arrays"][at]["shape"]) | hnp.array_shapes(min_dims=0, max_side=5)
        one = draw(hnp.arrays(np.float64, draw(shape), elements=FLOATS))
        header["arrays"][at] |= {"dtype": "<f8", "shape": list(one.shape)}
        arrays[at] = one.tobytes()
        body = b"".join(arrays)
    return forged(header, draw(st.sampled_from([body, body, body, b"", body[:-8], body * 2])))


def split(header: Any, body: bytes) -> list[bytes]:
    """The bytes of every array."""
    found, at = [], 0
    for entry in header["arrays"]:
        size = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
        found.append(body[at : at + size])
        at += size
    return found


DEEP = "[" * 100_000 + "]" * 100_000
