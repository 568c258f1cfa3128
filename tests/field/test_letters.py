"""Letters and the files of a state folder: what was written is read; anything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from coke.errors import ConfigError, FileError, MessageError
from coke.field.agreeing import Agreeing, Heard
from coke.field.frames import (
    DONE,
    DONE_AGAIN,
    DONE_SHORT,
    LETTER,
    MOST,
    PARTED,
    SETTINGS,
    Ask,
    Check,
    Hello,
    Letter,
    Parted,
    Said,
    Totals,
    Want,
    decode_letter,
    encode,
)
from coke.field.node import Node
from coke.field.phases import _differing
from coke.field.state import image, restored
from coke.field.store import Store
from coke.talk.conversation import Turn
from kit.events import name, whitened
from kit.forging import DEEP, VALUES, forged, forgeries, parts_of

S = TypeVar("S")

TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)
WHICH = st.integers(0, MOST - 1)
FINITE = hnp.arrays(np.float64, st.integers(0, 9), elements=st.floats(-1e300, 1e300))
LETTERS = (
    st.builds(Hello, TEXTS, st.booleans())
    | st.builds(Said, WHICH, st.binary(max_size=40))
    | st.builds(Ask, WHICH)
    | st.builds(Want)
    | st.builds(Totals, st.lists(st.binary(max_size=20), max_size=4).map(tuple))
    | st.just(Parted())
    | st.builds(Check, st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), FINITE, st.booleans())
)
KINDS = st.integers(LETTER - 1, PARTED + 1).map(lambda kind: bytes([kind]))


@given(LETTERS)
def test_letters_come_back_as_they_were_sent(letter: Letter) -> None:
    """And none begins as a word of training does."""
    data = encode(letter)
    assert data[0] >= LETTER > DONE | DONE_AGAIN | DONE_SHORT
    again = decode_letter(data)
    if isinstance(letter, Check) and isinstance(again, Check):
        assert_array_equal(again.g, letter.g)
        letter, again = letter._replace(g=np.empty(0)), again._replace(g=np.empty(0))
        assert (letter.epoch, letter.step, letter.had) == (again.epoch, again.step, again.had)
        return
    assert again == letter


@st.composite
def altered(draw: Any) -> bytes:
    """A letter with a piece cut out, put in or replaced."""
    data = encode(draw(LETTERS))
    a, b = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
    return data[:a] + draw(st.binary(max_size=4)) + data[b:]


ANY = st.binary(max_size=60) | st.builds(bytes.__add__, KINDS, st.binary(max_size=60)) | altered()


@given(ANY)
def test_any_bytes_are_a_letter_or_refused(data: bytes) -> None:
    """What is read can be written again, and says the same."""
    try:
        letter = decode_letter(data)
    except MessageError:
        return
    assert encode(decode_letter(encode(letter))) == encode(letter)
    if isinstance(letter, Check):
        assert np.isfinite(letter.g).all()


def test_extremes_are_refused() -> None:
    nan = np.array([0.0, np.nan])
    for data in (
        b"",
        bytes([LETTER]) + DEEP.encode(),
        bytes([LETTER]) + b'{"a": "' + b"x" * SETTINGS + b'"}',
        encode(Check(0, 0, nan, had=False)),
        encode(Check(0, 0, np.array([np.inf]), had=True)),
        encode(Ask(MOST)),
        encode(Said(MOST, b"")),
        encode(Want()) + b"x",
    ):
        with pytest.raises(MessageError):
            decode_letter(data)


def test_differences_are_named_from_both_ends() -> None:
    ours, theirs = {"lambda": "1", "same": "x"}, {"lambda": "2", "same": "x", "more": "y"}
    assert _differing(ours, ours) == ""
    said = _differing(ours, theirs)
    assert "lambda is 1 here and 2 there" in said
    assert "more is not set here and y there" in said
    assert "same" not in said


# The conversation.


def _talk() -> Any:
    heard = yield Turn({"b": b"mine"}, ["b"])
    heard = yield Turn({"b": heard["b"] + b"!"}, ["b"])
    return heard["b"]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"x", b"y"])), max_size=8))
def test_messages_count_once_in_order_and_never_change(said: list[tuple[int, bytes]]) -> None:
    """Once it is done one more is kept, for what may follow; none of it is on disk yet."""
    talking = Agreeing(_talk(), ["b"], {})
    assert talking.letters(talking.go_on()) == [("b", Said(0, b"mine"))]
    known: list[bytes] = []
    for which, message in said:
        if which < len(known) and known[which] != message:
            with pytest.raises(MessageError if talking.done else ConfigError):
                talking.hear("b", Said(which, message))
            continue
        new = talking.hear("b", Said(which, message))
        assert new == (which == len(known) < 3)
        known += [message] if new else []
        talking.letters(talking.go_on())
    assert talking.heard["b"] == known
    assert talking.used["b"] == known[:2]
    assert talking.done == (len(known) >= 2)
    assert talking.result == (known[1] if talking.done else None)
    assert talking.answer(Ask(0), "b") == Said(0, b"mine")


def test_who_was_no_part_of_the_agreement_is_refused() -> None:
    talking = Agreeing(_talk(), ["b"], {})
    talking.letters(talking.go_on())
    with pytest.raises(MessageError, match="no part"):
        talking.hear("c", Said(0, b"x"))
    assert talking.answer(Ask(0), "c") is None


# The files of a state folder.

MESSAGES = st.dictionaries(st.text(max_size=4), st.lists(st.binary(max_size=9), max_size=3))
TOTALS = st.none() | st.lists(st.binary(max_size=9), max_size=3)
HEARD = st.builds(Heard, st.just("a"), st.just("run"), TEXTS, MESSAGES, TOTALS)
FRESH = Heard("a", "run", {"k": "1"}, {}, None)
SMALL = whitened(3, 4, 3)
SETUP = SMALL.setup(0)
NODE = Node(SETUP, SETUP.ends([name(1), name(2)]), SETUP.start()).round().node


def _kept(heard: Heard) -> bytes:
    with TemporaryDirectory() as folder:
        heard.keep(Store(Path(folder)))
        return (Path(folder) / "agreement.coke").read_bytes()


def read(what: Callable[[], S]) -> S | FileError:
    """What was read, or the refusal."""
    try:
        return what()
    except FileError as error:
        return error


WHOLE = _kept(Heard("a", "run", {"k": "1"}, {"b": [b"x", b""]}, [b"t"]))


@given(HEARD)
def test_what_was_heard_is_read_back(heard: Heard) -> None:
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        assert FRESH.before(store) == FRESH
        heard.keep(store)
        assert FRESH.before(store) == heard


@st.composite
def agreements(draw: Any) -> bytes:
    """A good agreement in which one thing is replaced by anything."""
    header, _ = parts_of(WHOLE)
    where = draw(st.sampled_from([header, header["meta"]]))
    where[draw(st.sampled_from([*where, "more"]))] = draw(VALUES | MESSAGES.map(repr))
    return forged(header)


@given(st.binary(max_size=80) | agreements())
def test_any_agreement_is_read_or_refused_by_name(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "agreement.coke"
        path.write_bytes(data)
        found = read(lambda: FRESH.before(Store(Path(folder))))
        if isinstance(found, FileError):
            assert folder in str(found)
            return
        assert (found.site, found.run) == (FRESH.site, FRESH.run)


@given(st.binary(max_size=80) | forgeries(image(NODE)))
def test_any_state_is_read_or_refused_by_name(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.keep_image(data)
        store.close()
        found = read(lambda: store.image(lambda whole: restored(whole, NODE.setup)))
        if isinstance(found, FileError):
            assert "site-0.coke and site-1.coke" in str(found)
            return
        assert found is not None
        assert store.begun
        assert restored(image(found), NODE.setup).k == found.k


@given(
    st.lists(st.integers(0, 5) | st.none(), max_size=6), st.integers(0, 6), st.binary(max_size=9)
)
def test_history_is_the_growing_rounds_up_to_the_state(
    numbers: list[int | None], upto: int, rest: bytes
) -> None:
    """Whatever a crash left behind; and what is read stays so."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for k in numbers:
            store.append({"round": k, "loss": np.float64(0.5)})
        with (Path(folder) / "history.jsonl").open("ab") as file:
            file.write(rest)
        found = store.rounds(upto)
        rounds = [line["round"] for line in found]  # a kill between state and history leaves a gap
        assert rounds == numbers[: len(rounds)]
        assert all(0 < k <= upto for k in rounds)
        assert rounds == sorted(set(rounds))
        if len(rounds) < len(numbers):  # the next one does not grow, or is beyond the state
            after = numbers[len(rounds)]
            assert after is None or not max(rounds, default=0) < after <= upto
        assert store.rounds(upto) == found
        with pytest.raises(FileError, match="missing"):
            store.image(bytes)
