"""What only its owner may read or draw: files of mode 0600, one draw of two runs, honest sums."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from test_attacks import rows

from coke.data.files import locked
from coke.errors import MessageError
from coke.privacy import release as private
from coke.privacy.noise import Budget
from coke.privacy.private import Private
from coke.privacy.release import Conditions, private_statistics
from coke.privacy.share import Share
from coke.talk.place import Place
from coke.talk.sums import swept
from kit.problems import Array
from kit.releases import DELTA, features_of

TERMS = Conditions(features_of(), 1.0, Budget(1.0, DELTA))


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_secrets_are_their_owner_s_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private_statistics(tmp_path / "release.coke", TERMS, *rows(0, 100))
        share = Share(tmp_path / "share.coke", "a", TERMS, rows(0, 100), 1, again=False)
        members = {"a": share.member, "b": share.member._replace(key=bytes(range(1, 33)))}
        assert share.path.stat().st_mode & 0o777 == 0o600
        share.words(members)
    finally:
        os.umask(before)
    for path in (tmp_path / "release.coke", share.path):
        assert path.stat().st_mode & 0o777 == 0o600


def test_two_runs_that_share_a_release_draw_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they meet, both have the same numbers: two draws would cost the budget twice."""
    path, draws, found = tmp_path / "release.coke", list[int](), list[private.Release]()
    plain, both = private.entropy_normals, threading.Barrier(2)

    def drawn(n: int) -> Array:
        draws.append(n)
        return plain(n)

    def run() -> None:
        both.wait()
        found.append(private_statistics(path, TERMS, *rows(0, 100)))

    monkeypatch.setattr(private, "entropy_normals", drawn)
    runs = [threading.Thread(target=run) for _ in range(2)]
    with locked(path):  # until both have come this far
        for one in runs:
            one.start()
    for one in runs:
        one.join()
    assert len(draws) == 1
    np.testing.assert_array_equal(found[0].found.A, found[1].found.A)


@pytest.mark.parametrize("said", [0.0, -1.0, 1e300, 1e-9, 2.5])
def test_sums_of_row_counts_that_cannot_be_are_refused(tmp_path: Path, said: float) -> None:
    """own ≤ Σ 1/T² ≤ N: a neighbour's 0, −1 or 1e300 would divide by zero, or spoil λ."""
    X, y = rows(0, 100)
    place = Place("a", None, "b", (), 1)  # type: ignore[arg-type]
    dp = Private(Budget(1.0, DELTA), tmp_path)
    talk = dp.agree(partial(swept, place, []), 2, "a", features_of(), X, y)
    turn = next(talk)
    assert turn.tell["b"] == np.array([1e-4]).tobytes()
    with pytest.raises(MessageError, match="Σ 1/T²"):
        talk.send({"b": np.array([said]).tobytes()})
