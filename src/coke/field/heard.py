"""What a site has heard beside words, in its journal: whose run it is, then message by message."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec
import numpy as np

from coke.data.files import pack, unpack
from coke.data.learnt import learnt
from coke.errors import FileError
from coke.field.frames import CLOSING, Said
from coke.field.journal import Journal
from coke.field.mission import Mission
from coke.field.store import Store

KIND = "agreement"
Letters = list[tuple[str, Said]]
"""To or from these neighbours."""
Messages = dict[str, list[bytes]]
"""By neighbour, in order."""


class Heard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site's journal begins with: whose run it is."""

    site: str
    run: str  # a digest of the rows and settings
    settings: dict[str, str]
    neighbours: list[str]  # of the agreement; none where the site joins later
    totals: list[bytes] | None  # what a site that joins later was told instead

    @classmethod
    def nothing(cls, mission: Mission) -> Heard:
        """Before anybody has spoken."""
        digest = hashlib.blake2b(msgspec.json.encode(mission.settings), digest_size=16)
        for part in (*mission.rows.X, *mission.rows.X_test):
            digest.update(np.ascontiguousarray(part).tobytes())
        for kind in mission.rows.kinds:
            digest.update(repr((kind.what, list(kind.levels))).encode())
        for labels in (*mission.rows.y, *mission.rows.y_test):
            digest.update(repr(labels.tolist()).encode())
        return cls(mission.name, digest.hexdigest(), mission.settings, [], None)

    def before(self, store: Store) -> tuple[Heard, Messages, Messages]:
        """What was kept of the same run, or itself where nothing was; another run's is refused.

        With the messages of the agreement, and of the last conversation.
        """
        path = store.heard.path
        if not store.heard:
            if store.traces:
                raise FileError(f"{path}: missing, but the site's state is there: restore it too")
            return self, {}, {}
        begin, *blocks = store.heard.read()
        try:
            found, _ = unpack(begin, KIND, Heard)
            said = [one for block in blocks for one in _said(block)]
            kept = [_in_order(said, found.neighbours, first) for first in (0, CLOSING)]
        except FileError as error:
            raise FileError(f"{path}: {error}") from error
        if (found.site, found.run) != (self.site, self.run):
            raise FileError(f"{store.folder}: {self._other(found)}")
        return found, kept[0], kept[1]

    def _other(self, found: Heard) -> str:
        """How another run differs from this, and what to do."""
        mine, its = self.settings.get("coke"), found.settings.get("coke")
        if mine != its:
            return (
                f"the run of {found.site!r} was begun by coke {its}, and this is {mine}: end it "
                "with the release it began with, or begin a new run (coke network retrain)"
            )
        changed = [k for k in self.settings if found.settings.get(k) != self.settings[k]]
        what = f"the settings {', '.join(changed)}" if changed else "the rows or settings"
        return (
            f"{what} of {self.site!r} have changed since the run of {found.site!r} began: restore "
            "them, or begin a new run in another folder, with another run number (coke network "
            "retrain)"
        )

    def keep(self, journal: Journal, said: Letters) -> None:
        """With these messages more, before anything that follows from them is sent."""
        if not journal:
            journal.begin(pack(KIND, self, {}))
        if said:
            journal.add(msgspec.msgpack.encode(said))


def _said(block: bytes) -> Letters:
    """Messages of one block, or FileError."""
    try:
        return msgspec.msgpack.decode(block, type=learnt(Letters))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(f"a block that holds no messages ({error}): restore it") from error


def _in_order(said: Letters, neighbours: Collection[str], first: int) -> Messages:
    """Those of the conversation whose numbers begin there, or FileError."""
    found: Messages = {name: [] for name in neighbours}
    for name, (which, message) in said:
        if (which >= CLOSING) != (first == CLOSING):
            continue
        if name not in found or which != first + len(found[name]):
            raise FileError(f"message {which} of {name!r} out of its order: restore the file")
        found[name].append(message)
    return found
