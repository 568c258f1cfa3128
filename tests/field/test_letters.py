"""Letters and the files of a state folder: what was written is read; anything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from coke.data.files import pack
from coke.errors import ConfigError, FileError, MessageError
from coke.field.agreeing import EARLY, Agreeing
from coke.field.frames import (
    CLOSING,
    DONE,
    DONE_AGAIN,
    DONE_SHORT,
    LETTER,
    MOST,
    PROVEN,
    SETTINGS,
    Ask,
    Check,
    Hello,
    Letter,
    Parted,
    Proven,
    Said,
    Totals,
    Want,
    decode_letter,
    encode,
)
from coke.field.heard import KIND, Heard, Letters
from coke.field.journal import Journal
from coke.field.node import Node
from coke.field.phases import _differing
from coke.field.state import image, restored
from coke.field.store import Store
from coke.talk.conversation import Turn
from kit.events import name, whitened
from kit.forging import DEEP, VALUES, forged, forgeries, parts_of

S = TypeVar("S")

TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)
WHICH = st.integers(0, MOST - 1) | st.integers(CLOSING, CLOSING + MOST - 1)
FINITE = hnp.arrays(np.float64, st.integers(0, 9), elements=st.floats(-1e300, 1e300))
LETTERS = (
    st.builds(Hello, TEXTS, st.booleans())
    | st.builds(Said, WHICH, st.binary(max_size=40))
    | st.builds(Ask, WHICH)
    | st.builds(Want)
    | st.builds(Totals, st.lists(st.binary(max_size=20), max_size=4).map(tuple))
    | st.just(Parted())
    | st.builds(Proven, st.binary(min_size=4, max_size=4), st.binary(min_size=12, max_size=12))
    | st.builds(Check, st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), FINITE, st.booleans())
)
KINDS = st.integers(LETTER - 1, PROVEN + 1).map(lambda kind: bytes([kind]))


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
        encode(Said(CLOSING + MOST, b"")),
        encode(Proven(b"mark", b"proof of twelve"[:12]))[:-1],
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


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"x", b"y"])), max_size=8),
    st.sampled_from([0, CLOSING]),
)
def test_messages_count_once_in_order_and_never_change(
    said: list[tuple[int, bytes]], first: int
) -> None:
    """What has made sense is to be kept once, and what came early has yet to."""
    talking = Agreeing(_talk(), ["b"], {}, first)
    assert talking.letters(talking.go_on()) == [("b", Said(first, b"mine"))]
    known: list[bytes] = []
    kept: Letters = []
    for which, message in said:
        if which < len(known) and known[which] != message:
            with pytest.raises(MessageError if talking.done else ConfigError):
                talking.hear("b", Said(first + which, message))
            continue
        new = talking.hear("b", Said(first + which, message))
        assert new == (which == len(known))
        known += [message] if new else []
        talking.letters(talking.go_on())
        kept += talking.fresh()
    assert talking.heard["b"] == known
    assert kept == [("b", Said(first + i, message)) for i, message in enumerate(known[:2])]
    assert talking.done == (len(known) >= 2)
    assert talking.result == (known[1] if talking.done else None)
    assert talking.answer(Ask(first), "b") == Said(first, b"mine")


def test_a_neighbour_that_is_ahead_takes_little_memory() -> None:
    """Only so many messages are kept before they are of use; the others come when asked for."""

    def waits_for_another() -> Any:
        for _ in range(2 * EARLY):
            yield Turn({}, ["b", "c"])

    talking = Agreeing(waits_for_another(), ["b", "c"], {})
    talking.go_on()
    assert [talking.hear("b", Said(i, b"x")) for i in range(9)] == [True] * EARLY + [False]
    assert talking.asks() == [("c", Ask(0))]
    assert talking.hear("c", Said(0, b"y"))
    talking.go_on()
    assert talking.hear("b", Said(EARLY, b"x"))
    assert not talking.hear("b", Said(EARLY + 1, b"x"))


def test_what_came_early_is_not_kept_before_it_has_made_sense() -> None:
    """It may never: a site that is started again must not go on from it."""

    def hears_another_first() -> Any:
        for other in "ccb":
            yield Turn({}, [other])

    talking = Agreeing(hears_another_first(), ["b", "c"], {})
    talking.go_on()
    assert talking.hear("b", Said(0, b"early"))
    assert talking.hear("c", Said(0, b"first"))
    talking.go_on()
    assert talking.fresh() == [("c", Said(0, b"first"))]
    assert talking.hear("c", Said(1, b"second"))
    talking.go_on()
    assert talking.fresh() == [("b", Said(0, b"early")), ("c", Said(1, b"second"))]


def test_a_message_can_stand_in_for_what_came_early() -> None:
    """It is the neighbour's next, whatever else of its was waiting; and is kept as such."""
    talking = Agreeing(_talk(), ["b"], {})
    for i in range(3):
        talking.hear("b", Said(i, b"early"))
    talking.instead("b", b"x")
    talking.hear("b", Said(1, b"y"))
    talking.go_on()
    assert talking.result == b"y"
    assert talking.fresh() == [("b", Said(0, b"x")), ("b", Said(1, b"y"))]


