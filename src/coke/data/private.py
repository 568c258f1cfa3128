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

from coke.data.files import AGAIN, Arrays, pack, read_file, unpack, write_file
from coke.data.scaling import Scaling
from coke.errors import ConfigError, DataError, FileError, InputError
from coke.maths.arrays import Array
from coke.maths.features import Features
from coke.maths.privacy import (
    Budget,
    Statistics,
    calibrated,
    draws,
    least_lambda,
    noised,
    norm_bound,
    projected,
)
from coke.maths.quadratic import Quadratic, statistics
from coke.maths.whitening import Gaussian

KIND = "private"
PUBLIC = ("range", "sample", "gram")  # bases that say nothing of raw rows: "gram" is that of Ã


class Terms(NamedTuple):
    """What a release is made with; all of it is public."""

    features: Features
    Y: float  # targets are clipped to ±Y
    budget: Budget


class Release(NamedTuple):
    """What a site may use and say as often as it likes."""

    found: Statistics  # Ã (D, D), b̃ (D,)
    T: int
    s: float
    spent: tuple[Budget, ...]  # on all releases so far; the last one is this

    @property
    def total(self) -> Budget:
        """What a row has been exposed to at most: budgets add up."""
        return Budget(sum(b.epsilon for b in self.spent), sum(b.delta for b in self.spent))


