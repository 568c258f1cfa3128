"""Each word is read once, though a site looks at it when it comes and when a step is completed."""

from __future__ import annotations

from coke.maths.algorithms.codecs import Codec, Coded
from coke.maths.arrays import Array

_KEPT = 256  # words


class RememberingCodec:
    """A codec, for all edges of a site; what it codes itself it need not read at all."""

    def __init__(self, codec: Codec):
        self._codec, self.encode = codec, codec.encode
        self._known: dict[tuple[bytes, int], Array] = {}  # the last in their order

    def decode(self, data: bytes, size: int) -> Array:
        """As the codec does, and once."""
        x = self._known.get((data, size))
        return self._keep(data, self._codec.decode(data, size)) if x is None else x

    def coded(self, X: Array) -> Coded:
        """As the codec does."""
        said = self._codec.coded(X)

        def message(i: int) -> bytes:
            data = said.message(i)
            self._keep(data, said.values[i])
            return data

        return said._replace(message=message)

    def _keep(self, data: bytes, x: Array) -> Array:
        if len(self._known) >= _KEPT:
            del self._known[next(iter(self._known))]
        self._known[data, x.size] = x
        return x