def test_who_was_no_part_of_the_agreement_is_refused() -> None:
    talking = Agreeing(_talk(), ["b"], {})
    talking.letters(talking.go_on())
    with pytest.raises(MessageError, match="no part"):
        talking.hear("c", Said(0, b"x"))
    assert talking.answer(Ask(0), "c") is None


# The files of a state folder.

NEIGHBOURS = ["b", "c"]
TOTALS = st.none() | st.lists(st.binary(max_size=9), max_size=3)
HEARD = st.builds(Heard, st.just("a"), st.just("run"), TEXTS, st.just(NEIGHBOURS), TOTALS)
FRESH = Heard("a", "run", {"k": "1"}, [], None)
SAYS = st.lists(
    st.tuples(st.sampled_from(NEIGHBOURS), st.sampled_from([0, CLOSING]), st.binary(max_size=9)),
    max_size=6,
)
SMALL = whitened(3, 4, 3)
SETUP = SMALL.setup(0)
NODE = Node(SETUP, SETUP.ends([name(1), name(2)]), SETUP.start()).round().node


def _numbered(said: list[tuple[str, int, bytes]]) -> tuple[Letters, dict[int, Any]]:
    """Messages in an order, and what each conversation comes to by neighbour."""
    letters: Letters = []
    found: dict[int, Any] = {first: {name: [] for name in NEIGHBOURS} for first in (0, CLOSING)}
    for who, first, message in said:
        letters.append((who, Said(first + len(found[first][who]), message)))
        found[first][who].append(message)
    return letters, found


def read(what: Callable[[], S]) -> S | FileError:
    """What was read, or the refusal."""
    try:
        return what()
    except FileError as error:
        return error


def _written(folder: str, heard: Heard, letters: Letters) -> bytes:
    journal = Journal(Path(folder) / "agreement.coke")
    journal.path.unlink(missing_ok=True)
    heard.keep(journal, [])
    for letter in letters:
        heard.keep(journal, [letter])
    journal.close()
    return journal.path.read_bytes()


@given(HEARD, SAYS)
def test_what_was_heard_is_read_back(heard: Heard, said: list[tuple[str, int, bytes]]) -> None:
    letters, found = _numbered(said)
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        assert FRESH.before(store) == (FRESH, {}, {})
        _written(folder, heard, letters)
        assert FRESH.before(store) == (heard, found[0], found[CLOSING])


@given(SAYS, st.data())
def test_a_crash_in_the_middle_of_a_message_costs_that_alone(
    said: list[tuple[str, int, bytes]], data: Any
) -> None:
    """Wherever the file ends, and whatever the last part became; then it goes on from there."""
    letters, _ = _numbered(said)
    with TemporaryDirectory() as folder:
        ends = [len(_written(folder, _neighbours(), letters[:i])) for i in range(len(letters) + 1)]
        whole = _written(folder, _neighbours(), letters)
        end = data.draw(st.integers(ends[0], ends[-1]))
        left = sum(one <= end for one in ends[1:])
        (Path(folder) / "agreement.coke").write_bytes(whole[:end])
        store = Store(Path(folder))
        _, *found = FRESH.before(store)
        _, wanted = _numbered(said[:left])
        assert found == [wanted[0], wanted[CLOSING]]
        _neighbours().keep(store.heard, letters[left:])
        store.close()
        _, *found = FRESH.before(store)
        _, wanted = _numbered(said)
        assert found == [wanted[0], wanted[CLOSING]]


def _neighbours() -> Heard:
    return Heard("a", "run", {"k": "1"}, NEIGHBOURS, None)


@st.composite
def agreements(draw: Any) -> bytes:
    """A good agreement in which one thing is replaced by anything."""
    with TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "agreement.coke")
        header, _ = parts_of(pack(KIND, _neighbours(), {}))
        where = draw(st.sampled_from([header, header["meta"]]))
        where[draw(st.sampled_from([*where, "more"]))] = draw(VALUES)
        journal.begin(forged(header) if draw(st.booleans()) else pack(KIND, _neighbours(), {}))
        journal.add(draw(st.binary(max_size=20) | BLOCKS))
        journal.close()
        return journal.path.read_bytes()


BLOCKS = st.lists(
    st.tuples(st.text(max_size=2), st.tuples(st.integers(-1, 2**16), st.binary(max_size=5)))
).map(msgspec.msgpack.encode)


@given(st.binary(max_size=80) | agreements())
def test_any_agreement_is_read_or_refused_by_name(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "agreement.coke"
        path.write_bytes(data)
        found = read(lambda: FRESH.before(Store(Path(folder))))
        if isinstance(found, FileError):
            assert folder in str(found)
            return
        assert (found[0].site, found[0].run) == (FRESH.site, FRESH.run)
        assert all(isinstance(m, bytes) for one in found[1:] for said in one.values() for m in said)


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
