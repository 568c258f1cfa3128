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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coke.maths.arrays import FeatureMap, Room
    from coke.maths.losses.risk import Regulariser, Risk
    from coke.maths.losses.rowwise import RowLoss

    Labels = Sequence[Any] | NDArray[Any]

NUMBERS, CLASSES = "numbers", "classes"


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
    probabilities: bool = False  # whether 1/(1 + exp(−f)) is the probability of a class

    @cached_property
    def of_row(self) -> RowLoss:
        """The mathematics of one row."""
        module, _, name = self.row.partition(":")
        made: RowLoss = getattr(import_module(module), name)()
        return made

    def risk(
        self, phi: FeatureMap, X: Sequence[Any], y: Sequence[Any], G: Regulariser,
        *, classes: Labels = (), room: Room | None = None,
    ) -> Risk:  # fmt: skip
        """The risks of agents with rows X_i (T_i, d) and targets y_i (T_i,), G being λ/N.

        `classes` are the sorted labels, none for numbers. Features that are kept are in `room`.
        """
        if self.statistics:
            from coke.maths.losses.mixed import Mixed

            return Mixed.from_rows(phi, X, y, G)
        from coke.maths.losses.one_vs_rest import risk_of_labels
        from coke.maths.losses.rowwise import Rowwise

        if self.kind == NUMBERS:
            return Rowwise.from_rows(phi, X, y, G, loss=self, room=room)
        return risk_of_labels(phi, X, y, G, loss=self, classes=classes, room=room)


LOSSES: dict[str, Loss] = {
    "quadratic": Loss(
        about="(y − f)²", kind=NUMBERS, metric="mse", unit="mean squared error", kappa=2.0,
        statistics=True,
    ),
    "huber": Loss(
        about="(y − f)², linear beyond 1", kind=NUMBERS, metric="huber", unit="mean Huber loss",
        kappa=2.0, row="coke.maths.losses.huber:Huber",
    ),
    "logistic": Loss(
        about="log(1 + exp(−yf))", kind=CLASSES, metric="logistic", unit="mean logistic loss",
        kappa=0.25, row="coke.maths.losses.logistic:Logistic", probabilities=True,
    ),
    "hinge": Loss(
        about="max(0, 1 − yf)", kind=CLASSES, metric="hinge", unit="mean hinge loss",
        kappa=0.25, row="coke.maths.losses.hinge:Hinge",
    ),
}  # fmt: skip


def losses_of(kind: str) -> tuple[str, ...]:
    """The names of the losses of such targets; the first is the usual one."""
    return tuple(name for name, loss in LOSSES.items() if loss.kind == kind)
