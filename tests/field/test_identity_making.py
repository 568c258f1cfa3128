"""Making certificates: private keys, nothing twice, none beyond its authority, only real names."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import FileError, InputError
from coke.field import identity
from coke.field.identity import found, issue, load, renew
from coke.talk.names import site_id
from kit.clinics import DAY, NOW, POSIX, SECOND, move, network


@POSIX
def test_keys_are_private_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for one who opened every new file at once, before anything was written to it."""
    opened: list[BinaryIO] = []
    close = os.close

    def spy(handle: int) -> None:
        close(handle)
        opened.extend(path.open("rb") for path in tmp_path.glob(".*.key.*"))

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "close", spy)
        network(tmp_path, "a")
    finally:
        os.umask(before)
    monkeypatch.undo()
    assert len(opened) >= 2
    for file in opened:
        assert file.read() == b""
        file.close()
    for name in ("ca.key", "a.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.crt", "a.key", "ca.crt", "ca.key"]


@pytest.mark.parametrize("lost", ["a.key", "a.crt", "nothing"])
def test_nothing_is_issued_twice_unless_asked(clinics: Path, lost: str) -> None:
    (clinics / lost).unlink(missing_ok=True)
    kept = {path: path.read_bytes() for path in clinics.iterdir()}
    with pytest.raises(FileError, match=r"is there already.*--renew.*--replace"):
        issue(clinics, "a", NOW)
    with pytest.raises(FileError, match=r"ca\.\w+: is there already"):
        found(clinics, "clinics", NOW)
    assert {path: path.read_bytes() for path in clinics.iterdir()} == kept
    issue(clinics, "a", NOW, replace=True)
    assert load(clinics, "a", NOW)
    assert (clinics / "a.key").read_bytes() not in kept.values()


def test_of_two_who_issue_at_once_one_is_refused(
    clinics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_check_free", lambda *_: None)  # neither saw the other
    kept = (clinics / "a.key").read_bytes()
    with pytest.raises(FileError, match="exists"):
        issue(clinics, "a", NOW)
    assert (clinics / "a.key").read_bytes() == kept
    assert load(clinics, "a", NOW)


def test_issuing_needs_the_authoritys_own_key(clinics: Path, foreign: Path) -> None:
    move(foreign / "ca.key", clinics / "ca.key")
    with pytest.raises(FileError, match=r"ca.key: not the key of"):
        issue(clinics, "c", NOW)
    (clinics / "ca.key").unlink()
    for make in (issue, renew):
        with pytest.raises(FileError, match=r"ca.key: the key cannot be read.*identity init"):
            make(clinics, "a", NOW)
    assert not (clinics / "c.key").exists()


def test_a_renewed_certificate_is_for_the_same_key(clinics: Path, foreign: Path) -> None:
    key, later = (clinics / "a.key").read_bytes(), NOW + 200 * DAY
    (clinics / "a.key").unlink()  # it has gone to the site
    assert renew(clinics, "a", later, days=30).ends == later + 30 * DAY
    (clinics / "a.key").touch(0o600)
    (clinics / "a.key").write_bytes(key)
    assert load(clinics, "a", later).ends == later + 30 * DAY
    move(foreign / "a.crt", clinics / "a.crt")
    with pytest.raises(FileError, match="foreign"):
        renew(clinics, "a", NOW)
    with pytest.raises(FileError, match="cannot be read"):
        renew(clinics, "nobody", NOW)


def test_no_certificate_outlives_its_authority(clinics: Path) -> None:
    ends = NOW + 3650 * DAY
    assert issue(clinics, "c", ends - DAY).ends == ends
    assert renew(clinics, "a", ends - DAY).ends == ends
    with pytest.raises(FileError, match=r"ca.crt: valid from"):
        issue(clinics, "d", ends + SECOND)
    for days in (0, -1, 367, 10**9):
        with pytest.raises(InputError, match="expected 1 to 366"):
            issue(clinics, "e", NOW, days=days)
    assert not (clinics / "e.key").exists()


NAMES = st.sampled_from(["Köln", "Bonn/Ost", "../x", "A", "a b", "*", "CA", "ca"])


@given(st.sets(NAMES | st.text("aA.-/ö", min_size=1, max_size=9).filter(str.strip), max_size=3))
def test_every_name_makes_an_identity_in_its_folder(names: set[str]) -> None:
    with TemporaryDirectory() as place:
        folder = network(Path(place), *names)
        ids = {name: site_id(name) for name in names}
        assert {path.stem for path in folder.iterdir()} == {"ca", *ids.values()}
        for name, own in ids.items():
            assert load(folder, name, NOW).certificate == folder / f"{own}.crt"
            assert load(folder, name, NOW).name == name
