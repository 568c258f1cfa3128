"""Sites that are ready to train, from rows and settings in a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coke.data.site import Kept
from coke.data.split import Index, split
from coke.data.tables import Rows
from coke.learning.ready import Ready, agree
from coke.learning.terms import Terms
from coke.maths.graph import Graph
from coke.maths.losses import LOSSES
from coke.settings.reading import checked_settings


def held(rows: Rows, parts: dict[Any, Index], *, test: float = 0.0, seed: int = 0) -> Kept:
    """Whose the rows are, some of them held out."""
    return split(parts, test=test, seed=seed).kept(rows)


def ready(
    sites: Kept, graph: Graph, *, columns: tuple[str, ...] | None = None,
    releases: Path | None = None, sample: Any = None, **settings: Any,
) -> Ready:  # fmt: skip
    """All of them agree, as these settings say; the model is plain, and λ is `lam`."""
    given = {"model": "plain", "lambda": settings.pop("lam", 1e-3), **settings}
    wanted = checked_settings(given)
    names = columns or tuple(f"x{j}" for j in range(sites.X[0].shape[1]))
    kept = replace(sites, numbers=LOSSES[wanted.loss].kind == "numbers")
    return agree(kept, graph, Terms(wanted, names, sample, releases))


def rows_of(sites: Kept) -> list[tuple[np.ndarray[Any, Any], ...]]:
    """X, y, X_test and y_test of all sites."""
    return [sites.X, sites.y, sites.X_test, sites.y_test]
