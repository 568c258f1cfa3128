"""Settings that belong together, as the estimators take them; a test compares the declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from coke.errors import InputError
from coke.settings.declaration import Features


class Until(msgspec.Struct, frozen=True):
    """When to stop: after so many rounds, or earlier.

    accuracy : of the methods in a common basis: how far above the optimum's objective the model's
        may be at most, relative to it. They stop once that is proven, or warn.
    tol : once no site's parameters move or differ by more, in norm and in units of the target's
        spread; in a common basis that fits, about the root mean square change of predictions.
        None for the algorithm's own ("coke": 1e-3, the paper's methods run all rounds).
    max_bytes, max_transmissions : a budget of all sites together, agreement included.
    """

    rounds: int = 1000
    accuracy: float = 0.01
    tol: float | None = None
    max_bytes: int | None = None
    max_transmissions: int | None = None


class DP(msgspec.Struct, frozen=True):
    """(ε, δ)-differential privacy of single rows, by statistics that are noised once.

    secure_sum, colluding : less noise, by a sum that shows none of its parts, if no more than so
        many sites put together what they know.
    new_budget : spend ε once more on rows or settings that have changed.
    releases : a folder for the sites' noised statistics. Without it they are forgotten, and every
        fit, also one of a grid search, draws its noise anew and spends ε once more.
    classes : of a classifier, all labels there can be, a list or an array, known before any row:
        which of them a site has is about its rows.
    """

    epsilon: float
    delta: float = 1e-5
    secure_sum: bool = False
    colluding: int = 1
    new_budget: bool = False
    releases: str | Path | None = None
    classes: Any = ()


class Coke(msgspec.Struct, frozen=True):
    """COKE with nothing to tune; all as in `Auto`, `sums` for what its proof leaves to do."""

    algorithm: ClassVar[str] = "coke"
    whitening: str = "mixture"
    sample: Any = None
    sums: bool = True
    memory: float = 500.0


class Auto(Coke, frozen=True):
    """The cheapest method that will do, in a basis that the sites agree on.

    whitening : where it comes from: "mixture", "moments", "gram", "range" (of scale="public") or
        "sample", public inputs in the array `sample`.
    sums : whether a site's neighbour may see sums of gradients of the sites behind it; without
        that the sites come to a consensus.
    memory : of `partial_fit`: ticks after which a row counts 1/e; infinite: always one.
    links : what a message to several neighbours costs: a copy for each ("unicast") or one for all
        ("broadcast").
    """

    algorithm: ClassVar[str] = "auto"
    links: str = "unicast"


class TreeNewton(msgspec.Struct, frozen=True):
    """Newton's method by sums over a tree; all as in `Auto`."""

    algorithm: ClassVar[str] = "tree-newton"
    whitening: str = "mixture"
    sample: Any = None
    links: str = "unicast"


class CokePaper(msgspec.Struct, frozen=True):
    """The paper's COKE: ADMM with step ρ, silent below h(k) = v μᵏ."""

    algorithm: ClassVar[str] = "coke-paper"
    rho: float = 1e-2
    v: float = 1.0
    mu: float = 0.95


class DKLA(msgspec.Struct, frozen=True):
    """The paper's DKLA: ADMM with step ρ, never silent."""

    algorithm: ClassVar[str] = "dkla"
    rho: float = 1e-2


class Diffusion(msgspec.Struct, frozen=True):
    """The paper's baseline CTA: combine with the neighbours, then adapt by a gradient step η."""

    algorithm: ClassVar[str] = "cta"
    eta: float = 0.99


class Agents(msgspec.Struct, frozen=True):
    """A real agent for each site.

    carrier : "tls", processes that talk over mutual TLS on this machine (needs the extra
        `coke-learn[agent]`); or "memory", threads of this process.
    """

    carrier: str = "tls"


CHOSEN = {kind.algorithm: kind for kind in (Auto, TreeNewton, Coke, CokePaper, DKLA, Diffusion)}


def group_of(name: str, given: Any) -> Any:
    """The group that a parameter stands for; itself where it is none."""
    usual: dict[Any, type] = {"features": Features, "limits": Until} if given is None else {}
    kind = usual.get(name) or (CHOSEN.get(given) if isinstance(given, str) else None)
    return given if kind is None else kind()


def chosen(algorithm: Any) -> dict[str, Any]:
    """The settings of an algorithm, given by its name or as a group."""
    if isinstance(algorithm, str):
        return {"algorithm": algorithm}
    found = fields("algorithm", algorithm, *CHOSEN.values())
    if found.get("sample") is not None:
        found["sample"] = "given"
    return {"algorithm": algorithm.algorithm, **found}


def fields(name: str, group: Any, *kinds: type[msgspec.Struct]) -> dict[str, Any]:
    """The settings in a group that was given for a parameter."""
    if not isinstance(group, kinds):
        names = ", ".join(f"coke.{kind.__name__}(…)" for kind in kinds)
        raise InputError(f"{name}={group!r}: expected {names}")
    return msgspec.structs.asdict(group)


def checked_seed(random_state: Any) -> int:
    """A whole number, for all sites must draw the same."""
    if not isinstance(random_state, int | np.integer) or random_state < 0:
        raise InputError(
            f"random_state={random_state!r}: expected a whole number ≥ 0, from which all sites "
            "draw the same features; for another draw give another number"
        )
    return int(random_state)


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's, which is what configurations are made of."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
