"""The losses by name, to be read without NumPy: the command line's help is made from it."""

from __future__ import annotations

from dataclasses import dataclass

NUMBERS, CLASSES = "numbers", "classes"


@dataclass(frozen=True)
class Loss:
    """What other rooms ask before they use a loss."""

    about: str
    kind: str  # of its targets: NUMBERS or CLASSES
    statistics: bool = False  # whether sums over the rows say all
    probabilities: bool = False


LOSSES = {
    "quadratic": Loss("of numbers: ridge regression", NUMBERS, statistics=True),
    "logistic": Loss("of classes, with probabilities", CLASSES, probabilities=True),
    "hinge": Loss("of classes: support vector machine", CLASSES),
}