Count = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says beside its arrays."""

    T: Count
    s: Positive
    spent: list[tuple[float, float]]
    salt: str
    made_from: str  # digest of rows, features and Y


def private_statistics(
    path: str | Path, terms: Terms, X: Array, y: Array, *, again: bool = False
) -> Release:
    """The site's one release: read from `path`, or made, written there and only then returned.

    X (T, d) and y (T,) are in public units. `again` allows to spend the budget once more, on rows
    or terms that have changed.
    """
    before: tuple[Budget, ...] = ()
    if Path(path).exists():
        release, meta = load_release(path)
        if (change := _changed(release, meta, terms, X, y)) is None:
            return release
        if not again:
            raise DataError(
                f"{path}: {change} since epsilon={release.total.epsilon:g} was spent: restore what "
                "was, or allow a new budget, which adds to that one"
            )
        before = release.spent
    release = _made(terms, X, y)
    release = release._replace(spent=(*before, *release.spent))
    salt = secrets.token_hex(16)
    meta = Meta(release.T, release.s, list(release.spent), salt, _digest(salt, terms, X, y))
    write_file(path, pack(KIND, meta, {"A": release.found.A, "b": release.found.b}))
    return release


def _made(terms: Terms, X: Array, y: Array) -> Release:
    mapping = "cos-phase" if len(terms.features.phase) else "cos-sin"
    if not (len(X) == len(y) > 0 and np.isfinite(X).all() and np.isfinite(y).all()):
        raise DataError(f"{len(X)} inputs and {len(y)} targets: expected equally many, all finite")
    D, T = terms.features.size, len(y)
    noise = calibrated(terms.budget, norm_bound(mapping), terms.Y, D)
    A, b, _ = statistics(terms.features, X, np.clip(y, -terms.Y, terms.Y))
    found = noised(Statistics(A, b), T, noise, entropy_normals(draws(D)))
    return Release(Statistics(projected(found.A), found.b), T, noise.s, (terms.budget,))


def entropy_normals(n: int) -> Array:
    """N standard normals from the system's entropy, which nobody can draw again.

    Each is half the sum of four, so that it has far more values than one 52-bit number.
    """
    raw = np.frombuffer(secrets.token_bytes(32 * n), "<u8").reshape(4, n)
    uniform = ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return np.asarray(0.5 * ndtri(uniform).sum(axis=0))


def load_release(path: str | Path) -> tuple[Release, Meta]:
    """What was released, and what it was made from, or `FileError`."""
    try:
        meta, arrays = unpack(read_file(path), KIND, Meta)
        spent = tuple(Budget(*one).checked() for one in meta.spent)
        found = _found(arrays)
        if not (spent and len(meta.salt) == 32 and meta.salt.isascii()):
            raise ValueError("no budget or salt")
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise FileError(f"{path}: the release does not fit together: {error}; {AGAIN}") from error
    return Release(found, meta.T, meta.s, spent), meta


def _found(arrays: Arrays) -> Statistics:
    A, b = arrays["A"], arrays["b"]
    if {A.dtype.str, b.dtype.str} != {"<f8"} or len(arrays) != 2:
        raise ValueError("expected A and b, in float64")
    if not b.ndim == 1 <= len(b) or A.shape != (len(b), len(b)):
        raise ValueError(f"A of shape {A.shape} and b of {b.shape}")
    if not (np.abs(A) < 1e100).all() or not (np.abs(b) < 1e100).all() or (A != A.T).any():
        raise ValueError("numbers that no statistics can have")
    if np.linalg.eigvalsh(A)[0] < -1e-9 * np.abs(A).max(initial=1e-300):
        raise ValueError("A has negative eigenvalues")
    return Statistics(A, b)


def _changed(release: Release, meta: Meta, terms: Terms, X: Array, y: Array) -> str | None:
    """What is not as it was, if anything."""
    if release.spent[-1] != terms.budget:
        return f"the budget became {tuple(terms.budget)}"
    same = meta.made_from == _digest(meta.salt, terms, X, y)
    return None if same else "the rows, the features or the bound on the target changed"


def _digest(salt: str, terms: Terms, X: Array, y: Array) -> str:
    """Of all that decides the exact statistics."""
    digest = hashlib.blake2b(key=salt.encode(), digest_size=32)
    for part in (terms.features.omega, terms.features.phase, np.array([terms.Y]), X, y):
        digest.update(repr(part.shape).encode() + np.ascontiguousarray(part, "<f8").tobytes())
    return digest.hexdigest()


class Network(NamedTuple):
    """What a site must know of all sites; their numbers of rows are public."""

    N: int
    thin: float  # Σ_i 1/T_i²


def private_risk(
    releases: Sequence[Release], yy: Array, lam: float, network: Network | None = None
) -> Quadratic:
    """The sites' risks from releases alone, λ raised to the least that the noise needs.

    yy (N,) are the mean squares of the raw targets. They shift the losses that a site prints for
    its owner; no message depends on them. Without `network` these are all sites there are.
    """
    T = np.array([float(one.T) for one in releases])
    A = np.stack([one.found.A for one in releases])
    b = np.stack([one.found.b for one in releases])
    N, thin = network or Network(len(T), float(np.sum(1.0 / T**2)))
    least = least_lambda(max(one.s for one in releases), b.shape[1], np.array([thin**-0.5]))
    return Quadratic(A, b, yy, T, max(lam, least) / N)


def public_scaling(low: Array, high: Array, target: tuple[float, float]) -> Scaling:
    """Units from ranges that were known before any row: inputs and target to [−1, 1]."""
    ends = np.array([[*low, target[0]], [*high, target[1]]], dtype=np.float64)
    if not (np.isfinite(ends).all() and (ends[0] < ends[1]).all()):
        raise InputError("ranges: expected for every column and the target a low below a high")
    middle, half = ends.mean(axis=0), 0.5 * (ends[1] - ends[0])
    return Scaling(middle[:-1], half[:-1], float(middle[-1]), float(half[-1]))


def range_inputs(d: int) -> list[Gaussian]:
    """Inputs as public units alone suggest: uniform on [−1, 1]ᵈ, by its moments.

    `expected_gram` of it is a P that costs neither a message nor privacy. The noise asks for a λ so
    large that a better P hardly helps.
    """
    return [Gaussian(1.0, np.zeros(d), np.eye(d) / 3)]


def spread_for(Y: float) -> float:
    """Y/2: a public stand-in for the target's spread, the unit of thresholds and tolerances."""
    return Y / 2


def check_private(*, loss: str, scale: str, auto_sigma: bool, whitening: str) -> None:
    """Refuses, with the reason, every setting by which raw rows would speak past the noise."""
    if loss != "quadratic":
        raise ConfigError(
            f'privacy = "dp" with loss = "{loss}": only the quadratic loss has statistics that can '
            'be noised once; the others touch raw rows in every round. Use loss = "quadratic"'
        )
    if scale not in ("none", "public"):
        raise ConfigError(
            f'privacy = "dp" with scale = "{scale}": means and ranges of the rows are not noised; '
            "give ranges known beforehand"
        )
    if auto_sigma:
        raise ConfigError('privacy = "dp" with sigma = "auto": that looks at raw rows; give σ')
    if whitening not in PUBLIC:
        raise ConfigError(
            f'privacy = "dp" with whitening = "{whitening}": moments of raw inputs are not noised; '
            'use "range" (of public units), "sample" (public inputs) or "gram" (noised statistics)'
        )
