"""Descents on a tree in which one site lies: about gradients, losses, Gram matrices, steps, proofs.

`TREE_LIES` are of sites that pass sums on and of roots; `fallen` goes down the tree with one of
them. `PROOF_LIES` are told at the end of a consensus, when a common model is proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from coke.errors import CokeError
from coke.field.closing import near
from coke.learning.ready import Ready
from coke.maths.algorithms.steps import rms
from coke.maths.algorithms.tree_newton import END, STEP, Order
from coke.maths.arrays import Array
from coke.maths.losses.risk import Risk
from coke.talk.conversation import together
from coke.talk.descent import Descent
from coke.talk.handover import Settled
from coke.talk.place import Place
from coke.talk.tree import PROOF, ending
from coke.talk.walked import Walked


class TreeLie(NamedTuple):
    """What a site makes of what it should say."""

    gradient: float = 1.0  # times that of its subtree
    noise: float = 0.0  # beside it, in its size
    loss: float = 1.0  # times F(u)
    grams: float = 1.0  # times Σ A
    step: float = 1.0  # a root's, times what it should be
    ends: int = 0  # a root ends after so many orders, with a proof made up
    adds: float = 0.0  # to a common model, in its size
    root: bool = False


TREE_LIES = {
    "tree: gradients turned": TreeLie(gradient=-1.0),
    "tree: gradients ten times": TreeLie(gradient=10.0),
    "tree: gradients and noise": TreeLie(noise=3.0),
    "tree: no gradient": TreeLie(gradient=0.0),
    "tree: no loss": TreeLie(loss=0.0),
    "tree: losses × 1e6": TreeLie(loss=1e6),
    "tree: Gram matrices × 1e-6": TreeLie(grams=1e-6, gradient=3.0),
    "tree: a root steps backwards": TreeLie(step=-1.0, root=True),
    "tree: a root steps ten times": TreeLie(step=10.0, root=True),
    "tree: a root ends at once": TreeLie(ends=2, root=True),
}
PROOF_LIES = {
    "proof: a root tells another model": TreeLie(adds=1.0, root=True),
    "proof: a root tells one a little off": TreeLie(adds=0.1, root=True),
    "proof: a root tells −u": TreeLie(adds=-2.0, root=True),
    "proof: no excess below": TreeLie(loss=0.0),
    "proof: much excess below": TreeLie(loss=1e9),
}


class LyingWalk(Walked):
    """Tells a gradient that the lie makes of its subtree's."""

    def __init__(self, lie: TreeLie, rng: np.random.Generator, *args: Any):
        self._lie, self._rng = lie, rng
        super().__init__(*args)

    def news(self, whole: Array, step: float | None) -> bytes:
        more = self._lie.noise * self._rng.normal(size=len(whole)) * rms(whole)
        return super().news(self._lie.gradient * whole + more, step)


class LyingDescent(Descent):
    """Says what the lie makes of it."""

    def __init__(self, lie: TreeLie, place: Place, risk: Risk, *args: Any):
        self._lie, self._rng = lie, np.random.default_rng(5)
        super().__init__(place, risk, *args)
        self._walked = LyingWalk(lie, self._rng, place, risk.size)

    def _value(self, u: Array) -> float:
        return self._lie.loss * super()._value(u)

    def _grams(self, heard: Mapping[str, bytes]) -> bytes:
        told = super()._grams(heard)
        return (np.frombuffer(told, "<f8") * self._lie.grams).tobytes()

    def _encoded(self, order: Order, c: float = 0.0) -> bytes:
        if self._lie.ends and self.k >= self._lie.ends:
            return bytes([END]) + ending((1e30, 3e38, 3e38))
        if order.kind == STEP and order.x is not None:
            order = order._replace(x=self._lie.step * order.x)
        return super()._encoded(order, c)

    def _adopted(self, order: bytes) -> None:
        super()._adopted(order)
        size = float(np.sqrt(self.u @ self.u)) / np.sqrt(len(self.u))
        away = -self.u if self._lie.adds == -2.0 else self._rng.normal(size=len(self.u)) * size
        self._walked.stand(self.u + abs(self._lie.adds) * away)

    def _proof(self, heard: Mapping[str, bytes], *, first: bool) -> bytes:
        told = super()._proof(heard, first=first)
        if self.place.parent is None or self._lie.loss == 1.0:
            return told
        mark, rest = (told[:4], PROOF) if first else (b"", None)
        if rest is None:
            return told
        gap, value, zero = PROOF.unpack(told[4:])
        return mark + PROOF.pack(min(self._lie.loss * gap, 1e30), value, zero)


class Fallen(NamedTuple):
    """What became of a descent."""

    u: dict[str, Array]  # the honest sites' models
    certified: int  # sites that say it is proven
    refused: str = ""  # why all go on by rounds


def fallen(
    ready: Ready, algorithm: str, lie: TreeLie, liar: int, settled: Mapping[str, Settled] = {}
) -> Fallen:
    """All sites go down the tree, one of which lies; roots do, where the lie is theirs."""
    case = ready.case(algorithm)
    assert case.goal is not None
    who = next(p.name for p in ready.places if p.parent is None) if lie.root else ready.names[liar]
    sites = dict[str, Descent]()
    for i, place in enumerate(ready.places):
        given = place, case.problem.train.rows(slice(i, i + 1)), case.goal, settled.get(place.name)
        sites[place.name] = LyingDescent(lie, *given) if place.name == who else Descent(*given)
    try:
        with np.errstate(all="ignore"):
            together({name: site.talk() for name, site in sites.items()})
    except CokeError as error:
        return Fallen({}, 0, str(error))
    honest = {name: site for name, site in sites.items() if name != who}
    held = sum(s.certificate is not None and s.certificate.holds for s in honest.values())
    return Fallen({name: site.u for name, site in honest.items()}, held)


def proven(ready: Ready, lie: TreeLie, liar: int) -> tuple[float, int]:
    """The harm of what honest sites keep after a proof in which one lies, and who keeps its own."""
    case = ready.case("coke")
    train, names = case.problem.train, ready.names
    best = case.problem.optimum
    rng, size = np.random.default_rng(3), float(np.sqrt(np.mean(best**2)))
    hats = {name: best + 1e-3 * size * rng.normal(size=len(best)) for name in names}
    duals = -train.gradient(np.tile(best, (len(names), 1)))
    settled = {
        place.name: Settled(
            hat=hats[place.name], said=dict.fromkeys(place.children, hats[place.name]),
            above=hats.get(place.parent or ""), gamma=duals[i],
        )
        for i, place in enumerate(ready.places)
    }  # fmt: skip
    fell = fallen(ready, "coke", lie, liar, settled)
    kept, losses, floor = 0, [], []
    for i, name in enumerate(names):
        if fell.u and name not in fell.u:
            continue
        risk, own, u = train.rows(slice(i, i + 1)), hats[name], fell.u.get(name)
        if u is None or not near(risk, own, u):
            kept, u = kept + 1, own
        losses.append(float(train.global_losses(u[None])[0]))
        floor.append(float(train.global_losses(best[None])[0]))
    return float(np.mean(losses) / np.mean(floor)), kept
