"""Which method, at what cost: all of them on one problem, through one ledger, to one goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from coke.engines.process import simulate
from coke.errors import CokeError, InputError, unknown
from coke.learning.descending import Descending
from coke.learning.links import links_of
from coke.learning.ready import Ready
from coke.learning.rivals import line_making
from coke.maths.algorithms.algorithm import Algorithm
from coke.maths.algorithms.codecs import Coarse
from coke.maths.algorithms.coke import COKE, FLOAT, Geometric
from coke.maths.arrays import Array, Mask
from coke.maths.graph import Tree, spanning_tree
from coke.maths.ledger import Ledger
from coke.maths.losses import CLASSES, NUMBERS
from coke.maths.losses.problem import Quadratic
from coke.maths.losses.risk import local_only
from coke.settings.rules import against_descent
from coke.studies.compare.boosted import Boosted, Forests, installed
from coke.studies.compare.goal import Goal, Row, Trace
from coke.studies.compare.sweep import Swept, sweep
from coke.studies.compare.tree_methods import (
    FLOAT32,
    FLOAT64,
    Point,
    coded_gradient,
    conjugate_gradients,
    gram_sum,
)

GRID = tuple(product((1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1), (0.1, 1.0), (0.85, 0.95)))  # ρ, v, μ
FURTHER = 10  # times nearer than the goal, so that a method that stops by itself has settled
HORIZONS = {"coke": 300, "tree-newton": 300, "coke-tuned": 1000, "tree-gradient": 300, "cta": 2000}
MOMENTS = 7  # per input: mean, spread and five factors of a Gaussian, float32 each (tree-pcg)
METHODS = (
    "coke",
    "tree-newton",
    "coke-paper",
    "dkla-paper",
    "coke-tuned",
    "cta",
    "tree-cg",
    "tree-pcg",
    "tree-gradient",
    "tree-gram",
    "local-only",
    "one-shot-average",
    "linear",
    "boosted-pooled",
    "boosted-average",
)
QUADRATIC = ("tree-cg", "tree-pcg", "tree-gram")  # need statistics that sum up
SLOW = ("coke-tuned",)  # for class labels: only where asked for by name
BOOSTED = ("boosted-pooled", "boosted-average")  # where the extra is installed
PLAINLY = {NUMBERS: "quadratic", CLASSES: "least-squares"}  # losses of which one sum says all

Back = Callable[[Array], Array]  # from the basis a method works in to the plain features
Grow = Callable[[Boosted, Tree], tuple[Forests, Ledger]]


def known(method: str) -> str:
    """The name itself if it is a method's."""
    if method not in METHODS:
        raise InputError(unknown("method", method, METHODS))
    return method


