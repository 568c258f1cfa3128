"""One BLAS thread where the bits or the speed of small products matter."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from threadpoolctl import ThreadpoolController


class OneThread:
    """Two threads are slower on matrices this small, and a product's last bits depend on them."""

    def __init__(self) -> None:
        self._pools = ThreadpoolController()
        info = self._pools.select(user_api="blas").info()
        self._already = all(pool["num_threads"] == 1 for pool in info)

    def limit(self) -> AbstractContextManager[Any]:
        """In force inside the `with` only: a caller's own work outside keeps its threads."""
        return nullcontext() if self._already else self._pools.limit(limits=1, user_api="blas")
