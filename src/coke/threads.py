"""One BLAS thread where the bits or the speed of small products matter."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _pools() -> ThreadpoolController:
    """NumPy's and SciPy's BLAS, once both are loaded: finding them reads the map of the process."""
    import_module("scipy.linalg")
    return ThreadpoolController().select(user_api="blas")


class OneThread:
    """Two threads are slower on matrices this small, and a product's last bits depend on them."""

    def __init__(self) -> None:
        self._already = all(pool["num_threads"] == 1 for pool in _pools().info())

    def limit(self) -> AbstractContextManager[Any]:
        """In force inside the `with` only: a caller's own work outside keeps its threads."""
        return nullcontext() if self._already else _pools().limit(limits=1)
