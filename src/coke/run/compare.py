"""Which method, at what cost: all of them on one problem, through one ledger, to one goal.

The goal is a factor over the centralised optimum of the global training MSE (every agent's model
on everybody's rows). A method has *settled* from the round on after which it never leaves the
goal again within its horizon; the round that first meets it is noted beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from coke.errors import ConvergenceError, InputError, unknown
from coke.maths.algorithm import Algorithm
from coke.maths.arrays import Array
from coke.maths.automatic import automatic
from coke.maths.coke import COKE, FLOAT, dkla
from coke.maths.cta import CTA
from coke.maths.features import Features
from coke.maths.graph import Graph
from coke.maths.mixtures import describe
from coke.maths.problem import Problem, local_only
from coke.maths.quadratic import Quadratic
from coke.maths.quantise import Coarse
from coke.maths.risks import matrix
from coke.maths.thresholds import Geometric
from coke.maths.whitening import Whitening, expected_gram, whitening
from coke.run.agree import agree
from coke.run.ledger import Ledger
from coke.run.simulate import simulate
from coke.run.trees import (
    FLOAT32,
    FLOAT64,
    Point,
    coded_gradient,
    conjugate_gradients,
    gram_sum,
    spanning_tree,
    spent,
)

GRID = tuple(product((1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1), (0.1, 1.0), (0.85, 0.95)))  # ρ, v, μ
HORIZONS = {"coke": 300, "coke-tuned": 1000, "tree-gradient": 300, "cta": 2000}
NUMBERS = 7  # per input: mean, spread and five factors of a Gaussian, float32 each (tree-pcg)

Back = Callable[[Array], Array]  # from the basis a method works in to the plain features


class Case(NamedTuple):
    """What the methods are compared on."""

    problem: Problem  # in the plain features
    features: Features
    X: Sequence[Array]  # the sites' training inputs, scaled
    graph: Graph
    spread: float  # standard deviation of the scaled target
    sigma: float
    seed: int


class Paper(NamedTuple):
    """The paper's settings, and for how many rounds to run them."""

    rho: float
    v: float
    mu: float
    eta: float
    rounds: int


class Row(NamedTuple):
    """What a method had spent when it settled, or at its horizon if it did not."""

    method: str
    reached: bool
    rounds: int
    first_hit: int | None
    transmissions: int
    bytes: int
    wire_bytes: int
    agreement_bytes: int
    global_train_mse: float
    global_test_mse: float | None


class Trace(NamedTuple):
    """After a round: the global training MSE, the ledger, and θ (N, D) in the plain features."""

    k: int
    loss: float
    ledger: Ledger
    theta: Callable[[], Array]


