"""A site's part in going down F(u) = Σ_i R_i(u) on the tree, to a common u that is certified.

The root orders, orders go down, and answers come up, each the sum of a subtree:

    COMMON    how to round           ↦ proof of what the sites have found before, and F(0)
    BEGIN     where from, and c      ↦ sites, F(0), F(u), and what the gradient at u is
    STEP      a change of u          ↦ F(u), and what the gradient at u is more than expected
    SHIFT     the mean gradient      ↦ proof: Σ_i e_i
    HESSIAN   nothing                ↦ Σ_i A_i
    END       what was proven

Of a subtree's gradient both ends of an edge know the same rough value, the edge's *known*: with
every order both add what they expect (`walked`), and with every answer what is decoded of the rest.
So γ_i = Σ_children known − known sums to zero over all sites, whatever was rounded, and nears
−∇R_i(u): the duals that a proof needs.

Sites that have come to a consensus bring their own duals. Their models differ a little: the root
says how to round its own, every child knows what its parent said last, and each tells its children
by how many steps the common u is off from that.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from coke.errors import MessageError
from coke.maths.algorithms import steps as codec
from coke.maths.algorithms import tree_newton as newton
from coke.maths.algorithms.integers import pack_integers, unpack_integers
from coke.maths.algorithms.tree_newton import BEGIN, COMMON, END, HESSIAN, SHIFT, STEP, Aim, Order
from coke.maths.alike import alike
from coke.maths.arrays import Array
from coke.maths.losses.excess import Certificate, excess
from coke.maths.losses.joint import Joint, OneOf
from coke.maths.losses.problem import matrix
from coke.maths.losses.risk import Risk
from coke.talk import tree
from coke.talk.conversation import Talk, Turn
from coke.talk.handover import Handed, Settled, Stage, handed
from coke.talk.place import Place
from coke.talk.tree import ONE, PROOF, below, mark_of, proofs, proven, read, short, steps
from coke.talk.walked import Walked

_COUNT = struct.Struct("<Iff")
_LARGEST, _NOTHING = float(np.finfo(np.float32).max), (math.inf,)  # proven: no end can follow
_ROUNDED = 0.02  # of what may be left to gain, to lose by rounding a common model


class Descent:
    """One site's: where it is, and what it and its neighbours on the tree know of gradients."""

    def __init__(
        self, place: Place, risk: Risk, goal: Aim, settled: Settled | None = None,
        own: OneOf | None = None,
    ):  # fmt: skip
        """`risk` is of this site alone; `own`, where others in the process are asked alike, too."""
        self.place, self._risk, self._goal, self._settled = place, risk, goal, settled
        self._own = OneOf(Joint(risk), 0) if own is None else own
        self._walked, self.k, self.done = Walked(place, risk.size), 0, False
        self.certificate: Certificate | None = None
        self._c, self._zero, self._excess = 1.0, math.nan, excess(risk)
        self._change, self._step, self._worth = self.u, 0.0, 0.0  # F(u) of the subtree, or less
        self._proving: Stage | None = None  # what the duals of a proof are made of
        self._stages = dict[int, Stage]()  # after the last order answered, and two before
        self._root: newton.Root | None = None
        self._order = b""
        self._proven: tuple[float, ...] = _NOTHING  # below, in answer to the last order
        if place.parent is None:
            self._order = self._begun() if settled is None else self._rounding(settled.hat)

    @property
    def u(self) -> Array:
        """Where all are (D,)."""
        return self._walked.here.u

    @property
    def gamma(self) -> Array:
        """γ_i, the dual (D,): of the last proof, or of where all are."""
        if self._settled is not None:
            return self._settled.gamma
        return self._walked.gamma(self._proving or self._walked.here)

    @property
    def away(self) -> float:
        """What is left to gain, in parts of what may be, as the root foresees it; ∞ elsewhere."""
        return math.inf if self._root is None else self._root.away

    @property
    def loss(self) -> float:
        """Mean loss of u on the site's own rows."""
        return self._own.loss(self.u)

    def handed(self, neighbours: Iterable[str], rho: float) -> Handed:
        """What rounds with these neighbours begin with, where they take its place."""
        at = self.k - 1  # the root has heard all answers to that order
        return handed(self.place, self._stages, at, self._change, neighbours, rho)

    def talk(self) -> Talk[None]:
        """All of it."""
        while not self.done:
            yield from self.sweep()

    def sweep(self) -> Talk[None]:
        """One order, and what it comes to."""
        parent, children = self.place.parent, self.place.children
        order = self._order if parent is None else (yield Turn({}, [parent]))[parent]
        self.k += 1
        kind = self._taken(order)
        told = {child: self._passed(order, child) for child in children}
        alike, self.done = len(set(told.values())) == 1, kind == END
        if self.done:
            if children:
                yield Turn(told, (), broadcast=alike)
            return
        heard = (yield Turn(told, children, broadcast=alike)) if children else {}
        answer = self._answer(kind, heard)
        before = {k: stage for k, stage in self._stages.items() if k >= self.k - 2}
        self._stages = before | {self.k: self._walked.here}
        if parent is not None:
            yield Turn({parent: answer}, ())

    # What goes down.

    def _begun(self, from_here: Array | None = None) -> bytes:
        """From the root's own minimum, or from where all are."""
        risk, kappa = self._risk, self._risk.kappa
        start = risk.alone()[0] if from_here is None else None
        at = from_here if start is None else start
        c = kappa if self._goal.sums else newton.curvature(self._secant(at), kappa)
        A = risk.gram(0)
        own = A + (2.0 / kappa) * matrix(risk.G, len(A))
        self._root = newton.Root(own, c, self._goal, self.place.shape)
        return self._encoded(self._root.began(start), c)

    def _secant(self, u: Array | None) -> float:
        """How much the root's own risk bends on the way to u."""
        if u is None or not u.any():
            return 0.0
        change = self._own.gradient(u) - self._own.gradient(0.0 * u)
        return float(change @ u / (u @ u))

    def _rounding(self, hat: Array) -> bytes:
        """So that rounding costs a small part of what the accuracy allows."""
        left = self._goal.accuracy * self._value(hat) + self._goal.slack * self._value(0.0 * hat)
        part = 24.0 * _ROUNDED / (self._risk.kappa * len(hat))
        q = math.sqrt(part * max(left, 0.0))
        step = math.floor(math.log2(q)) if 0 < q < math.inf else 0
        return bytes([COMMON, max(min(step, 50), -50) % 256])

    def _encoded(self, order: Order, c: float = 0.0) -> bytes:
        body = b"" if order.x is None else codec.stepped(order.x, order.step)[1]
        if order.kind == STEP:
            body = codec.after_parts(order.again, body)
        sizes = {BEGIN: c, STEP: order.up}
        more = [codec.exponent_of(sizes[order.kind])] if order.kind in sizes else []
        return bytes([order.kind, *more]) + body

    def _passed(self, order: bytes, child: str) -> bytes:
        """What a site tells a child of an order."""
        if self._settled is None or order[0] != COMMON:
            return order
        e = codec.exponent(order[1])
        return order[:2] + pack_integers(steps(self.u, e) - steps(self._settled.said[child], e))

    def _taken(self, order: bytes) -> int:
        """What an order asks for, once what it tells is taken over."""
        kind, size = order[0] if len(order) > (order[:1] in _LONGER) else END + 1, len(self.u)
        if kind > END:
            raise MessageError(f"{len(order)} bytes are no order of a tree's root")
        if kind not in (COMMON, END) and not self._goal.further:
            raise MessageError("an order to add up gradients, which this site does not allow")
        if kind == COMMON:
            self._adopted(order)
        elif kind == BEGIN:
            self._settled, self._c = None, 2.0 ** codec.exponent(order[1])
            self._change = _told(order[2:], size)[0]
            self._walked.stand(self.u + self._change)
        elif kind == STEP:
            self._step, self._proving = 2.0 ** codec.exponent(order[1]), None
            again, rest = codec.parted(order[2:])
            parts = codec.decoded(again, self._walked.moves)[0]
            self._change = self._walked.move(parts, _told(rest, size)[0], self._c)
        elif kind == END:
            self.certificate = self._certificate(proven(order[1:], self._proven))
        elif kind == SHIFT:
            self._proving = self._walked.shifted(_told(order[1:], size)[0])
        return kind

    def _adopted(self, order: bytes) -> None:
        """The common model, from what the parent said last."""
        if self._settled is None:
            raise MessageError("an order to bring together what sites have not come to")
        e, above = codec.exponent(order[1]), self._settled.above
        n = steps(self._settled.hat if above is None else above, e)
        n = n + unpack_integers(order[2:], len(n))
        self._walked.stand(np.ldexp(n.astype(np.float64), e))

    def _certificate(self, told: Sequence[float]) -> Certificate:
        return Certificate(told[0], told[1], told[2], self._goal.accuracy, self._goal.slack)

    # What comes up.

    def _answer(self, kind: int, heard: Mapping[str, bytes]) -> bytes:
        self._proven = _NOTHING
        if kind == HESSIAN:
            return self._grams(heard)
        if kind in (BEGIN, STEP):
            return self._gradient(heard, first=kind == BEGIN)
        return self._proof(heard, first=kind == COMMON)

    def _gradient(self, heard: Mapping[str, bytes], *, first: bool) -> bytes:
        """The subtree's objective, and of its gradient what is not known above."""
        told, coarsest = self._added(heard, first=first)
        whole = sum(self._walked.here.below.values(), self._own.gradient(self.u))
        data = self._walked.news(whole, None if first else self._step)
        if self.place.parent is None:
            self._order = self._decided(whole, float(told[-1]), coarsest)
            return b""
        values = [below(x) for x in told.tolist()[first:]]
        head = _COUNT.pack(int(told[0]), *values) if first else ONE.pack(*values)
        return head + data

    def _added(self, heard: Mapping[str, bytes], *, first: bool) -> tuple[Array, float]:
        """The subtree's numbers, once its gradients are taken over; and their coarsest step."""
        head, own = (_COUNT, [1.0, self._value(0.0 * self.u)]) if first else (ONE, [])
        told, coarsest = np.array([*own, self._value(self.u)]), 0.0
        for child, data in heard.items():
            numbers = read(head, data[: head.size])
            step = self._walked.learn(child, data[head.size :])
            if first:
                self._walked.counts[child] = int(numbers[0])
            told, coarsest = told + numbers, max(coarsest, step)
        if first and told[0] > self.place.shape.sites:
            raise MessageError(f"{told[0]:.0f} sites below, of {self.place.shape.sites} in all")
        if first:
            self._walked.count, self._zero = int(told[0]), float(told[1])
        told = np.minimum(told, _LARGEST)
        self._worth = float(told[-1])
        return told, coarsest

    def _decided(self, gradient: Array, objective: float, step: float) -> bytes:
        """The root's next order."""
        assert self._root is not None
        N = self.place.shape.sites
        noise = len(self.u) * step * step / (12.0 * N)
        at = (objective / N, self._zero / N, noise)
        return self._encoded(self._root.after(self.u, gradient / N, *at))

    def _proof(self, heard: Mapping[str, bytes], *, first: bool) -> bytes:
        """The subtree's Σ_i e_i, rounded up; the first time F(u) and F(0), too, rounded down.

        Later F(u) is what the sites have told with the gradient.
        """
        gap = float(self._excess(self.gamma[None], self.u[None])[0])
        mark, own = b"", (gap, self._worth, 0.0)
        if first:
            mark, own = mark_of(self.u), (gap, self._value(self.u), self._value(0.0 * self.u))
        self._proven = told = proofs(own, heard.values(), mark)
        if self.place.parent is not None:
            return mark + PROOF.pack(*told) if first else short(told[0])
        self._zero = told[2] if first else self._zero
        self._order = self._judged(tree.ending((*told[:2], self._zero)))
        return b""

    def _judged(self, told: bytes) -> bytes:
        """The root's next order after a proof, which is judged as an end would tell it."""
        found = self._certificate(tree.ended(told))
        if self._root is None and not found.holds and self._goal.further:
            return self._begun(self.u)
        if self._root is None or (order := self._root.judged(found)).kind == END:
            return bytes([END]) + told
        return self._encoded(order)

    def _grams(self, heard: Mapping[str, bytes]) -> bytes:
        """The subtree's Σ_i A_i."""
        A = self._risk.gram(0)
        lower = np.tril_indices(len(A))
        total = A[lower].copy()
        for data in heard.values():
            total += read(struct.Struct(f"<{len(total)}d"), data)
        if self.place.parent is not None:
            return total.astype("<f8").tobytes()
        assert self._root is not None
        H = np.zeros_like(A)
        H[lower] = (self._goal.bend / self.place.shape.sites) * total
        H = H + np.tril(H, -1).T + 2.0 * matrix(self._risk.G, len(A))
        self._order = self._encoded(self._root.knows(H, self.u))
        return b""

    def _value(self, u: Array) -> float:
        return self._own.value(u)


_told = alike(codec.decoded)  # an order says the same to all
_LONGER = {bytes([kind]) for kind in (COMMON, BEGIN, STEP)}  # orders of two bytes at least
