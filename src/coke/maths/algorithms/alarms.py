"""Drift: squared errors three times the usual ones and a third of all, at a third of the sites.

A site that sees it tells its neighbours, who pass it on, an edge a tick. Everybody counts the sites
that have said so, and acts `reach` ticks after the notice that makes them enough, when it has come
to all: on the same tick everywhere, without a coordinator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coke.maths.arrays import Array, Mask, Sizes

SHARE = 3  # of the sites: one in so many must say so
_FACTOR = 3.0  # times the usual errors
_PART = 1.0 / 3.0  # of the target's mean square around its centre
_RECENT, _USUAL = 30.0, 500.0  # rows
_ENOUGH = 60.0  # rows before anything is usual
_MOST = 8.0  # usual ones, of a row: many large errors are drift, one is not
_LASTING = 50  # ticks for which a notice of drift counts
_NOTICE = 6  # bytes: whose it is, and its tick
NEVER = -(1 << 50)

Marks = NDArray[np.int64]
"""Ticks, or places of sites."""


class Errors(NamedTuple):
    """Mean squares of every site: errors of the common model, and of what a site has predicted."""

    recent: Array  # (N,) of the common model
    usual: Array  # (N,) likewise
    seen: Array  # (N,) rows
    told: Array  # (N, 2) of what was predicted, fast layer and all: recent, usual
    left: Array  # (N,) the recent ones of these, no row clipped
    around: Array  # (N, 2) of y around its centre: recent, not clipped; usual
    centre: Array  # (N, K) of y

    @classmethod
    def none(cls, N: int, K: int = 1) -> Errors:
        """Before the first row."""
        zero, two = np.zeros(N), np.zeros((N, 2))
        return cls(zero, zero, zero, two, zero, two, np.zeros((N, K)))

    def after(self, paid: Array, y: Array, there: Mask) -> Errors:
        """With one row more at the sites that are `there`.

        Its squared errors (N, 2) of the common model, and of what was predicted; its target (N, K).
        """
        seen, far = self.seen + there, y - self.centre
        usual = np.column_stack([self.usual, self.told[:, 1], self.around[:, 1]])
        size = np.column_stack([paid, np.vecdot(far, far)])
        most = np.where(self.seen[:, None] < _ENOUGH, np.inf, _MOST * usual)
        base, told, around = np.minimum(size, most).T
        share = np.sqrt(around / np.maximum(size[:, 2], 1e-300))
        step = [np.where(there, 1.0 / np.clip(seen, 1.0, rows), 0.0) for rows in (_RECENT, _USUAL)]
        steps = np.column_stack(step)
        return Errors(
            recent=self.recent + step[0] * (base - self.recent),
            usual=self.usual + step[1] * (base - self.usual),
            seen=seen,
            told=self.told + steps * (told[:, None] - self.told),
            left=self.left + step[0] * (paid[:, 1] - self.left),
            around=self.around + steps * (np.column_stack([size[:, 2], around]) - self.around),
            centre=self.centre + (step[1] * share)[:, None] * far,
        )

    @property
    def size(self) -> Array:
        """s_i (N,), the root of the recent mean square."""
        return np.sqrt(self.recent)

    @property
    def drift(self) -> Mask:
        """(N,) who sees it.

        Errors of what is predicted count, for to what the fast layer follows nobody need restart;
        and they must be a third of what there is to predict, for where that swings more than usual,
        as in a week of smog, errors grow by themselves. In its first 500 rows a site goes by the
        common model: what it predicted while it began to learn is not usual.
        """
        (recent, usual), whole = self.told.T, self.around[:, 0]
        young = self.recent > _FACTOR * self.usual
        later = (recent > _FACTOR * usual) & (self.left > _PART * whole)
        return (self.seen >= _ENOUGH) & np.where(self.seen < _USUAL, young, later)


class Notices(NamedTuple):
    """What each of the n sites here has heard of the alarms of all N."""

    heard: Marks  # (n, N)  the tick of a site's last notice, as site i knows it
    fresh: Mask  # (n, N)  what i has not passed on yet
    own: Marks  # (n,)  which of all sites those here are
    reach: int  # ticks within which a notice comes to all
    lasting: int  # ticks for which a notice counts

    @classmethod
    def none(cls, own: Marks, N: int, reach: int, lasting: int = _LASTING) -> Notices:
        """Silence."""
        shape = (len(own), N)
        return cls(np.full(shape, NEVER), np.zeros(shape, np.bool_), own, reach, lasting)

    def silence(self) -> Notices:
        """As if nothing had been said."""
        return self.none(self.own, self.heard.shape[1], self.reach, self.lasting)

    def said(self, who: Mask, tick: int) -> Notices:
        """With a notice of each of these sites (n,) whose last one counts nowhere any more."""
        here, new = np.arange(len(self.own)), np.zeros_like(self.fresh)
        new[here, self.own] = who & (tick - self.heard[here, self.own] >= self.lasting + self.reach)
        return self._replace(heard=np.where(new, tick, self.heard), fresh=self.fresh | new)

    def marked(self, tick: int) -> Notices:
        """With a notice of all sites here, whatever they said before."""
        new = np.zeros_like(self.fresh)
        new[np.arange(len(self.own)), self.own] = True
        return self._replace(heard=np.where(new, tick, self.heard), fresh=self.fresh | new)

    @property
    def told(self) -> Marks:
        """(n, N) what each site tells its neighbours: the ticks of what is new, else NEVER."""
        return np.where(self.fresh, self.heard, NEVER)

    @property
    def size(self) -> Sizes:
        """Bytes of that (n, 1)."""
        return _NOTICE * np.count_nonzero(self.fresh, axis=1)[:, None]

    def after(self, told: Marks) -> Notices:
        """A tick later, the neighbours of each having told it this (n, N) at the latest."""
        heard = np.maximum(self.heard, told)
        return self._replace(heard=heard, fresh=heard > self.heard)

    def enough(self, tick: int) -> Mask:
        """(n,) who acts now: all or none, for only notices are counted that have come to all."""
        old = tick - self.reach - self.heard
        counted = np.count_nonzero((old >= 0) & (old < self.lasting), axis=1)
        return np.asarray(SHARE * counted >= self.heard.shape[1])


def latest(W: sparse.csr_array, told: Marks) -> Marks:
    """(n, N) of all that the neighbours by W (n, P) have told (P, N), the last of each site."""
    if (told == NEVER).all():
        return np.full((W.shape[0], told.shape[1]), NEVER)
    near = np.split(W.indices, W.indptr[1:-1])
    return np.stack([told[some].max(axis=0, initial=NEVER) for some in near])