class Comparison:
    """One case, one goal; every method asked for by name."""

    def __init__(self, case: Case, paper: Paper, goal: float):
        if not goal > 1:
            raise InputError(f"goal={goal}: expected a factor above 1, such as 1.01")
        self.case, self.paper = case, paper
        self.risk, self.tree = _quadratic(case.problem), spanning_tree(case.graph)
        best = case.problem.everywhere(case.problem.optimum)
        self.optimum = case.problem.score(best).global_train
        self.goal = goal * self.optimum
        self.N, self.D = len(self.risk.T), self.risk.size
        self.ridge = float(np.trace(matrix(self.risk.G, self.D))) / self.D
        self.methods: dict[str, Callable[[], Row]] = {
            "coke": self.coke,
            "coke-paper": partial(self.plain, "coke-paper", self._paper(), paper.rounds),
            "dkla-paper": partial(self.plain, "dkla-paper", dkla(paper.rho), paper.rounds),
            "coke-tuned": self.coke_tuned,
            "cta": partial(self.plain, "cta", CTA(paper.eta), HORIZONS["cta"]),
            "tree-cg": self.tree_cg,
            "tree-pcg": self.tree_pcg,
            "tree-gradient": self.tree_gradient,
            "tree-gram": lambda: self.trees("tree-gram", gram_sum(self.risk, self.tree)),
            "local-only": lambda: self.once("local-only", local_only(self.risk), 0),
            "one-shot-average": self.one_shot_average,
        }

    def row(self, method: str) -> Row:
        """What that method costs."""
        if method not in self.methods:
            raise InputError(unknown("method", method, self.methods))
        return self.methods[method]()

    def _paper(self) -> COKE:
        return COKE(self.paper.rho, Geometric(self.paper.v, self.paper.mu))

    @cached_property
    def basis(self) -> tuple[Whitening, Ledger]:
        """The agreed basis, and what agreeing on it cost."""
        sites = zip(self.case.X, self.risk.A, strict=True)
        features, seed = self.case.features, self.case.seed
        described = [describe(X, features, A, self.ridge, seed) for X, A in sites]
        agreed = agree(self.tree, described, 0.3 * self.case.sigma * float(np.sqrt(self.ridge)))
        P = expected_gram(features, agreed.mixture) + self.ridge * np.eye(self.D)
        return whitening(P), agreed.ledger

    def coke(self) -> Row:
        """Ours: whitened, warm, coded, with thresholds that shrink in silence; nothing to tune."""
        basis, ledger = self.basis
        algorithm = automatic("mse", self.case.graph, self.case.spread)
        problem = Problem(self.risk.whitened(basis))
        traces = self._simulated(problem, algorithm, HORIZONS["coke"], ledger, basis.theta)
        return self._settle("coke", traces, ledger.bytes)

    def plain(self, method: str, algorithm: Algorithm, rounds: int) -> Row:
        """A method of the paper, on the plain features, with float64 messages."""
        traces = self._simulated(self.case.problem, algorithm, rounds, Ledger(), lambda u: u)
        return self._settle(method, traces)

    def coke_tuned(self) -> Row:
        """The paper's COKE at the best of a grid of ρ, v and μ, known in hindsight only."""
        rows = [
            self.plain("coke-tuned", COKE(rho, Geometric(v, mu)), HORIZONS["coke-tuned"])
            for rho, v, mu in GRID
        ]
        return min(rows, key=lambda row: (not row.reached, row.bytes))

    def tree_cg(self) -> Row:
        """Conjugate gradients in float64, as they come."""
        points = conjugate_gradients(self.risk, self.tree, FLOAT64, lambda r: r, Ledger())
        return self.trees("tree-cg", points)

    def tree_pcg(self) -> Row:
        """Conjugate gradients in float32, preconditioned by P from moments sent as float32."""
        basis, _ = self.basis
        factor = cho_factor(basis.C @ basis.C.T)
        size = FLOAT32 * (NUMBERS * len(self.case.features.omega[0]) + 1)
        ledger = spent(Ledger(), self.tree.messages, size)
        points = conjugate_gradients(
            self.risk, self.tree, FLOAT32, lambda r: np.asarray(cho_solve(factor, r)), ledger
        )
        return self.trees("tree-pcg", points, ledger.bytes)

    def tree_gradient(self) -> Row:
        """Heavy ball in the agreed basis, with coded innovations on the tree's edges."""
        basis, ledger = self.basis
        risk = self.risk.whitened(basis)
        points = coded_gradient(risk, self.tree, Coarse(), HORIZONS["tree-gradient"], ledger)
        return self.trees("tree-gradient", points, ledger.bytes, basis.theta)

    def one_shot_average(self) -> Row:
        """The mean of the local models, once over the tree."""
        mean = self.case.problem.everywhere(local_only(self.risk).mean(axis=0))
        return self.once("one-shot-average", mean, self.tree.messages)

    def once(self, method: str, theta: Array, messages: int) -> Row:
        """A method of one step."""
        loss = float(self.risk.global_losses(theta).mean())
        ledger = spent(Ledger(), messages, FLOAT * self.D)
        return self._settle(method, [Trace(1, loss, ledger, lambda: theta)])

    def trees(
        self, method: str, points: Iterator[Point], agreed: int = 0, back: Back = lambda u: u
    ) -> Row:
        """A method in which everybody holds the same θ."""

        def traces() -> Iterator[Trace]:
            for p in points:
                theta = back(p.theta)
                loss = float(self.risk.global_losses(theta[None])[0])
                yield Trace(p.k, loss, p.ledger, partial(self.case.problem.everywhere, theta))

        return self._settle(method, traces(), agreed)

    def _simulated(
        self, problem: Problem, algorithm: Algorithm, rounds: int, start: Ledger, back: Back
    ) -> Iterator[Trace]:
        for r in simulate(problem, self.case.graph, algorithm, rounds=rounds):
            spent_so_far = Ledger(*(a + b for a, b in zip(start, r.ledger, strict=True)))
            yield Trace(r.k, r.score.global_train, spent_so_far, partial(back, r.state.theta))

    def _settle(self, method: str, traces: Iterable[Trace], agreed: int = 0) -> Row:
        """The round from which on the loss stays at the goal or below."""
        first: int | None = None
        settled: Trace | None = None
        last: Trace | None = None
        try:
            for last in traces:
                if last.loss <= self.goal:
                    first = last.k if first is None else first
                    settled = last if settled is None else settled
                else:
                    settled = None
        except ConvergenceError:
            settled = None  # diverged: it cost what it had spent by then
        if last is None:
            raise ConvergenceError(f"{method} diverged in its first round on these data")
        end, reached = settled or last, settled is not None
        score = self.case.problem.score(end.theta())
        test = None if np.isnan(score.global_test) else score.global_test
        return Row(method, reached, end.k, first, *end.ledger, agreed, score.global_train, test)


def _quadratic(problem: Problem) -> Quadratic:
    if not isinstance(problem.train, Quadratic):
        raise InputError("methods can be compared for the quadratic loss only, so far")
    return problem.train


def advice(rows: Sequence[Row]) -> str:
    """One sentence: which method to take, by bytes on the wire."""
    useful = [row for row in rows if row.reached and row.method not in ("coke-tuned",)]
    if not useful:
        return "No method reached the goal: ask for less, or use more features or a smaller λ."
    best = min(useful, key=lambda row: row.wire_bytes)
    if best.method in ("local-only", "one-shot-average"):
        return f"Take {best.method}: on these data that is accurate enough, and nothing is cheaper."
    trees = "" if not best.method.startswith("tree") else ", if a spanning tree and a root are fine"
    return f"Take {best.method}{trees}: {best.wire_bytes / 1e3:.1f} kB on the wire."
