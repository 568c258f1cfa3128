"""One BLAS thread where the bits or the speed of small products matter."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """Looked for again when there are other modules, for libraries come with them: it is slow."""
    return ThreadpoolController()


class OneThread:
    """Two threads are slower on matrices this small, and a product's last bits depend on them."""

    def __init__(self) -> None:
        self._pools = _pools(len(sys.modules))
        info = self._pools.select(user_api="blas").info()
        self._already = all(pool["num_threads"] == 1 for pool in info)

    def limit(self) -> AbstractContextManager[Any]:
        """In force inside the `with` only: a caller's own work outside keeps its threads."""
        return nullcontext() if self._already else self._pools.limit(limits=1, user_api="blas")
