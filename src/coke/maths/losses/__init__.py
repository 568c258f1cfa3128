"""The losses by name: of which targets they are, and what other rooms ask before they use one.

To be read without NumPy, for the command line's help is made from it: the mathematics of a loss is
imported on use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coke.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coke.maths.arrays import FeatureMap, Room
    from coke.maths.losses.risk import Regulariser, Risk, Weights
    from coke.maths.losses.rowwise import RowLoss

    Labels = Sequence[Any] | NDArray[Any]

NUMBERS, CLASSES = "numbers", "classes"
OF_CLASSES = "classes"  # whichever is the usual one of classes


@dataclass(frozen=True)
class Loss:
    """ℓ(f, y) of a prediction f = φᵀθ and a target y, declared."""

    about: str
    kind: str  # of its targets: NUMBERS or CLASSES
    metric: str  # what its mean is called in files
    unit: str  # and in words
    kappa: float  # κ, its curvature: its largest second derivative, or that of one as wide
    row: str = ""  # module:class of the loss of a row; none where statistics suffice
    # Whether sums over the rows say all, so that no row is needed once they are known: what
    # out-of-core passes, differential privacy, compiled rounds and sweeps need.
    statistics: bool = False
    many: float = 0.0  # κ of more than two classes, where most rows are saturated; 0: the same
    bend: float = 0.0  # its largest second derivative, where few steps by it do for a minimum
    joint: bool = False  # whether it is of all classes at once, with K − 1 outputs
    codes: bool = False  # whether its targets are numbers that stand for classes, see `codes`
    probabilities: bool = False  # whether predictions say how probable a class is
    smooth: bool = True  # whether it has a gradient everywhere, by which to go down on a tree
    rough: float = 1.0  # how much coarser than of numbers a tolerance may be

    @cached_property
    def of_row(self) -> RowLoss:
        """The mathematics of one row."""
        module, _, name = self.row.partition(":")
        made: RowLoss = getattr(import_module(module), name)()
        return made

    @property
    def simplex(self) -> bool:
        """Whether predictions are of K − 1 numbers, in which classes are corners of a simplex."""
        return self.codes or self.joint

    def outputs(self, targets: int, classes: int) -> int:
        """K, the vectors of which θ is made: one a target, a class, or a code's number."""
        if self.kind == NUMBERS:
            return targets
        return classes - 1 if self.simplex or classes == 2 else classes

    def curvature(self, outputs: int) -> float:
        """κ, of so many outputs."""
        return self.many if self.many and outputs > 1 else self.kappa

    def risk(
        self, phi: FeatureMap, X: Sequence[Any], y: Sequence[Any], G: Regulariser,
        *, classes: Labels = (), room: Room | None = None, weights: Weights = None,
    ) -> Risk:  # fmt: skip
        """The risks of agents with rows X_i (T_i, d) and targets y_i, G being λ/N.

        Targets are labels (T_i,), or numbers (T_i,) or (T_i, K), which codes are, too.
        `classes` are the sorted labels, none for numbers. Features that are kept are in `room`.
        """
        if self.statistics:
            from coke.maths.losses.mixed import risks_of

            if weights is not None:
                raise InputError(
                    "weights of rows and a loss of sums: `coke.data.blocks` adds these"
                )
            return risks_of(phi, X, y, G)
        from coke.maths.losses.one_vs_rest import risk_of_labels
        from coke.maths.losses.rowwise import Rowwise

        if self.kind == NUMBERS:
            return Rowwise.from_rows(phi, X, y, G, loss=self, room=room).weighted(weights)
        one = risk_of_labels(phi, X, y, G, loss=self, classes=classes, room=room)
        return one.weighted(weights)


LOSSES: dict[str, Loss] = {
    "quadratic": Loss(
        about="(y − f)²", kind=NUMBERS, metric="mse", unit="mean squared error", kappa=2.0,
        statistics=True,
    ),
    "huber": Loss(
        about="(y − f)², linear beyond 1", kind=NUMBERS, metric="huber", unit="mean Huber loss",
        kappa=2.0, row="coke.maths.losses.huber:Huber",
    ),
    "auto": Loss(
        about="of numbers or classes, as the target is", kind=NUMBERS, metric="mse",
        unit="mean squared error", kappa=2.0, statistics=True,
    ),
    OF_CLASSES: Loss(
        about="the usual one of classes, least-squares", kind=CLASSES, metric="", unit="",
        kappa=0.0, statistics=True, probabilities=True, rough=10.0,
    ),
    "least-squares": Loss(
        about="‖v_y − f‖², classes as corners of a simplex", kind=CLASSES, metric="mse",
        unit="mean squared error", kappa=2.0, statistics=True, codes=True,
        probabilities=True, rough=10.0,
    ),
    "softmax": Loss(
        about="log Σ_k exp f_k − f_y", kind=CLASSES, metric="log_loss", unit="mean log loss",
        kappa=0.5, many=0.2, bend=0.5, row="coke.maths.losses.softmax:Softmax", joint=True,
        probabilities=True, rough=10.0,
    ),
    "logistic": Loss(
        about="log(1 + exp(−yf)), one class against the rest", kind=CLASSES, metric="logistic",
        unit="mean logistic loss", kappa=0.25, many=0.1, bend=0.25,
        row="coke.maths.losses.logistic:Logistic", probabilities=True, rough=10.0,
    ),
    "hinge": Loss(
        about="max(0, 1 − yf)", kind=CLASSES, metric="hinge", unit="mean hinge loss",
        kappa=0.25, row="coke.maths.losses.hinge:Hinge", smooth=False, rough=10.0,
    ),
}  # fmt: skip


def losses_of(kind: str) -> tuple[str, ...]:
    """The names of the losses of such targets; the first is the usual one."""
    return tuple(name for name, loss in LOSSES.items() if loss.kind == kind)
