"""Frames: read as they were written, in one spelling only; all other bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.errors import MessageError
from coke.field.frames import TOP, Done, Frame, Standing, Word, decode, encode
from coke.maths.ledger import HEADER
from kit.pair import RAW, D

EPOCHS, QUIETS = st.integers(0, TOP), st.integers(-(2**15) + 1, 2**15 - 1)
WORDS = st.builds(
    Word,
    EPOCHS,
    st.integers(0, 2**32 - 1),
    st.binary(min_size=4, max_size=4),
    QUIETS,
    st.binary(max_size=2 + 8 * D),
    st.booleans(),
    st.booleans(),
).map(lambda word: word._replace(short=word.short and word.quiet < 0))
STANDINGS = st.builds(Standing, EPOCHS, st.booleans())
DONES = st.builds(Done, EPOCHS, st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
FRAMES = WORDS | STANDINGS | DONES


@given(FRAMES)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    """decode(encode(f)) = f; a word takes 13 bytes and its payload, CTL 3 and DONE 7."""
    data = encode(frame)
    assert decode(data, D) == frame
    assert type(decode(data, D)) is type(frame)
    brief = 7 if isinstance(frame, Done) else 3
    assert len(data) == (HEADER + len(frame.payload) if isinstance(frame, Word) else brief)


@settings(max_examples=400)
@given(RAW | st.builds(lambda f, at, b: _altered(encode(f), at, b), FRAMES, *[st.integers(0)] * 2))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    """And what is read would be written the same: no two spellings of one frame."""
    try:
        frame = decode(data, D)
    except MessageError:
        return
    assert encode(frame) == data


def _altered(data: bytes, at: int, byte: int) -> bytes:
    return data[: at % len(data)] + bytes([byte % 256]) + data[at % len(data) + 1 :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x10\x00",
        b"\x10\x00\x00\x00",
        b"\x40\x00\x00",
        b"\x20\x00\x00",  # DONE without a number of words
        b"\x24" + b"\x00" * 6,  # flags that nobody writes
        b"\x00" * 12,
        b"\x00" * 14,  # silence with a payload
        b"\x01" + b"\x00" * 12,  # news without one
        b"\x00" * 11 + b"\x00\x80",  # a countdown of 2¹⁵
        b"\x04" + b"\x00" * 12,  # an end without a countdown
        b"\x01" + b"\x00" * (HEADER + 2 + 8 * D),
    ],
)
def test_these_are_no_frames(data: bytes) -> None:
    with pytest.raises(MessageError, match="expected"):
        decode(data, D)
