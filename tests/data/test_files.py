"""Files: written whole or not at all, packed exactly, as private as asked for."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from coke.data.files import LONGEST, atomically, pack, unpack, write_file
from coke.errors import CokeError, FileError, InputError


def test_pack_is_exact_for_its_kinds() -> None:
    arrays = {
        "f": np.array([[1.5, -0.0], [np.inf, 1e-310]]),
        "i": np.arange(5),
        "b": np.array([True, False]),
        "none": np.empty((0, 3)),
    }
    meta, again = unpack(pack("model", {"k": [1, "ü", None]}, arrays), "model", dict)
    assert meta == {"k": [1, "ü", None]}
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.tobytes()
    with pytest.raises(FileError, match="expected 'checkpoint'"):
        unpack(pack("model", {}, {}), "checkpoint", dict)
    with pytest.raises(InputError, match="shorter names"):
        pack("model", {"k": "a" * LONGEST}, {})
    with pytest.raises(InputError, match="rename"):
        pack("model", {"k": "\ud800"}, {})


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_file(path, b"old")

    def fail(part: Path) -> None:
        part.write_bytes(b"ne")
        raise OSError("disk full")

    with pytest.raises(FileError, match="disk full"):
        atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(CokeError, match="cannot be written"):
        write_file(tmp_path / "no" / "such" / "folder", b"")


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has a umask")
@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_a_file_is_as_private_as_the_umask_says(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_file(tmp_path / "f", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux what a handle is of")
def test_the_folder_is_flushed_too_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rename, and without complaint where the platform cannot."""
    flushed = []

    def fsync(handle: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{handle}").readlink())
        if flushed[-1].is_dir():
            assert (tmp_path / "f").read_bytes() == b"new"
            raise OSError("not here")

    monkeypatch.setattr(os, "fsync", fsync)
    write_file(tmp_path / "f", b"new")
    assert [path.is_dir() for path in flushed] == [False, True]
    assert flushed[1] == tmp_path.resolve()
