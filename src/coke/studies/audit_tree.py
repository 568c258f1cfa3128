"""What a parent on the tree could learn of a leaf below it, where sites go down by sums.

With every order the parent knows where the model is, and is told the leaf's gradient there, to a
few bits; ½∇R_i(u) − Gu = A_i u − b_i, so that D + 1 places tell all, of K outputs (D + K)/K. An
honest parent hears as many as there are orders. One that lies needs a single order: the leaf's Gram
matrix, which the root may ask for where nothing else helps.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial

import numpy as np

from coke.errors import InputError
from coke.learning.case import Case
from coke.learning.descending import descent_of
from coke.learning.ready import Ready
from coke.maths.algorithms import tree_newton as newton
from coke.maths.algorithms.steps import own_step
from coke.maths.arrays import Array
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Risk
from coke.privacy.attacks import Gradients, from_gradients
from coke.privacy.noise import Statistics
from coke.studies.findings import Audit, Finding, of_gram, of_rows, off
from coke.talk.conversation import together
from coke.talk.descent import Descent
from coke.talk.place import Place
from coke.talk.tree import read
from coke.threads import OneThread


class _Curious(Descent):
    """A parent that does all it should, and notes what it comes to know of one child."""

    def __init__(self, place: Place, risk: Risk, goal: newton.Aim, child: str):
        super().__init__(place, risk, goal)
        self._child = child
        self._told: list[tuple[Array, Array, float]] = []
        self.gram: Array | None = None  # of the child, where it was asked for

    @property
    def told(self) -> Gradients:
        """All gradients of the child."""
        u, g, step = zip(*self._told, strict=True)
        return Gradients(np.stack(u), np.stack(g), np.array(step))

    def _gradient(self, heard: Mapping[str, bytes], *, first: bool) -> bytes:
        answer = super()._gradient(heard, first=first)
        g = self._walked.here.below[self._child]
        self._told.append((self.u, g, own_step(g) if first else self._step))
        return answer

    def _grams(self, heard: Mapping[str, bytes]) -> bytes:
        self.gram = _full(heard[self._child], len(self._risk.gram(0)))
        return super()._grams(heard)


def audited_descent(ready: Ready, case: Case, probes: bool = True) -> Audit:
    """The attacks of its parent on a leaf of the tree, that with the fewest rows."""
    risk, places, names = case.problem.train.sums, ready.places, ready.names
    assert risk is not None  # other losses are refused with the settings
    leaves = [i for i, place in enumerate(places) if not place.children]
    if len(names) < 2:
        raise InputError("one site: it tells nobody anything")
    i = min(leaves, key=lambda n: (ready.targets[n].T, n))
    parent = places[i].parent
    assert parent is not None  # it is no root: there are others
    spy = _overheard(ready, case, parent, names[i])
    truth, guess, K = risk.A[i], risk.A.mean(axis=0), ready.agreement.outputs
    with OneThread().limit():
        known = from_gradients(spy.told, risk.G, guess, K)
    base, m, needed = off(guess, truth), len(spy.told.u), -(-(len(truth) + K) // K)
    near = of_gram("is its parent on the tree", off(known.A, truth), base, private=False)
    heard = f"{near.meaning}; {m} gradients at known places, {needed} tell all"
    found = [near._replace(meaning=heard)]
    if spy.gram is not None:
        known = Statistics(spy.gram, _vector(spy.told, spy.gram, matrix(risk.G, len(truth))))
        who = "is its parent, and Gram matrices were asked for"
        found.append(of_gram(who, off(known.A, truth), base, private=False))
    if probes:
        found.append(_lied_to(descent_of(ready, case, i), parent, truth, base))
    if ready.rows is not None:
        found += of_rows(ready, case, known, i)
    return Audit(names[i], parent, f"{spy.k} orders of the root and their answers", found)


def _overheard(ready: Ready, case: Case, parent: str, child: str) -> _Curious:
    """All of it, as that parent hears it."""
    make, names = partial(descent_of, ready, case), ready.names
    p = names.index(parent)
    assert case.goal is not None  # or the algorithm is refused
    place, own = ready.places[p], case.problem.train.rows(slice(p, p + 1))
    with OneThread().limit(), np.errstate(over="ignore", invalid="ignore"):
        spy = _Curious(place, own, case.goal, child)
        sites = {name: spy if n == p else make(n) for n, name in enumerate(names)}
        while not spy.done:
            together({name: site.sweep() for name, site in sites.items()})
    return spy


def _lied_to(leaf: Descent, parent: str, truth: Array, base: float) -> Finding:
    """A parent that makes up an order."""
    talk = leaf.sweep()
    next(talk)
    answer = talk.send({parent: bytes([newton.HESSIAN])}).tell[parent]
    found = off(_full(answer, len(truth)), truth)
    one = of_gram("makes up one order to the site", found, base, private=False)
    return one._replace(meaning=f"{one.meaning}, for the asking")


def _vector(told: Gradients, A: Array, G: Array) -> Array:
    """B = (A + G)u − ½g at the last place, where it was told best."""
    u, g = told.u[-1].reshape(-1, len(A)), told.g[-1].reshape(-1, len(A))
    return np.asarray(u @ (A + G) - 0.5 * g).ravel()


def _full(data: bytes, D: int) -> Array:
    """A symmetric matrix, from the bytes of its lower half."""
    lower, A = np.tril_indices(D), np.zeros((D, D))
    A[lower] = read(struct.Struct(f"<{len(lower[0])}d"), data)
    return A + np.tril(A, -1).T
