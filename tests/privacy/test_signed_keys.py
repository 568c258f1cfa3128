"""Keys of a secure sum that go through others' hands: signed, or somebody could put in his own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from test_secure_sum import NAMES, share

from coke.errors import MessageError
from coke.field.identity import found, issue
from coke.field.vouching import vouching
from coke.privacy.secure_sum import _decode_roster, _decode_signed, secure_sum
from coke.privacy.share import SignedMember, Signing, _public
from coke.settings.declaration import SiteTable
from coke.talk.conversation import Talk, together
from coke.talk.place import Place
from coke.talk.sums import swept
from kit.problems import placed

NOW = datetime.now(UTC)
EVIL = b"\x01" * 32  # a relay's own secret
NET = placed(nx.path_graph(len(NAMES)), NAMES)
RELAY = next(n for n in NAMES if NET[n].parent is not None and NET[n].children)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all sites in one folder; a real site has its own alone."""
    folder = tmp_path_factory.mktemp("identities")
    found(folder, "clinics", NOW)
    for name in NAMES:
        issue(folder, name, NOW)
    return folder


def signing(folder: Path, name: str, run: int = 1) -> Signing:
    made = vouching(SiteTable(name, "clinics", {"x": ""}, identity=str(folder), run=run))
    assert made is not None
    return made


Roster = dict[str, Any]
Change = Callable[[Roster], Roster]


def meddled(own: Talk[Any], place: Place, change: Change) -> Talk[Any]:
    """The same conversation, but on either side others are told false keys of those beyond."""
    turn, below = next(own), Roster()
    while True:
        tell = dict(turn.tell)
        for name, message in tell.items():
            with suppress(MessageError):  # words under masks, which stay
                roster = decoded(message)
                if name == place.parent:
                    below = {n: one for n, one in roster.items() if n != place.name}
                    tell[name] = msgspec.msgpack.encode(roster | change(below))
                else:
                    above = {n: one for n, one in roster.items() if n not in {*below, place.name}}
                    tell[name] = msgspec.msgpack.encode(roster | change(above) | below)
        try:
            turn = own.send((yield turn._replace(tell=tell)))
        except StopIteration as stop:
            return stop.value


def decoded(message: bytes) -> Roster:
    try:
        return dict(_decode_signed(message))
    except MessageError:
        return dict(_decode_roster(message))


def summed(
    folder: Path, identities: Path | None, change: Change | None = None, run: int = 1
) -> list[Any]:
    """In a chain; whoever is in the middle, between the root and a leaf, may meddle."""
    talks = {}
    for i, name in enumerate(NAMES):
        how = None if identities is None else signing(identities, name, run)
        own = share(folder, i, signing=how)
        talks[name] = secure_sum(partial(swept, NET[name], []), len(NAMES), own)
        if change is not None and name == RELAY:
            talks[name] = meddled(talks[name], NET[name], change)
    results, _ = together(talks)
    return [results[name] for name in NAMES]


def between(change: Callable[[Any], Any]) -> Change:
    """All that others say is passed on in another form."""
    return lambda roster: {name: change(one) for name, one in roster.items()}


SWAPPED = between(lambda one: one._replace(key=_public(EVIL)))


def test_without_identities_nobody_notices_a_key_that_a_relay_has_put_in(tmp_path: Path) -> None:
    """It then shares the masks on either side of it: what the signatures are for."""
    assert len(summed(tmp_path, None, SWAPPED)) == len(NAMES)


def test_signed_keys_give_the_same_sum_and_are_signed_once(
    tmp_path: Path, identities: Path
) -> None:
    (tmp_path / "plain").mkdir()
    first = summed(tmp_path / "plain", identities)
    files = {path.name: path.read_bytes() for path in (tmp_path / "plain").glob("*.coke")}
    again = summed(tmp_path / "plain", identities)  # as after a crash: nothing is said anew
    assert {path.name: path.read_bytes() for path in (tmp_path / "plain").glob("*.coke")} == files
    for (release, everyone), (other, _) in zip(first, again, strict=True):
        assert_array_equal(release.found.A, other.found.A)
        assert_array_equal(release.found.A, first[0][0].found.A)
        assert len(NAMES) == everyone.N
    # The same shares without signatures: the sum does not depend on them.
    for release, _ in summed(tmp_path / "plain", None):
        assert_array_equal(release.found.A, first[0][0].found.A)


def with_own_name(identities: Path) -> Change:
    """The relay signs in others' names."""

    def change(roster: dict[str, Any]) -> dict[str, Any]:
        own, key = signing(identities, RELAY), _public(EVIL)
        said = {
            n: b"coke secure sum\n" + msgspec.msgpack.encode((n, key, m.T))
            for n, m in roster.items()
        }
        return {n: SignedMember(key, m.T, own.sign(said[n])) for n, m in roster.items()}

    return change


@pytest.mark.parametrize("lie", ["key", "rows", "other signature", "own name", "none"])
def test_with_them_whatever_a_relay_changes_is_noticed(
    tmp_path: Path, identities: Path, lie: str
) -> None:
    change = {
        "key": SWAPPED,
        "rows": between(lambda one: one._replace(T=one.T + 1)),
        "other signature": between(lambda one: one._replace(signed=one.signed[:-1] + b"\x00")),
        "own name": with_own_name(identities),
        "none": between(lambda one: one._replace(signed=b"")),
    }[lie]
    with pytest.raises(MessageError, match="has not signed it"):
        summed(tmp_path, identities, change)


def test_what_was_signed_for_another_run_or_by_another_authority_is_refused(
    tmp_path: Path, identities: Path
) -> None:
    member = share(tmp_path, 0).signed(signing(identities, "a", run=1))
    own = share(tmp_path, 1)
    assert own.believed(signing(identities, "b", run=1), {"a": member})
    with pytest.raises(MessageError, match="has not signed it"):
        own.believed(signing(identities, "b", run=2), {"a": member})
    foreign = tmp_path / "foreign"
    found(foreign, "clinics", NOW)
    issue(foreign, "b", NOW)
    with pytest.raises(MessageError, match="has not signed it"):
        own.believed(signing(foreign, "b"), {"a": member})
    later = share(tmp_path, 0).signed(signing(identities, "a", run=2))  # with the same key
    assert later.key == member.key
    assert own.believed(signing(identities, "b", run=2), {"a": later})


@given(data=st.binary(max_size=300), cut=st.integers(0, 1200))
def test_any_bytes_are_the_signature_or_refused(identities: Path, data: bytes, cut: int) -> None:
    own, said = signing(identities, "a"), b"said"
    whole = own.sign(said)
    signing(identities, "b").check("a", said, whole)
    for text in (data, whole[:cut] + data + whole[cut + len(data) :]):
        if text != whole:
            try:
                signing(identities, "b").check("a", said, text)
            except MessageError:
                continue
            assert text[-80:] == whole[-80:]  # blanks around the certificate's text, perhaps
