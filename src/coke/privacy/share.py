"""One site's share in a secure sum: a key, and statistics with a part of the noise, for one sum.

Everybody learns the sum of all sites' statistics, with the noise of one site in it; nobody sees a
part of it without masks (`coke.privacy.masks`). The noise of a share alone is too little to protect
it, and two sums that differ in one share show that share. So a share is drawn for one roster of
sites and keys, and refused to any other; and its file, which is no release, stays with the site.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from coke.data.files import AGAIN, locked, pack, read_file, unpack, write_file
from coke.errors import ConfigError, DataError, FileError, MessageError
from coke.maths.arrays import Array
from coke.privacy.masks import Words, masked, unmasked
from coke.privacy.noise import Noise, Statistics, projected, shared, steps, unpacked
from coke.privacy.release import (
    Conditions,
    Count,
    Release,
    Rows,
    Spending,
    entropy_normals,
    made_from,
    new_salt,
)

KIND = "share"
Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class Member(NamedTuple):
    """What a site tells all others before the sum."""

    key: Key  # public, X25519
    T: Count


class SignedMember(NamedTuple):
    """The same, and proof that the site itself says so: a relay could put in a key of its own."""

    key: Key
    T: Count
    signed: Annotated[bytes, msgspec.Meta(max_length=2048)]


Roster = dict[str, Member]
SignedRoster = dict[str, SignedMember]


class Signing(Protocol):
    """One site's name under what it says, and the others' under theirs."""

    def sign(self, said: bytes) -> bytes:
        """Proof that this site says so."""
        ...

    def check(self, name: str, said: bytes, signed: bytes) -> None:
        """`MessageError` unless the site of that name says so."""
        ...


class _ShareHeader(Spending, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a share's file says beside its numbers."""

    secret: Key
    roster: str  # digest of the roster whose sum it went into; empty before
    signed: bytes = b""  # the site's name under its key


class Share(NamedTuple):
    """What a site needs to take part."""

    path: Path
    name: str
    terms: Conditions
    rows: Rows
    colluding: int  # so many sites may put together what they know
    again: bool  # whether a new budget may be spent
    by_rows: bool = False  # whether rows weigh the same, not sites
    signing: Signing | None = None  # where sites have identities

    @property
    def member(self) -> Member:
        """What to tell the others; the key stays as long as rows and terms do."""
        with locked(self.path):
            return Member(_public(self._kept()[0].secret), len(self.rows[1]))

    def signed(self, signing: Signing) -> SignedMember:
        """The same, signed: once a run, for after a crash the same has to be said again."""
        member = self.member
        said = _said(self.name, member)
        with locked(self.path):
            kept, whole = self._kept()
            try:
                signing.check(self.name, said, kept.signed)
            except MessageError:
                kept = msgspec.structs.replace(kept, signed=signing.sign(said))
                numbers = {"whole": whole.astype(np.int64)} if kept.roster else {}
                write_file(self.path, pack(KIND, kept, numbers), secret=True)
        return SignedMember(*member, kept.signed)

    def believed(self, signing: Signing, roster: SignedRoster) -> Roster:
        """The roster, if every site itself says what is in it; else `MessageError`."""
        found = {name: Member(one.key, one.T) for name, one in roster.items()}
        for name, one in roster.items():
            if name != self.name:
                signing.check(name, _said(name, found[name]), one.signed)
        return found

    def words(self, roster: Roster) -> Words:
        """Statistics and noise under the masks of this roster; on disk before anybody sees them."""
        which = _digest(roster, self.colluding, by_rows=self.by_rows)
        with locked(self.path):  # of two runs that share it, one draws
            kept, whole = self._spent(roster, which)
        return masked(whole, self.name, _secrets(kept.secret, self.name, roster, which))

    def _spent(self, roster: Roster, which: str) -> tuple[_ShareHeader, Array]:
        """What goes into the sum of this roster, drawn once."""
        kept, whole = self._kept()
        if kept.roster != which:
            if kept.roster and not self.again:
                raise DataError(
                    f"{self.path}: the sites, their rows or their keys have changed since "
                    "this site's share went into a sum, and a second sum would show it: go on with "
                    "the files of that run, or allow a new budget, new_budget = true, at all sites"
                )
            whole = self._drawn(roster)
            spent = [*kept.spent, tuple(self.terms.budget)]
            kept = msgspec.structs.replace(kept, roster=which, spent=spent)
            numbers = {"whole": whole.astype(np.int64)}
            write_file(self.path, pack(KIND, kept, numbers), secret=True)
        return kept, whole

    def release(self, roster: Roster, total: Words) -> Release:
        """1/N of the sum, the same for every site: all train on it as on their own."""
        N, D, noise = len(roster), self.terms.features.size, self._noise(len(roster))
        mean = unpacked(unmasked(total) * noise.grid / (N * self.counted(roster)), D)
        found = Statistics(projected(mean.A), mean.b)
        spent = self._kept()[0].budgets
        return Release(found, len(self.rows[1]), noise.s * math.sqrt(N), spent)

    def _noise(self, N: int) -> Noise:
        whole = self.terms.noise
        return whole._replace(s=shared(whole.s, N, self.colluding))

    def counted(self, roster: Roster) -> float:
        """Rows that a site counts as: the least of all sites, where a row moves A most; or T̄."""
        T = [member.T for member in roster.values()]
        return sum(T) / len(T) if self.by_rows else min(T)

    def _drawn(self, roster: Roster) -> Array:
        """T (A, b) and noise, in steps; T is what a site counts as, or its own where rows do.

        A row's part in either is at most that in the sum over its own site's rows.
        """
        z = entropy_normals(self.terms.draws)
        T = len(self.rows[1]) if self.by_rows else self.counted(roster)
        return steps(self.terms.exact(*self.rows), T, self._noise(len(roster)), z)

    def _kept(self) -> tuple[_ShareHeader, Array]:
        """From the disk; a new key where there is none, or where rows or terms have changed."""
        spent: list[tuple[float, float]] = []
        if self.path.exists():
            kept, whole = _load_share(self.path)
            if kept.still(self.path, self.terms, self.rows, self.again or not kept.roster):
                return kept, whole
            spent = kept.spent
        salt = new_salt()
        made = made_from(salt, self.terms, self.rows)
        kept = _ShareHeader(spent, salt, made, secrets.token_bytes(32), "")
        write_file(self.path, pack(KIND, kept, {}), secret=True)
        return kept, np.empty(0)


