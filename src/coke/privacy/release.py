"""One site's noised statistics: drawn once from the system's entropy, kept, and used ever after.

Whoever draws the noise twice pays twice: the mean of two releases has less noise. So the release
is on disk before anybody sees it, a restart reads it back, and other rows, features or budgets are
refused until the site's owner says that a new budget may be spent. The common seed of the features
is known to all sites and is never asked for noise.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from scipy.special import ndtri

from coke.data.files import AGAIN, Arrays, locked, pack, read_file, unpack, write_file
from coke.data.units import Scaling
from coke.errors import DataError, FileError, InputError
from coke.maths.arrays import Array
from coke.maths.features.features import DrawnFeatures
from coke.maths.losses.problem import Quadratic, statistics
from coke.privacy.noise import (
    Budget,
    Noise,
    Statistics,
    calibrated,
    draws,
    least_lambda,
    noised,
    norm_bound,
    projected,
)

KIND = "private"


class Conditions(NamedTuple):
    """What a release is made with; all of it is public."""

    features: DrawnFeatures
    Y: float  # targets are clipped to ‖y‖ ≤ Y
    budget: Budget
    K: int = 1  # numbers in a target

    @property
    def noise(self) -> Noise:
        """What makes one release of such statistics private."""
        mapping = "cos-phase" if len(self.features.phase) else "cos-sin"
        return calibrated(self.budget, norm_bound(mapping), self.Y, self.features.size, self.K)

    @property
    def draws(self) -> int:
        """Normals that one release takes."""
        return draws(self.features.size, self.K)

    def exact(self, X: Array, y: Array) -> Statistics:
        """Those of a site's rows, targets clipped."""
        if not (len(X) == len(y) > 0 and np.isfinite(X).all() and np.isfinite(y).all()):
            raise DataError(
                f"{len(X)} inputs and {len(y)} targets: expected equally many, all finite"
            )
        if y.size != len(y) * self.K:
            raise DataError(f"targets of shape {y.shape}: expected {self.K} numbers each")
        A, b, _ = statistics(self.features, X, _clipped(y, self.Y))
        return Statistics(A, b)


def _clipped(y: Array, Y: float) -> Array:
    """The nearest targets (T,) or (T, K) with ‖y‖ ≤ Y."""
    if y.ndim == 1:
        return np.clip(y, -Y, Y)
    size = np.sqrt(np.vecdot(y, y))[:, None]
    return np.asarray(y * np.where(size > Y, Y / np.where(size > Y, size, 1.0), 1.0))


class Release(NamedTuple):
    """What a site may use and say as often as it likes."""

    found: Statistics  # Ã (D, D), b̃ (K·D,)
    T: int
    s: float
    spent: tuple[Budget, ...]  # on all releases so far; the last one is this

    @property
    def total(self) -> Budget:
        """What a row has been exposed to at most: budgets add up."""
        return Budget(sum(b.epsilon for b in self.spent), sum(b.delta for b in self.spent))


Count = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Salt = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Rows = tuple[Array, Array]  # X (T, d) and y (T,) or (T, K) of a site, in public units


class Spending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says of the rows that a budget was spent on."""

    spent: list[tuple[float, float]]
    salt: Salt
    made_from: str  # digest of rows and terms

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """All that was spent, or `InputError`."""
        return tuple(Budget(*one).checked() for one in self.spent)

    def still(self, path: str | Path, terms: Conditions, rows: Rows, again: bool) -> bool:
        """Whether it was spent on these very rows and terms; if not, refused unless `again`."""
        if self.made_from == made_from(self.salt, terms, rows):
            return True
        if not again:
            before = self.budgets
            epsilon = sum(budget.epsilon for budget in before)
            change = "the rows, the features or the bound on the target changed"
            if before[-1:] != (terms.budget,):
                change = f"the budget became {tuple(terms.budget)}"
            raise DataError(
                f"{path}: {change} since epsilon={epsilon:g} was spent: restore what was, or allow "
                "a new budget, which adds to that one, with new_budget = true"
            )
        return False


class _ReleaseHeader(Spending, frozen=True, forbid_unknown_fields=True):
    """What a release's file says beside its arrays."""

    T: Count
    s: Positive


def private_statistics(
    path: str | Path, terms: Conditions, X: Array, y: Array, *, again: bool = False
) -> Release:
    """The site's one release: read from `path`, or made, written there and only then returned.

    `again` allows to spend the budget once more, on rows or terms that have changed.
    """
    with locked(path):  # of two runs that share it, one draws
        return _private_statistics(path, terms, X, y, again)