class Comparison:
    """One problem, one goal; every method asked for by name.

    The paper's COKE and DKLA run at the settings' ρ, v and μ for at most `rounds`.
    """

    def __init__(self, ready: Ready, goal: float, rounds: int):
        self.ready, self.ours = ready, ready.case("coke")
        self.risk, self.tree = ready.problem.train, spanning_tree(ready.graph)
        self.goal, self.agreed = (
            Goal(ready, goal),
            Ledger.of(self.ours.spent),
        )
        self._calls: dict[str, Callable[[], Row]] = {
            "coke": self.coke,
            "tree-newton": self.tree_newton,
            "coke-paper": partial(self.plain, "coke-paper", "coke-paper", rounds),
            "dkla-paper": partial(self.plain, "dkla-paper", "dkla", rounds),
            "coke-tuned": self.coke_tuned,
            "cta": partial(self.plain, "cta", "cta", HORIZONS["cta"]),
            "tree-cg": self.tree_cg,
            "tree-pcg": self.tree_pcg,
            "tree-gradient": self.tree_gradient,
            "tree-gram": lambda: self.trees("tree-gram", gram_sum(self.quadratic, self.tree)),
            "local-only": lambda: self.once("local-only", local_only(self.risk), Ledger()),
            "one-shot-average": self.one_shot_average,
            "linear": self.linear,
            "boosted-pooled": lambda: self.boosted("boosted-pooled", Boosted.pooled),
            "boosted-average": lambda: self.boosted("boosted-average", Boosted.average),
        }

    @property
    def methods(self) -> tuple[str, ...]:
        """Those to run where none is named."""
        left = (() if self.goal.by_loss else (*QUADRATIC, *SLOW)) + BOOSTED * (not installed())
        never = ("tree-newton",) if self._against else ()
        return tuple(name for name in METHODS if name not in (*left, *never))

    @property
    def _against(self) -> str:
        """Why there is no descending by sums over the tree here."""
        return "; ".join(against_descent(self.ready.agreement.terms.settings))

    def row(self, method: str) -> Row:
        """What that method costs; where it fails, why: other rows are not lost with it."""
        call = self._calls[known(method)]
        try:
            return call()
        except CokeError as error:
            return Row.of_failure(method, str(error))
        except Exception as error:
            return Row.of_failure(method, f"{type(error).__name__}: {error}")

    @property
    def quadratic(self) -> Quadratic:
        """The statistics that CG and the Gram sum add up."""
        if self.risk.sums is None:
            raise InputError(
                f"{', '.join(QUADRATIC)} add up the statistics of the quadratic loss: "
                f"expected it, not {self.goal.metric}; leave these methods out"
            )
        return self.risk.sums

    def coke(self) -> Row:
        """Ours: whitened, warm, coded, with thresholds that shrink in silence; nothing to tune."""
        case = self.ours
        records = simulate(
            case.problem, links_of(self.ready, case), case.algorithm,
            rounds=HORIZONS["coke"], spent=case.spent, scored=(),
        )  # fmt: skip
        traces = (self._trace(r.k, case.theta(r.state.theta), r.ledger) for r in records)
        return self.goal.settle("coke", traces, self.agreed.bytes)

    def tree_newton(self) -> Row:
        """Newton's method by sums over the tree, in the same basis; what `auto` mostly takes."""
        if self._against:
            raise InputError(f"{self._against}; leave tree-newton out")
        case = self.ready.case("tree-newton")
        assert case.goal is not None  # or there would be something against it
        nearer = (self.goal.factor - 1.0) / FURTHER
        goal = case.goal._replace(accuracy=nearer, sweeps=HORIZONS["tree-newton"])
        records = Descending(self.ready, case._replace(goal=goal)).records()
        traces = (self._trace(r.k, case.theta(r.state.theta[:1]), r.ledger) for r in records)
        return self.goal.settle("tree-newton", traces, self.agreed.bytes)

    def plain(self, method: str, algorithm: str | Algorithm, rounds: int) -> Row:
        """A method of the paper, on the plain features, with float64 messages."""
        case = self.ready.case(algorithm)
        graph = self.ready.graph
        records = simulate(case.problem, graph, case.algorithm, rounds=rounds, scored=())
        traces = (self._trace(r.k, r.state.theta, r.ledger) for r in records)
        return self.goal.settle(method, traces)

    def coke_tuned(self) -> Row:
        """The paper's COKE at the best of a grid of ρ, v and μ, known in hindsight only."""
        grid = [COKE(rho, Geometric(v, mu)) for rho, v, mu in GRID]
        best = self._best(grid) if self.goal.by_loss else None
        if best is not None:
            return self.plain("coke-tuned", best, HORIZONS["coke-tuned"])
        rows = [self.plain("coke-tuned", one, HORIZONS["coke-tuned"]) for one in grid]
        return min(rows, key=lambda row: (row.failed is not None, not row.reached, row.bytes))

    def _best(self, grid: list[COKE]) -> COKE:
        """The setting that settles with the fewest bytes, or is nearest; all of them at once."""
        S = len(grid)
        settled, value = np.full(S, np.inf), np.full(S, np.inf)  # bytes

        def going(r: Swept) -> Mask:
            # One that is off the goal and has spent more than another settled with cannot win.
            return np.asarray((settled < np.inf) | (r.spent[:, 1] <= settled.min()))

        sweeping = sweep(self.ready.problem, self.ready.graph, grid,
                         rounds=HORIZONS["coke-tuned"], going=going)  # fmt: skip
        for r in sweeping:
            value = np.where(np.isfinite(r.global_train), r.global_train, np.inf)
            first = (value <= self.goal.wanted) & (settled == np.inf)
            settled = np.where(value <= self.goal.wanted, settled, np.inf)
            settled = np.where(first, r.spent[:, 1], settled)
        return grid[int(np.lexsort((value, settled))[0])]

    def tree_cg(self) -> Row:
        """Conjugate gradients in float64, as they come."""
        points = conjugate_gradients(self.quadratic, self.tree, FLOAT64, lambda r: r, Ledger())
        return self.trees("tree-cg", points)

    def tree_pcg(self) -> Row:
        """Conjugate gradients in float32, preconditioned by P from moments sent as float32."""
        assert self.ours.basis is not None  # ours always has one
        factor = cho_factor(self.ours.basis.C @ self.ours.basis.C.T)
        size = FLOAT32 * (MOMENTS * len(self.ready.agreement.terms.columns) + 1)
        ledger = self.tree.summed(Ledger(), size)

        def solved(r: Array) -> Array:
            return np.asarray(cho_solve(factor, r.reshape(-1, len(factor[0])).T)).T.ravel()

        points = conjugate_gradients(self.quadratic, self.tree, FLOAT32, solved, ledger)
        return self.trees("tree-pcg", points, ledger.bytes)

    def tree_gradient(self) -> Row:
        """Heavy ball in the agreed basis, with coded innovations on the tree's edges."""
        points = coded_gradient(
            self.ours.problem.train, self.tree, Coarse(), HORIZONS["tree-gradient"],
            self.agreed, self.risk.kappa,
        )  # fmt: skip
        return self.trees("tree-gradient", points, self.agreed.bytes, self.ours.theta)

    def one_shot_average(self) -> Row:
        """The mean of the local models, once over the tree."""
        mean = self.ready.problem.everywhere(local_only(self.risk).mean(axis=0))
        spent = self.tree.summed(Ledger(), FLOAT * self.risk.size)
        return self.once("one-shot-average", mean, spent)

    def linear(self) -> Row:
        """A ridge of one row's weight on the inputs, from sums of squares and products."""
        terms, how = self.ready.agreement.terms, line_making(self.ready)
        how = how._replace(loss=PLAINLY[terms.loss.kind])
        sums = self.ready.sites.problem(how).train.sums
        assert sums is not None  # of such a loss
        (point,) = gram_sum(sums, self.tree)
        line = self.ready.model(self.ready.optimum)._replace(
            theta=point.theta.reshape(-1, how.features.size), features=how.features,
            scaling=how.units, loss=how.loss,
        )  # fmt: skip
        return Row.of_another("linear", point.ledger, self.goal.held.score(line.predicted))

    def boosted(self, method: str, grow: Grow) -> Row:
        """LightGBM with its defaults."""
        forests, spent = grow(Boosted(self.ready), self.tree)
        return Row.of_another(method, spent, self.goal.held.score(forests.predict))

    def once(self, method: str, theta: Array, ledger: Ledger) -> Row:
        """A method of one step."""
        return self.goal.settle(method, [self._trace(1, theta, ledger)])

    def trees(
        self, method: str, points: Iterator[Point], agreed: int = 0, back: Back = lambda u: u
    ) -> Row:
        """A method in which everybody holds the same θ."""
        traces = (self._trace(p.k, back(p.theta)[None], p.ledger) for p in points)
        return self.goal.settle(method, traces, agreed)

    def _trace(self, k: int, theta: Array, ledger: Ledger) -> Trace:
        whole = partial(np.broadcast_to, theta, (len(self.risk.T), theta.shape[1]))
        return Trace(k, self.goal.value(theta), ledger, lambda: np.array(whole()))