def _load_share(path: Path) -> tuple[_ShareHeader, Array]:
    """What was kept: the whole numbers are empty before a sum; or `FileError`."""
    try:
        kept, arrays = unpack(read_file(path), KIND, _ShareHeader)
        _ = kept.budgets
        whole = arrays.pop("whole", np.empty(0, np.int64))
        if whole.dtype.str != "<i8" or whole.ndim != 1 or arrays:
            raise ValueError("expected whole numbers and nothing else")
        if bool(kept.roster) != bool(len(whole)) or (kept.roster and not kept.spent):
            raise ValueError("numbers without a sum, or a sum without them")
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except ValueError as error:
        raise FileError(f"{path}: the share does not fit together: {error}; {AGAIN}") from error
    return kept, whole.astype(np.float64)


def _said(name: str, member: Member) -> bytes:
    return b"coke secure sum\n" + msgspec.msgpack.encode((name, *member))


def _digest(roster: Roster, colluding: int, *, by_rows: bool) -> str:
    what = (sorted(roster.items()), colluding, *(["rows"] if by_rows else []))
    said = msgspec.msgpack.encode(what)
    return hashlib.blake2b(said, digest_size=16).hexdigest()


def _public(secret: bytes) -> bytes:
    own = _x25519().X25519PrivateKey.from_private_bytes(secret)
    return bytes(own.public_key().public_bytes_raw())


def _secrets(secret: bytes, me: str, roster: Roster, which: str) -> dict[str, bytes]:
    """What this site has in common with each other one, and with nobody else; for one sum."""
    curve = _x25519()
    own = curve.X25519PrivateKey.from_private_bytes(secret)
    found = {}
    for name, member in roster.items():
        if name != me:
            try:
                common = own.exchange(curve.X25519PublicKey.from_public_bytes(member.key))
            except ValueError as error:
                raise MessageError(f"{name}'s key is of no use: {error}") from error
            found[name] = common + which.encode()
    return found


def _x25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError as error:
        raise ConfigError(
            f"secure_sum needs keys: pip install 'coke-learn[agent]' ({error})"
        ) from error
    return x25519
