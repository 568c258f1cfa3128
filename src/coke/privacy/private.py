"""Private sites: what they tell instead of moments, and their risks from noised statistics."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from coke.data.files import make_folder
from coke.data.site import Kept
from coke.errors import MessageError
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.losses.codes import code_size
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import local_only
from coke.privacy.noise import Budget
from coke.privacy.release import AllSites, Conditions, Release, private_risk, private_statistics
from coke.privacy.secure_sum import secure_sum
from coke.privacy.share import Share, Signing
from coke.talk.conversation import Talk
from coke.talk.names import site_id
from coke.talk.sums import Sweep, add_up

Y = 1.0  # public units have numbers in [−1, 1]
SPREAD = Y / 2  # a public stand-in for their spread, the unit of thresholds and tolerances


class Public(NamedTuple):
    """What private sites agree on."""

    everyone: AllSites
    release: Release | None  # of all sites together, after a secure sum
    rows: float | None = None  # (1/N) Σ_i T_i, where rows weigh the same


class Noised(NamedTuple):
    """What becomes of the sites here once their statistics are noised."""

    risk: Quadratic
    alone: Array  # (n, K·D)  the sites' own models from their raw rows, for their owners only
    budget: Budget  # all that a row was exposed to so far, at most


class Private(NamedTuple):
    """Differential privacy: every site's statistics are noised once."""

    budget: Budget
    folder: Path  # where the sites' releases are kept
    again: bool = False  # whether a new budget may be spent on what has changed
    colluding: int | None = None  # with a secure sum, so many sites may put together what they know
    classes: int = 0  # how many there are; 0 where the target is a number
    by_rows: bool = False  # whether rows weigh the same, not sites
    signing: Signing | None = None  # of keys in a secure sum, where sites have identities

    @property
    def spread(self) -> float:
        """Of the target, where nobody looks; that of codes is the same for all rows."""
        return code_size(self.classes) if self.classes else SPREAD

    def _terms(self, features: DrawnFeatures) -> Conditions:
        if not self.classes:
            return Conditions(features, Y, self.budget)
        return Conditions(features, code_size(self.classes), self.budget, self.classes - 1)

    def agree(
        self,
        sweep: Sweep,
        N: int,
        site: str,
        features: DrawnFeatures,
        X: Array,
        y: Array,
    ) -> Talk[Public]:
        """Σ 1/T_i² or Σ T_i, for how many rows a site has is public; or a secure sum of all."""
        if self.colluding is None and self.by_rows:
            (T,) = (yield from add_up(sweep, np.array([float(len(y))]))).tolist()
            if not len(y) + N - 1 <= T < 2.0**53:
                raise MessageError(f"{T:g} rows of {N} sites: expected {len(y)} here, and others")
            return Public(AllSites(N, N / (T / N) ** 2), None, T / N)
        if self.colluding is None:
            own = 1.0 / len(y) ** 2
            (thin,) = (yield from add_up(sweep, np.array([own]))).tolist()
            if not own <= thin <= N:
                raise MessageError(
                    f"Σ 1/T² of {N} sites is said to be {thin:g}: expected {own:g}, which is this "
                    f"site's own part, to {N}; find out who says otherwise"
                )
            return Public(AllSites(N, thin), None)
        share = Share(
            path=self._place("share", site),
            name=site,
            terms=self._terms(features),
            rows=(X, y),
            colluding=self.colluding,
            again=self.again,
            by_rows=self.by_rows,
            signing=self.signing,
        )
        release, everyone = yield from secure_sum(sweep, N, share)
        return Public(everyone, release)

    def noised(
        self, rows: Kept, raw: Quadratic, features: DrawnFeatures, lam: float, public: Public
    ) -> Noised:
        """The risks of these rows, in public units, from noised statistics alone."""
        parts = zip(rows.names, rows.X, rows.y, strict=True)
        if public.release is None:
            releases = [self._release(name, features, X, y) for name, X, y in parts]
        else:
            releases = [public.release._replace(T=len(y)) for _, _, y in parts]
        risk = private_risk(releases, raw.yy, lam, public.everyone)
        if public.rows is not None:
            risk = risk.counted(public.rows)
        return Noised(risk, local_only(raw), max(one.total for one in releases))

    def _release(self, site: str, features: DrawnFeatures, X: Array, y: Array) -> Release:
        path, terms = self._place("private", site), self._terms(features)
        return private_statistics(path, terms, X, y, again=self.again)

    def _place(self, kind: str, site: str) -> Path:
        make_folder(self.folder)
        return self.folder / f"{kind}-{site_id(site)}.coke"
