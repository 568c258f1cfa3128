"""Messages of a stream have the same numbers at both ends, whatever becomes of either."""

from __future__ import annotations

from coke.field.numbered import Numbered
from coke.field.pulses import TickSaid, TickWaits


def passed(sender: Numbered, receiver: Numbered, message: bytes) -> bytes | None:
    """From one end to the other, where it is used, if it came."""
    ((_, said),) = sender.tell([("b", message)])
    receiver.hear("a", said)
    found = receiver.came("a")
    if found is not None:
        receiver.used("a")
    return found


def test_an_edge_goes_on_within_a_tick_that_both_ends_have_talked_in() -> None:
    """As at the end of a stream, where no tick comes any more."""
    tick = [7]
    a, b = Numbered(lambda: tick[0]), Numbered(lambda: tick[0])
    assert passed(a, b, b"notices") == b"notices"
    a.anew("b")
    b.anew("a")
    assert passed(a, b, b"the end") == b"the end"
    assert passed(a, b, b"and the sum") == b"and the sum"


def test_whoever_starts_again_within_a_tick_takes_no_message_twice() -> None:
    """And goes on with the numbers where it was; what it said can still be asked for."""
    a, b = Numbered(lambda: 7), Numbered(lambda: 7)
    assert passed(a, b, b"notices") == b"notices"
    again, other = Numbered(lambda: 7), Numbered(lambda: 7)
    again.remember(a.kept())
    other.remember(b.kept())
    assert again.answer("b", TickWaits(7, 0)) == TickSaid(7, 0, b"notices")
    assert other.expected("a") == (7, 1)
    assert passed(again, other, b"the end") == b"the end"


def test_old_messages_go() -> None:
    tick = [0]
    a = Numbered(lambda: tick[0])
    for tick[0] in range(9):
        a.tell([("b", b"here")])
    assert sorted(a.sent["b"]) == [(7, 0), (8, 0)]
