"""Frames: read as they were written, in one spelling only; all other bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coke.errors import MessageError
from coke.field.frames import TOP, Done, Frame, Standing, Word, decode, encode, is_word
from coke.maths.ledger import HEADER
from kit.pair import RAW, D

EPOCHS = st.just(0) | st.integers(0, TOP)
QUIETS = st.integers(-130, 130) | st.integers(-(2**15) + 1, 2**15 - 1)
WORDS = st.builds(
    Word,
    EPOCHS,
    st.integers(0, 2**17) | st.integers(0, 2**32 - 1),
    st.binary(min_size=2, max_size=2),
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
    """decode(encode(f)) = f; CTL takes 3 bytes, DONE 7, a word 6 and its payload.

    With 11 for all that has no room there: later epochs, 2¹⁶ steps, counts of 2⁷.
    """
    data = encode(frame)
    assert decode(data, D) == frame
    assert type(decode(data, D)) is type(frame)
    if not isinstance(frame, Word):
        assert len(data) == (7 if isinstance(frame, Done) else 3)
        return
    far = frame.epoch > 0 or frame.step >= 2**16 or abs(frame.quiet) >= 2**7
    assert len(data) == (11 if far else 6) + len(frame.payload)
    assert is_word(data)
    assert not is_word(data[:5])


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
        b"\x00" * 5,
        b"\x00" * 7,  # silence with a payload
        b"\x01" + b"\x00" * 5,  # news without one
        b"\x00" * 5 + b"\x80",  # a countdown of 2⁷ has another header
        b"\x30" + b"\x00" * 10,  # a word that has room in the short one
        b"\x30\x01" + b"\x00" * 8,
        b"\x30\x01" + b"\x00" * 8 + b"\x80",  # a countdown of 2¹⁵
        b"\x04" + b"\x00" * 5,  # an end without a countdown
        b"\x01" + b"\x00" * (HEADER + 2 + 8 * D),
    ],
)
def test_these_are_no_frames(data: bytes) -> None:
    with pytest.raises(MessageError, match="expected"):
        decode(data, D)
