"""States written in turn: whatever a power cut does to a write, what was there before is read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.data.files import pack, unpack
from coke.errors import FileError
from coke.field.store import BLOCK, HEAD, Slots

SECTOR = 512
SIZES = st.lists(st.sampled_from([0, 900, 5000, 3 * BLOCK]), min_size=3, max_size=5)


def state(number: int, size: int) -> bytes:
    """Padded in front, so that two states may begin alike."""
    return pack("test", ["x" * size, number], {})


def number_of(data: bytes) -> int:
    return int(unpack(data, "test", list)[0][1])


def written(folder: Path, sizes: list[int]) -> Slots:
    slots = Slots(folder, "site")
    for number, size in enumerate(sizes):
        slots.write(state(number, size))
        assert Slots(folder, "site").read(number_of) == number
    slots.close()
    return slots


@given(SIZES, st.data())
def test_a_torn_write_leaves_the_state_before(sizes: list[int], data: st.DataObject) -> None:
    """Any sectors of the last write may be missing."""
    with TemporaryDirectory() as name:
        folder, last = Path(name), len(sizes) - 1
        slots = written(folder, sizes[:-1])
        path = slots.paths[(last + 1) % 2]
        before = path.read_bytes() if path.exists() else b""
        slots = Slots(folder, "site")
        slots.write(state(last, sizes[-1]))
        slots.close()
        after = path.read_bytes()
        sectors = range(0, len(after), SECTOR)
        kept = data.draw(st.lists(st.booleans(), min_size=len(sectors), max_size=len(sectors)))
        old = before.ljust(len(after), b"\0")
        torn = b"".join(
            (after if keep else old)[i : i + SECTOR] for i, keep in zip(sectors, kept, strict=True)
        )
        path.write_bytes(torn + old[len(after) :])
        again = Slots(folder, "site")
        found = again.read(number_of)
        end = HEAD + len(state(last, sizes[-1]))  # the rest is padding
        assert found == (last if torn[:end] == after[:end] else last - 1)
        again.write(state(last + 1, 7))
        again.close()
        assert Slots(folder, "site").read(number_of) == last + 1


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_files_are_read_or_refused_and_never_written_over_unread(a: bytes, b: bytes) -> None:
    with TemporaryDirectory() as name:
        slots = Slots(Path(name), "site")
        for path, content in zip(slots.paths, (a, b), strict=True):
            path.write_bytes(content)
        with pytest.raises(FileError, match="site-0"):
            slots.write(b"new")
        assert [path.read_bytes() for path in slots.paths] == [a, b]


def test_the_newer_of_two_wins_and_the_older_is_written_over(tmp_path: Path) -> None:
    slots = Slots(tmp_path, "site")
    assert slots.read(number_of) is None
    contents = []
    for number in range(6):
        slots.write(state(number, 10))
        contents.append([path.read_bytes() for path in slots.paths if path.exists()])
    for before, after in pairwise(contents[1:]):
        assert sum(x == y for x, y in zip(before, after, strict=True)) == 1
    slots.close()
