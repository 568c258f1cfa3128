"""The command that makes, shows and verifies identities; and any bytes in their files."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import example, given
from hypothesis import strategies as st

from coke.errors import FileError
from coke.field.identity import load
from coke.talk.names import site_id
from kit.clinics import NOW, network
from kit.commands import command

pytestmark = pytest.mark.processes  # it starts some, or opens sockets


def with_changes(whole: bytes, changes: list[tuple[int, int]]) -> bytes:
    """The PEM file with a few bytes of its content changed."""
    first, *lines, last = whole.decode().split("\n")[:-1]
    inside = bytearray(base64.b64decode("".join(lines)))
    for at, value in changes:
        inside[at % len(inside)] ^= value
    return f"{first}\n{base64.encodebytes(inside).decode()}{last}\n".encode()


PLACES = st.integers(0, 999), st.integers(1, 255)


@pytest.mark.parametrize("name", ["ca.crt", "a.crt", "a.key"])
@given(other=st.binary(max_size=200), changes=st.lists(st.tuples(*PLACES), max_size=1))
@example(other=b"", changes=[(15, 128)])  # a negative serial number: cryptography warns
def test_bytes_that_pass_say_the_same_and_none_crash(
    name: str, other: bytes, changes: list[tuple[int, int]]
) -> None:
    with TemporaryDirectory() as place:
        folder = network(Path(place), "a")
        whole = (folder / name).read_bytes()
        other = with_changes(whole, changes) if changes else other
        (folder / name).write_bytes(other)
        try:
            load(folder, "a", NOW)
        except FileError:
            return
        assert meaning(other) == meaning(whole)


def meaning(data: bytes) -> Any:
    """What is signed and the signature, or the secret number: DER can say it in two ways."""
    if b"PRIVATE" in data:
        key: Any = serialization.load_pem_private_key(data, None)
        return key.private_numbers()
    one = x509.load_pem_x509_certificate(data)
    return one.tbs_certificate_bytes, one.signature


def test_the_command_makes_shows_and_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*args: str, code: int = 0) -> Any:
        assert command(monkeypatch, "identity", *args, "--json") == code
        return json.loads(capsys.readouterr().out)

    ca = said("init", "--network", "clinics")
    assert (ca["network"], ca["name"], ca["path"]) == ("clinics", "ca", "identity/ca.crt")
    assert said("issue", "a")["days_left"] == 89
    assert said("verify", "a", "--for", "80") | {"ends": 0} == {
        **{"name": "a", "valid": True, "days_left": 89, "ends": 0}
    }
    assert said("verify", "a", "--for", "91", code=2)["kind"] == "FileError"
    assert said("issue", "a", "--renew", "--days", "100")["days_left"] == 99
    assert said("verify", "a", "--for", "91")["valid"]
    assert "--replace" in said("issue", "a", code=2)["error"]
    assert said("issue", "a", "--replace", "--renew", code=2)["kind"] == "ConfigError"
    assert said("issue", "a\nb", code=2)["kind"] == "InputError"
    Path("identity/x.crt").write_bytes(b"")
    rows = said("show")["certificates"]
    assert [row["name"] for row in rows] == ["ca", "a", "x"]
    assert [bool(row["refused"]) for row in rows] == [False, False, True]
    assert rows[0]["fingerprint"] == ca["fingerprint"]
    assert said("show", "--folder", "nowhere", code=2)["kind"] == "FileError"
    assert command(monkeypatch, "identity", "show") == 0
    shown = capsys.readouterr().out
    assert "a of clinics, to 20" in shown
    assert ca["fingerprint"] in shown
    assert command(monkeypatch, "identity", "verify", "a") == 0
    assert "a: valid for 99 days" in capsys.readouterr().out


def test_without_the_extra_coke_works_and_says_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['cryptography'] = None; from coke.cli.main import main"
    for args in (["init"], ["verify", "a"], ["issue", "a"]):
        command = [sys.executable, "-c", f"{hidden}; main()", "identity", *args]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 2
        assert "pip install 'coke-learn[agent]'" in run.stderr
    assert not list(tmp_path.iterdir())


def test_a_name_of_any_text_has_files_of_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for args in (["init"], ["issue", "Bonn/Ost"], ["verify", "Bonn/Ost"], ["show"]):
        assert command(monkeypatch, "identity", *args) == 0
    said = capsys.readouterr().out
    own = site_id("Bonn/Ost")
    assert f"{own}.crt, {own}.key and ca.crt in identity go to the site" in said
    assert "Bonn/Ost: valid for 89 days" in said
    assert "refused" not in said
    names = {path.name for path in (tmp_path / "identity").iterdir()}
    assert names == {"ca.crt", "ca.key", f"{own}.crt", f"{own}.key"}
