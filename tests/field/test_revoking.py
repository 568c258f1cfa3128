"""Keys that are not to be believed any more."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from coke.cli.identity import app
from coke.errors import CokeError, FileError, InputError
from coke.field.identity import Credential, found, issue, read_credential
from coke.field.keys import key_digest
from coke.field.revoking import LIST, parse_list, read_list, revoke, take_list
from coke.settings.declaration import SiteTable

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def keeper(tmp_path: Path) -> Path:
    folder = tmp_path / "keeper"
    found(folder, "clinics", NOW)
    for name in ("aachen", "bonn"):
        issue(folder, name, NOW)
    return folder


def test_a_list_grows_by_one_key_and_one_number(keeper: Path) -> None:
    keys = {
        name: key_digest(read_credential(keeper / f"{name}.crt").key) for name in ("aachen", "bonn")
    }
    assert revoke(keeper, "aachen", NOW).keys == {keys["aachen"]}
    second = revoke(keeper, keys["bonn"], NOW)  # by its key alone: the certificate may be lost
    assert (second.number, second.keys) == (2, frozenset(keys.values()))
    assert read_list(keeper / LIST, read_credential(keeper / "ca.crt")) == second
    with pytest.raises(InputError, match="revoked already"):
        revoke(keeper, "aachen", NOW)
    with pytest.raises(CokeError):
        revoke(keeper, "nobody", NOW)


def test_a_list_of_another_authority_or_an_older_one_is_not_taken(
    keeper: Path, tmp_path: Path
) -> None:
    found(tmp_path / "foreign", "clinics", NOW)
    issue(tmp_path / "foreign", "aachen", NOW)
    revoke(tmp_path / "foreign", "aachen", NOW)
    site, old = tmp_path / "site", tmp_path / "old"
    site.mkdir()
    (site / "ca.crt").write_bytes((keeper / "ca.crt").read_bytes())
    with pytest.raises(FileError, match="another has signed it"):
        take_list(site, tmp_path / "foreign" / LIST, NOW)
    assert not (site / LIST).exists()
    revoke(keeper, "aachen", NOW)
    old.write_bytes((keeper / LIST).read_bytes())
    revoke(keeper, "bonn", NOW)
    assert take_list(site, keeper / LIST, NOW).number == 2
    with pytest.raises(FileError, match="older"):
        take_list(site, old, NOW)
    assert (site / LIST).read_bytes() == (keeper / LIST).read_bytes()


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Credential, bytes]:
    folder = tmp_path_factory.mktemp("any")
    ca = found(folder, "clinics", NOW)
    issue(folder, "aachen", NOW)
    revoke(folder, "aachen", NOW)
    return ca, (folder / LIST).read_bytes()


@given(data=st.binary(max_size=200), cut=st.integers(0, 400))
def test_any_bytes_are_the_list_or_refused(
    signed: tuple[Credential, bytes], data: bytes, cut: int
) -> None:
    """Garbage, and a list of which a part is garbage: never another list."""
    ca, whole = signed
    for text in (data, whole[:cut] + data + whole[cut + len(data) :]):
        try:
            assert parse_list(text, ca, "x") == parse_list(whole, ca, "x")
        except FileError:
            continue


def test_the_commands_and_what_an_agent_refuses(tmp_path: Path) -> None:
    run = CliRunner().invoke
    keeper, site = str(tmp_path / "keeper"), tmp_path / "site"
    site.mkdir()
    run(app, ["init", "--network", "clinics", "--folder", keeper])
    run(app, ["issue", "aachen", "--folder", keeper])
    for name in ("ca.crt", "aachen.crt", "aachen.key"):
        (site / name).write_bytes((tmp_path / "keeper" / name).read_bytes())
        (site / name).chmod(0o600)
    assert run(app, ["verify", "aachen", "--folder", str(site)]).exit_code == 0
    told = run(app, ["revoke", "aachen", "--folder", keeper])
    assert "list 1, 1 revoked" in told.stdout
    taken = run(app, ["take", f"{keeper}/{LIST}", "--folder", str(site)])
    assert "aachen, since" in taken.stdout
    refused = run(app, ["verify", "aachen", "--folder", str(site)])
    assert isinstance(refused.exception, FileError)
    assert "revoked" in run(app, ["show", "--folder", keeper]).stdout
    from coke.field.carriers.tls import opener

    table = SiteTable(
        "aachen", "clinics", {"b": ""}, listen=["tls/127.0.0.1:1"], identity=str(site)
    )
    with pytest.raises(FileError, match="its key is revoked"):
        opener(table)
