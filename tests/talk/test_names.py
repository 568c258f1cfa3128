"""Sites may be called anything; their ids are safe, and as different as their names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coke.errors import InputError
from coke.talk.names import by_id, site_id, site_name

ASCII = st.text(st.sampled_from("aAbBzZ019.-_ /\\:ö*"), min_size=1, max_size=12)
NAMES = ASCII | st.text(min_size=1, max_size=80) | st.sampled_from(["ca", "con", "nul.x", "a" * 63])
ODD = {"Köln", "Ko\u0308ln", "KÖLN", "koln", "Bonn/Ost", "bonn-ost", "Bonn Ost", "../x", "x"}


def readable(name: str) -> bool:
    try:
        return bool(site_name(name))
    except InputError:
        return False


def test_names_that_look_alike_have_ids_of_their_own() -> None:
    assert len({i.lower() for i in map(site_id, ODD)}) == len(ODD)
    assert site_id("Köln").startswith("koln-")
    assert site_id("aachen.klinik-2") == "aachen.klinik-2"


@given(st.sets(NAMES.filter(readable), min_size=2, max_size=6))
def test_distinct_names_have_distinct_ids(names: set[str]) -> None:
    """Also beside the names that others' ids would be, and where A is not told from a."""
    every = names | set(map(site_id, names))
    assert len({site_id(name).lower() for name in every}) == len(every)
    assert by_id(every) == {site_id(name): name for name in every}


@given(NAMES.filter(readable))
def test_an_id_is_a_file_name_a_dns_name_and_a_key_on_every_system(name: str) -> None:
    found = site_id(name)
    assert 1 <= len(found) <= 63
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", found)
    assert ".." not in found
    assert found != "ca"
    assert found.split(".")[0] not in {"con", "prn", "aux", "nul", "com1", "lpt9"}


@given(st.text(max_size=300))
def test_any_text_is_a_name_or_refused_with_the_reason(text: str) -> None:
    """What is refused is named in characters that can be printed."""
    if readable(text):
        assert by_id([site_name(text)]) == {site_id(text): text}
        return
    with pytest.raises(InputError, match=r"expected .*; rename it") as refused:
        site_id(text)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "name", ["", "  ", "a\nb", "\x1b[2J", "a\x00", "x" * 10_000, "\u202egnp", "\ud800", "\u2028"]
)
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"expected .*; rename it"):
        site_id(name)


def test_two_names_of_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coke.talk.names.site_id", lambda name: "same")
    with pytest.raises(InputError, match="'a' and 'b' have one id"):
        by_id(["a", "b"])
