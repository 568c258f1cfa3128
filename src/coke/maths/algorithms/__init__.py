"""The algorithms by name: how each is made, which settings it takes and what it needs.

To be read without NumPy, for the command line's help is made from it: an algorithm's own module is
imported when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coke.maths.algorithms.algorithm import Algorithm
    from coke.maths.graph import Shape


class Seen(NamedTuple):
    """What sites know of each other before they train; an algorithm may be made from it."""

    kappa: float  # curvature of the loss
    shape: Shape  # of the network
    spread: float  # of the target


class Entry(NamedTuple):
    """An algorithm of the house."""

    about: str
    make: str  # module:function of the settings in `uses`; with `basis`, also of what is `Seen`
    uses: tuple[str, ...] = ()  # settings
    basis: bool = False  # whether it runs in a basis that the sites agree on first
    tol: float | None = None  # where no tolerance is given; None: all rounds
    not_for: Mapping[str, str] = {}  # "agents" or "audit" ↦ why it cannot run there
    descends: bool = False  # by sums over a tree; `make` is who goes on where a site is missing

    def build(self, settings: Mapping[str, Any], seen: Seen | None = None) -> Algorithm:
        """The algorithm with those of the settings that it takes."""
        module, _, name = self.make.partition(":")
        taken = {key: settings[key] for key in self.uses}
        made: Algorithm = getattr(import_module(module), name)(
            *(seen if self.basis and seen else ()), **taken
        )
        return made


_COKE, _CTA = "coke.maths.algorithms.coke", "coke.maths.algorithms.cta"
ALGORITHMS: dict[str, Entry] = {
    "auto": Entry("the cheapest that will do", f"{_COKE}:automatic", basis=True),
    "tree-newton": Entry(
        "sums over a tree, certified", f"{_COKE}:automatic", basis=True, descends=True
    ),
    "coke": Entry("nothing to tune", f"{_COKE}:automatic", basis=True, tol=1e-3),
    "coke-paper": Entry("the paper's, censored", f"{_COKE}:paper", ("rho", "v", "mu")),
    "dkla": Entry("the paper's, never silent", f"{_COKE}:dkla", ("rho",)),
    "cta": Entry(
        "diffusion, the paper's baseline",
        f"{_CTA}:CTA",
        ("eta",),
        not_for={
            "agents": "its messages are raw float64 numbers, whose sums differ in the last bits",
            "audit": "the attacks are on what ADMM sends",
        },
    ),
}
