"""Privacy between rows and task: what sites tell each other instead of moments, and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coke.data.files import make_folder
from coke.learning.task import Task, number_columns
from coke.maths.arrays import Array
from coke.maths.features.features import Features
from coke.maths.losses.problem import Problem, local_only
from coke.maths.losses.quadratic import Quadratic
from coke.maths.losses.risk import matrix
from coke.privacy.noise import Budget
from coke.privacy.release import (
    AllSites,
    Release,
    Terms,
    private_risk,
    private_statistics,
    spread_for,
)
from coke.privacy.secure_sum import secure_sum
from coke.privacy.share import Share
from coke.talk.conversation import Talk
from coke.talk.sums import Sweep, add_up

Y = 1.0  # public units have targets in [−1, 1]


class Private(NamedTuple):
    """Differential privacy: every site's statistics are noised once."""

    budget: Budget
    folder: Path  # where the sites' releases are kept
    again: bool = False  # whether a new budget may be spent on what has changed
    colluding: int | None = None  # with a secure sum, so many sites may put together what they know

    def release(self, site: str, features: Features, X: Array, y: Array) -> Release:
        """The site's one release."""
        make_folder(self.folder)
        path, terms = self.folder / f"private-{site}.coke", Terms(features, Y, self.budget)
        return private_statistics(path, terms, X, y, again=self.again)

    def share(self, site: str, features: Features, X: Array, y: Array) -> Share:
        """The site's part in a secure sum."""
        assert self.colluding is not None
        make_folder(self.folder)
        path, terms = self.folder / f"share-{site}.coke", Terms(features, Y, self.budget)
        return Share(path, site, terms, (X, y), self.colluding, self.again)


class Public(NamedTuple):
    """What private sites agree on."""

    everyone: AllSites
    release: Release | None  # of all sites together, after a secure sum


def agree_privately(sweep: Sweep, names: Sequence[str], own: float | Share) -> Talk[Public]:
    """Σ 1/T_i², which is public; or a secure sum."""
    if isinstance(own, Share):
        release, everyone = yield from secure_sum(sweep, names, own)
        return Public(everyone, release)
    total = yield from add_up(sweep, np.array([own]))
    return Public(AllSites(len(names), float(total[0])), None)


def noised(task: Task, private: Private, lam: float, public: Public) -> Task:
    """The same task from noised statistics; the training rows are out of reach afterwards."""
    rows, raw = task.rows, task.problem.train
    assert isinstance(raw, Quadratic)  # `check_private` refuses other losses
    parts = zip(task.sites, rows.X, rows.y, strict=True)
    if public.release is None:
        releases = [private.release(name, task.features, X, y) for name, X, y in parts]
    else:
        releases = [public.release._replace(T=len(y)) for _, _, y in parts]
    risk = private_risk(releases, raw.yy, lam, public.everyone)
    share = float(np.trace(matrix(risk.G, risk.size))) / risk.size
    nobody = rows._replace(X=tuple(X[:0] for X in rows.X), y=tuple(y[:0] for y in rows.y))
    spread = spread_for(Y)
    return replace(
        task,
        problem=Problem(risk, task.problem.test),
        rows=nobody,
        targets=tuple(number_columns(float(T), 0.0, spread) for T in risk.T),
        common=task.common._replace(share=share, spread=spread),
        alone=local_only(raw),
        budget=max(one.total for one in releases),
    )
