"""Lies about the protocol itself, told by changing the frames that a site sends."""

from __future__ import annotations

import random
from collections.abc import Callable

from coke.field.frames import Done, Standing, Word, decode, encode, is_word

Frames = tuple[bytes, ...]
Untruth = Callable[[bytes, Word | None, random.Random], Frames]
FROM = 15  # the step from which on they lie: the agreement and some rounds are behind all by then


def _forged(forge: Callable[[Word, random.Random], Word]) -> Untruth:
    def lie(frame: bytes, word: Word | None, draw: random.Random) -> Frames:
        return (frame,) if word is None else (encode(forge(word, draw)),)

    return lie


def _beside(said: Callable[[Word], Done | Standing]) -> Untruth:
    def lie(frame: bytes, word: Word | None, draw: random.Random) -> Frames:
        return (frame,) if word is None else (frame, encode(said(word)))

    return lie


def _again(frame: bytes, word: Word | None, draw: random.Random) -> Frames:
    """A word, and one like it from another step."""
    if word is None:
        return (frame,)
    return frame, encode(word._replace(step=draw.randrange(word.step + 3)))


def _mangled(frame: bytes, word: Word | None, draw: random.Random) -> Frames:
    if word is None:
        return (frame,)
    at = draw.randrange(len(frame))
    return (frame[:at] + draw.randbytes(1) + frame[at + 1 :],)


UNTRUE: dict[str, Untruth] = {
    "forged tags": _forged(lambda word, _: word._replace(tag=b"fake")),
    "a countdown of one": _forged(lambda word, _: word._replace(quiet=-1)),
    "the end of a budget": _forged(lambda word, _: word._replace(quiet=-1, short=True)),
    "sites that come and go": _forged(lambda word, _: word._replace(wide=True)),
    "never content": _forged(lambda word, _: word._replace(quiet=0)),
    "a DONE made up": _beside(lambda word: Done(word.epoch, 3)),
    "an epoch begun again": _beside(lambda word: Standing(word.epoch + 1, False)),
    "old words": _again,
    "mangled words": _mangled,
    "nothing": lambda frame, word, _: (frame,) if word is None else (),
}


class Untrue:
    """One site's frames as they leave it."""

    def __init__(self, liar: str, lie: str, seed: int):
        self._liar, self._lie, self._draw = liar, UNTRUE[lie], random.Random(f"{seed} untrue")
        self.told = 0

    def __call__(self, sender: str, receiver: str, frame: bytes) -> Frames:
        """What arrives."""
        if sender != self._liar or not is_word(frame):
            return (frame,)
        word = decode(frame, 10**4)
        if not isinstance(word, Word) or word.step < FROM:
            return (frame,)
        self.told += 1
        return self._lie(frame, word, self._draw)
