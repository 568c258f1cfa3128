"""A site's identity without a key that travels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from coke.cli.identity import app
from coke.errors import FileError
from coke.field.enrolling import SiteRequest, accept, ask_for, sign
from coke.field.identity import found, issue, load, read_credential

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "Köln/Süd"


@pytest.fixture
def keeper(tmp_path: Path) -> Path:
    found(tmp_path / "keeper", "clinics", NOW)
    return tmp_path / "keeper"


@pytest.fixture
def asked(tmp_path: Path) -> SiteRequest:
    return ask_for(tmp_path / "site", NAME, "clinics", NOW)


def test_a_site_is_enrolled_and_its_key_stays(keeper: Path, asked: SiteRequest) -> None:
    site = asked.path.parent
    made = sign(keeper, asked.path, asked.fingerprint, NOW)
    own = accept(site, NAME, made.path, keeper / "ca.crt", NOW)
    assert own == load(site, NAME, NOW)
    secret = own.key.read_bytes()
    assert own.key.stat().st_mode & 0o777 == 0o600
    assert not [path for path in keeper.iterdir() if path.read_bytes() == secret]
    assert [path.name for path in keeper.glob("*.key")] == ["ca.key"]
    assert not [path for path in site.iterdir() if path.is_dir()]  # nothing is left of the trial


def test_a_renewed_request_is_for_the_same_key(keeper: Path, asked: SiteRequest) -> None:
    site, later = asked.path.parent, NOW + timedelta(days=60)
    for now in (NOW, later):
        again = ask_for(site, NAME, "clinics", now)
        made = sign(keeper, again.path, again.fingerprint, now)
        accept(site, NAME, made.path, keeper / "ca.crt", now)
        assert again.fingerprint == asked.fingerprint
    assert load(site, NAME, later).ends > NOW + timedelta(days=100)


def test_another_key_is_signed_only_if_the_keeper_says_so(
    keeper: Path, asked: SiteRequest, tmp_path: Path
) -> None:
    """For one who asks in another's name."""
    sign(keeper, asked.path, asked.fingerprint, NOW)
    thief = ask_for(tmp_path / "thief", NAME, "clinics", NOW)
    with pytest.raises(FileError, match="another key: find out who asks"):
        sign(keeper, thief.path, thief.fingerprint, NOW)
    sign(keeper, thief.path, thief.fingerprint, NOW, replace=True)


def test_a_key_that_was_not_told_is_not_signed(keeper: Path, asked: SiteRequest) -> None:
    with pytest.raises(FileError, match="a request for another key"):
        sign(keeper, asked.path, "0" * 64, NOW)
    assert [path.name for path in keeper.glob("*.crt")] == ["ca.crt"]


def test_a_request_for_another_network_is_refused(keeper: Path, tmp_path: Path) -> None:
    other = ask_for(tmp_path / "other", NAME, "banks", NOW)
    with pytest.raises(FileError, match="expected 'clinics'"):
        sign(keeper, other.path, other.fingerprint, NOW)


def test_what_does_not_fit_is_not_accepted_and_changes_nothing(
    keeper: Path, asked: SiteRequest, tmp_path: Path
) -> None:
    site, ca = asked.path.parent, keeper / "ca.crt"
    foreign = found(tmp_path / "foreign", "clinics", NOW)
    sign(tmp_path / "foreign", asked.path, asked.fingerprint, NOW)
    good = sign(keeper, asked.path, asked.fingerprint, NOW).path
    of_another = issue(keeper, "bonn", NOW).path
    its_own = issue(tmp_path / "foreign", NAME, NOW, replace=True).path  # not for the key here
    before = sorted(path.name for path in site.iterdir())
    for certificate, authority in (
        (good, foreign.path), (of_another, ca), (its_own, foreign.path), (ca, ca), (good, good),
    ):  # fmt: skip
        with pytest.raises(FileError):
            accept(site, NAME, certificate, authority, NOW)
        assert sorted(path.name for path in site.iterdir()) == before
    with pytest.raises(FileError, match="valid from"):
        accept(site, NAME, good, ca, NOW + timedelta(days=400))
    accept(site, NAME, good, ca, NOW)
    with pytest.raises(FileError, match="another authority"):
        accept(site, NAME, good, foreign.path, NOW)


@pytest.fixture(scope="module")
def aachen(tmp_path_factory: pytest.TempPathFactory) -> tuple[SiteRequest, bytes]:
    folder = tmp_path_factory.mktemp("any")
    found(folder, "clinics", NOW)
    asked = ask_for(folder, "aachen", "clinics", NOW)
    return asked, asked.path.read_bytes()


@given(data=st.binary(max_size=400), cut=st.integers(0, 400))
def test_any_bytes_are_a_request_or_refused(
    aachen: tuple[SiteRequest, bytes], data: bytes, cut: int
) -> None:
    """Garbage, and a request of which a part is garbage."""
    asked, whole = aachen
    for text in (data, whole[:cut] + data + whole[cut + len(data) :]):
        asked.path.write_bytes(text)
        try:
            made = sign(asked.path.parent, asked.path, asked.fingerprint, NOW)
        except FileError:
            continue
        assert (made.name, made.key) == ("aachen", asked.key)  # what was signed is what was asked


def test_the_commands(tmp_path: Path) -> None:
    run = CliRunner().invoke
    keeper, site = str(tmp_path / "keeper"), str(tmp_path / "site")
    assert run(app, ["init", "--network", "clinics", "--folder", keeper]).exit_code == 0
    told = run(app, ["request", "aachen", "--network", "clinics", "--folder", site])
    assert "The key stays here" in told.stdout
    mark = told.stdout.split("SHA-256 of the key ")[1].split()[0]
    asked = f"{site}/aachen.csr"
    assert run(app, ["sign", asked, "--key", mark, "--folder", keeper]).exit_code == 0
    files = [f"{keeper}/aachen.crt", f"{keeper}/ca.crt"]
    done = run(app, ["accept", "aachen", *files, "--folder", site])
    assert read_credential(Path(files[1])).fingerprint in done.stdout
    assert run(app, ["verify", "aachen", "--folder", site]).exit_code == 0