def _private_statistics(
    path: str | Path, terms: Conditions, X: Array, y: Array, again: bool
) -> Release:
    before: tuple[Budget, ...] = ()
    if Path(path).exists():
        release, meta = _load_release(path)
        if meta.still(path, terms, (X, y), again):
            return release
        before = release.spent
    found = noised(terms.exact(X, y), len(y), terms.noise, entropy_normals(terms.draws))
    spent = (*before, terms.budget)
    release = Release(Statistics(projected(found.A), found.b), len(y), terms.noise.s, spent)
    salt = new_salt()
    meta = _ReleaseHeader(list(spent), salt, made_from(salt, terms, (X, y)), release.T, release.s)
    write_file(path, pack(KIND, meta, {"A": release.found.A, "b": release.found.b}), secret=True)
    return release


def new_salt() -> str:
    """So that the digest of a site's rows can be compared with no other."""
    return secrets.token_hex(16)


def made_from(salt: str, terms: Conditions, rows: Rows) -> str:
    """A digest of all that decides the statistics and their noise."""
    digest = hashlib.blake2b(key=salt.encode(), digest_size=32)
    numbers = np.array([terms.Y, *terms.budget])
    for part in (terms.features.omega, terms.features.phase, numbers, *rows):
        digest.update(repr(part.shape).encode() + np.ascontiguousarray(part, "<f8").tobytes())
    return digest.hexdigest()


def entropy_normals(n: int) -> Array:
    """N standard normals from the system's entropy, which nobody can draw again.

    Each is half the sum of four, so that it has far more values than one 52-bit number.
    """
    raw = np.frombuffer(secrets.token_bytes(32 * n), "<u8").reshape(4, n)
    uniform = ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return np.asarray(0.5 * ndtri(uniform).sum(axis=0))


def _load_release(path: str | Path) -> tuple[Release, _ReleaseHeader]:
    """What was released, and what it was made from, or `FileError`."""
    try:
        meta, arrays = unpack(read_file(path), KIND, _ReleaseHeader)
        found = _found(arrays)
        if not meta.spent:
            raise ValueError("no budget")
        spent = meta.budgets
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise FileError(f"{path}: the release does not fit together: {error}; {AGAIN}") from error
    return Release(found, meta.T, meta.s, spent), meta


def _found(arrays: Arrays) -> Statistics:
    A, b = arrays["A"], arrays["b"]
    if {A.dtype.str, b.dtype.str} != {"<f8"} or len(arrays) != 2:
        raise ValueError("expected A and b, in float64")
    fits = b.ndim == 1 <= len(b) and A.ndim == 2 and len(A) == A.shape[1] > 0
    if not fits or len(b) % len(A):
        raise ValueError(f"A of shape {A.shape} and b of {b.shape}")
    if not (np.abs(A) < 1e100).all() or not (np.abs(b) < 1e100).all() or (A != A.T).any():
        raise ValueError("numbers that no statistics can have")
    if np.linalg.eigvalsh(A)[0] < -1e-9 * np.abs(A).max(initial=1e-300):
        raise ValueError("A has negative eigenvalues")
    return Statistics(A, b)


class AllSites(NamedTuple):
    """What a site must know of all sites; their numbers of rows are public."""

    N: int
    thin: float  # Σ_i 1/T_i²


def private_risk(
    releases: Sequence[Release], yy: Array, lam: float, everyone: AllSites | None = None
) -> Quadratic:
    """The sites' risks from releases alone, λ raised to the least that the noise needs.

    yy (N,) are the mean squares of the raw targets. They shift the losses that a site prints for
    its owner; no message depends on them. Without `everyone` these are all sites there are.
    """
    T = np.array([float(one.T) for one in releases])
    A = np.stack([one.found.A for one in releases])
    b = np.stack([one.found.b for one in releases])
    N, thin = everyone or AllSites(len(T), float(np.sum(1.0 / T**2)))
    least = least_lambda(max(one.s for one in releases), A.shape[-1], np.array([thin**-0.5]))
    return Quadratic(A, b, yy, T, max(lam, least) / N)


def public_scaling(low: Array, high: Array, target: tuple[float, float]) -> Scaling:
    """Units from ranges that were known before any row: inputs and target to [−1, 1]."""
    ends = np.array([[*low, target[0]], [*high, target[1]]], dtype=np.float64)
    if not (np.isfinite(ends).all() and (ends[0] < ends[1]).all()):
        raise InputError("ranges: expected for every column and the target a low below a high")
    middle, half = ends.mean(axis=0), 0.5 * (ends[1] - ends[0])
    return Scaling(middle[:-1], half[:-1], middle[-1:], half[-1:])
