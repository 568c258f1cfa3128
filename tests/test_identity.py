"""Certificates: what TLS accepts and refuses, and that nothing odd is ever loaded."""

from __future__ import annotations

import base64
import json
import os
import ssl
import stat
import string
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from coke.agents import identity
from coke.agents.identity import found, issue, load, renew, site_name
from coke.cli import main
from coke.errors import FileError, InputError

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
POSIX = pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")


def network(folder: Path, *sites: str, now: datetime = NOW) -> Path:
    found(folder, "clinics", now)
    for name in sites:
        issue(folder, name, now)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return network(tmp_path / "own", "a", "b")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Another network of the same name, with sites of the same names."""
    return network(tmp_path / "foreign", "a", "b")


def move(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


# What TLS says


def handshake(server: Path, client: Path, name: str, own: str = "b", other: str = "a") -> str:
    """Mutual TLS between two sites without a socket; who the server then talks to."""
    sides: list[tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]] = []
    for folder, me, purpose in (
        (server, other, ssl.PROTOCOL_TLS_SERVER),
        (client, own, ssl.PROTOCOL_TLS_CLIENT),
    ):
        context = ssl.SSLContext(purpose)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(folder / "ca.crt")
        context.load_cert_chain(folder / f"{me}.crt", folder / f"{me}.key")
        inbox, outbox, at_server = ssl.MemoryBIO(), ssl.MemoryBIO(), len(sides) == 0
        host = None if at_server else name
        side = context.wrap_bio(inbox, outbox, server_side=at_server, server_hostname=host)
        sides.append((side, inbox, outbox))
    (one, to_one, from_one), (two, to_two, from_two) = sides
    for _ in range(4):
        for side in (two, one):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
            to_one.write(from_two.read())
            to_two.write(from_one.read())
    subject: Any = one.getpeercert()
    return dict(part[0] for part in subject["subject"])["commonName"]


def test_sites_of_a_network_shake_hands_and_nobody_else(tmp_path: Path) -> None:
    """TLS needs the machine's clock: these networks are made in the present."""
    now = datetime.now(UTC)
    own, foreign = network(tmp_path / "1", "a", "b", now=now), network(tmp_path / "2", "b", now=now)
    old = network(tmp_path / "3", "a", "b", now=now - 91 * DAY)
    issue(old, "c", now)
    assert handshake(own, own, "a") == "b"
    assert handshake(old, old, "c", own="c", other="c") == "c"
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        handshake(own, own, "b")
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(own, foreign, "a")
    with pytest.raises(ssl.SSLError, match="has expired"):
        handshake(old, old, "c", own="b", other="c")
    with pytest.raises(ssl.SSLError, match="has expired"):
        handshake(old, old, "a", own="c", other="a")


# What we load


def test_an_identity_is_the_sites_own_files(folder: Path) -> None:
    own = load(folder, "a", NOW)
    assert own == ("a", folder / "ca.crt", folder / "a.crt", folder / "a.key", NOW + 90 * DAY)
    (folder / "ca.key").unlink()  # a site has never seen it
    assert load(folder, "a", NOW) == own


def test_a_certificate_holds_from_its_first_second_to_its_last(folder: Path) -> None:
    begins, ends = NOW - identity.SKEW, NOW + 90 * DAY
    for now in (begins, ends):
        load(folder, "a", now)
    for now in (begins - SECOND, ends + SECOND, NOW + 3651 * DAY):
        with pytest.raises(FileError, match=r"valid from 2030-01-01 11:55 to .*renew it"):
            load(folder, "a", now)
    with pytest.raises(InputError, match="without a zone"):
        load(folder, "a", NOW.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("source", "target", "refused"),
    [
        ("foreign/ca.crt", "own/ca.crt", "a.crt: a foreign certificate"),
        ("foreign/a.crt", "own/a.crt", "a.crt: a foreign certificate"),
        ("foreign/a.key", "own/a.key", "a.key: not the key of"),
        ("own/b.key", "own/a.key", "a.key: not the key of"),
        ("own/b.crt", "own/a.crt", "a certificate of 'b': expected 'a'"),
        ("own/ca.crt", "own/a.crt", "a certificate of 'ca': expected 'a'"),
        ("own/b.crt", "own/ca.crt", "ca.crt: a foreign certificate"),
        ("own/a.key", "own/a.crt", "a.crt: .*expected one PEM certificate"),
        ("own/a.crt", "own/a.key", "a.key: .*expected a PEM private key"),
    ],
)
@pytest.mark.usefixtures("foreign")
def test_files_that_do_not_belong_together_are_refused(
    folder: Path, source: str, target: str, refused: str
) -> None:
    move(folder.parent / source, folder.parent / target)
    with pytest.raises(FileError, match=refused):
        load(folder, "a", NOW)


@pytest.mark.parametrize("name", ["ca.crt", "a.crt", "a.key"])
def test_lost_and_damaged_files_are_refused(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for part in (b"", whole[:-40], whole[:100] + whole[101:], whole.replace(b"M", b"N", 1)):
        (folder / name).write_bytes(part)
        with pytest.raises(FileError, match=name):
            load(folder, "a", NOW)
    (folder / name).unlink()
    with pytest.raises(FileError, match=f"{name}: .*cannot be read"):
        load(folder, "a", NOW)


def test_a_second_authority_in_the_file_is_refused(folder: Path, foreign: Path) -> None:
    with (folder / "ca.crt").open("ab") as file:
        file.write((foreign / "ca.crt").read_bytes())
    with pytest.raises(FileError, match="expected one PEM"):
        load(folder, "a", NOW)


@POSIX
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_that_others_can_reach_is_refused(folder: Path, mode: int) -> None:
    (folder / "a.key").chmod(mode)
    with pytest.raises(FileError, match=f"mode {mode:04o}.*expected 0600.*chmod"):
        load(folder, "a", NOW)
    (folder / "ca.key").chmod(mode)
    with pytest.raises(FileError, match=r"ca.key: mode"):
        issue(folder, "c", NOW)


WIDER = {
    "another name": x509.SubjectAlternativeName([x509.DNSName("a"), x509.DNSName("b")]),
    "any name": x509.SubjectAlternativeName([x509.DNSName("*")]),
    "an authority": x509.BasicConstraints(ca=True, path_length=None),
    "signing code": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]),
}


def resign(folder: Path, name: str, odd: Any = None, **changes: Any) -> None:
    """A certificate once more, with the authority's key, but not as we would."""
    path = folder / f"{name}.crt"
    old = x509.load_pem_x509_certificate(path.read_bytes())
    key: Any = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    parts: dict[str, Any] = {
        "issuer_name": old.issuer,
        "subject_name": old.subject,
        "serial_number": 1,
    }
    window = {"not_valid_before": NOW, "not_valid_after": NOW + 9000 * DAY}
    draft = x509.CertificateBuilder(**parts | window | changes).public_key(old.public_key())
    for extension in old.extensions:
        value = odd if odd and extension.oid == odd.oid else extension.value
        draft = draft.add_extension(value, extension.critical)
    path.write_bytes(draft.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize("odd", WIDER.values(), ids=WIDER)
def test_the_authoritys_signature_alone_is_not_enough(folder: Path, odd: Any) -> None:
    """Signed with the right key, but for more than one site's TLS."""
    resign(folder, "a")
    assert load(folder, "a", NOW)
    resign(folder, "a", odd)
    for use in (load, renew):
        with pytest.raises(FileError, match="for something else"):
            use(folder, "a", NOW)


def test_an_authority_that_has_run_out_or_has_an_odd_name_is_refused(folder: Path) -> None:
    resign(folder, "a")
    with pytest.raises(FileError, match=r"ca\.crt: valid from"):
        load(folder, "a", NOW + 3651 * DAY)
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x" * 65, _validate=False),
            x509.NameAttribute(NameOID.COMMON_NAME, "ca"),
        ]
    )
    resign(folder, "ca", issuer_name=name, subject_name=name)
    with pytest.raises(FileError, match=r"ca\.crt: name 'xxx"):
        load(folder, "a", NOW)


def test_keys_of_another_kind_or_with_a_password_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, locked = serialization.NoEncryption(), serialization.BestAvailableEncryption(b"x")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    own = ec.generate_private_key(ec.SECP256R1())
    other = rsa.generate_private_key(65537, 1024)
    for data in (own.private_bytes(*form, locked), other.private_bytes(*form, plain)):
        (folder / "a.key").write_bytes(data)
        with pytest.raises(FileError, match=r"a\.key: "):
            load(folder, "a", NOW)
    monkeypatch.setattr(ec, "SECP256R1", ec.SECP384R1)
    found(tmp_path / "other", "clinics", NOW)
    monkeypatch.undo()
    with pytest.raises(FileError, match="another kind of key"):
        issue(tmp_path / "other", "a", NOW)


# What we make


@POSIX
def test_keys_are_private_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for one who opened every new file at once, before anything was written to it."""
    opened: list[BinaryIO] = []
    close = os.close

    def spy(handle: int) -> None:
        close(handle)
        opened.extend(path.open("rb") for path in tmp_path.glob(".*.key.*"))

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "close", spy)
        network(tmp_path, "a")
    finally:
        os.umask(before)
    monkeypatch.undo()
    assert len(opened) >= 2
    for file in opened:
        assert file.read() == b""
        file.close()
    for name in ("ca.key", "a.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.crt", "a.key", "ca.crt", "ca.key"]


@pytest.mark.parametrize("lost", ["a.key", "a.crt", "nothing"])
def test_nothing_is_issued_twice_unless_asked(folder: Path, lost: str) -> None:
    (folder / lost).unlink(missing_ok=True)
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    for name in ("a", "A"):
        with pytest.raises(FileError, match=r"is there already.*--renew.*--replace"):
            issue(folder, name, NOW)
    with pytest.raises(FileError, match="is there already"):
        issue(folder, "A", NOW, replace=True)
    with pytest.raises(FileError, match=r"ca\.\w+: is there already"):
        found(folder, "clinics", NOW)
    assert {path: path.read_bytes() for path in folder.iterdir()} == kept
    issue(folder, "a", NOW, replace=True)
    assert load(folder, "a", NOW)
    assert (folder / "a.key").read_bytes() not in kept.values()


def test_of_two_who_issue_at_once_one_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_check_free", lambda *_: None)  # neither saw the other
    kept = (folder / "a.key").read_bytes()
    with pytest.raises(FileError, match="exists"):
        issue(folder, "a", NOW)
    assert (folder / "a.key").read_bytes() == kept
    assert load(folder, "a", NOW)


def test_issuing_needs_the_authoritys_own_key(folder: Path, foreign: Path) -> None:
    move(foreign / "ca.key", folder / "ca.key")
    with pytest.raises(FileError, match=r"ca.key: not the key of"):
        issue(folder, "c", NOW)
    (folder / "ca.key").unlink()
    for make in (issue, renew):
        with pytest.raises(FileError, match=r"ca.key: the key cannot be read.*identity init"):
            make(folder, "a", NOW)
    assert not (folder / "c.key").exists()


def test_a_renewed_certificate_is_for_the_same_key(folder: Path, foreign: Path) -> None:
    key, later = (folder / "a.key").read_bytes(), NOW + 200 * DAY
    (folder / "a.key").unlink()  # it has gone to the site
    assert renew(folder, "a", later, days=30).ends == later + 30 * DAY
    (folder / "a.key").touch(0o600)
    (folder / "a.key").write_bytes(key)
    assert load(folder, "a", later).ends == later + 30 * DAY
    move(foreign / "a.crt", folder / "a.crt")
    with pytest.raises(FileError, match="foreign"):
        renew(folder, "a", NOW)
    with pytest.raises(FileError, match="cannot be read"):
        renew(folder, "nobody", NOW)


def test_no_certificate_outlives_its_authority(folder: Path) -> None:
    ends = NOW + 3650 * DAY
    assert issue(folder, "c", ends - DAY).ends == ends
    assert renew(folder, "a", ends - DAY).ends == ends
    with pytest.raises(FileError, match=r"ca.crt: valid from"):
        issue(folder, "d", ends + SECOND)
    for days in (0, -1, 367, 10**9):
        with pytest.raises(InputError, match="expected 1 to 366"):
            issue(folder, "e", NOW, days=days)
    assert not (folder / "e.key").exists()


# Names and bytes

LETTERS = string.ascii_letters + string.digits
NAMES = st.text(st.sampled_from(LETTERS + ".-"), max_size=65) | st.text(max_size=5)


def is_dns_name(name: str) -> bool:
    parts = name.split(".")
    ends = all(part and part[0] in LETTERS and part[-1] in LETTERS for part in parts)
    return ends and len(name) <= 63 and set(name) <= set(LETTERS + ".-")


@given(NAMES | st.sampled_from(["", ".", "..", "a/b", "a\n", "ä", "*", "a_b", "ca", "Ca", "-a"]))
@example("a" * 63)
@example("a" * 64)
def test_a_name_is_a_dns_name_or_refused(name: str) -> None:
    if is_dns_name(name) and name.lower() != "ca":
        assert site_name(name) == name
    else:
        with pytest.raises(InputError, match="expected 1 to 63"):
            site_name(name)


@given(st.lists(st.text(LETTERS, min_size=1, max_size=15), min_size=1, max_size=4))
def test_every_name_makes_an_identity_in_its_folder(parts: list[str]) -> None:
    name = ".".join(["x", *parts])[:63].rstrip(".")
    with TemporaryDirectory() as place:
        own = load(network(Path(place), name), name, NOW)
        assert {path.stem for path in Path(place).iterdir()} == {"ca", name}
        assert own.certificate == Path(place) / f"{name}.crt"


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


# The command


def coke(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["coke", "identity", *args])
    with pytest.raises(SystemExit) as end:
        main()
    return int(str(end.value.code))


def test_the_command_makes_shows_and_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*args: str, code: int = 0) -> Any:
        assert coke(monkeypatch, *args, "--json") == code
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
    assert said("issue", "a/b", code=2)["kind"] == "InputError"
    Path("identity/x.crt").write_bytes(b"")
    rows = said("show")["certificates"]
    assert [row["name"] for row in rows] == ["ca", "a", "x"]
    assert [bool(row["refused"]) for row in rows] == [False, False, True]
    assert rows[0]["fingerprint"] == ca["fingerprint"]
    assert said("show", "--folder", "nowhere", code=2)["kind"] == "FileError"
    assert coke(monkeypatch, "show") == 0
    shown = capsys.readouterr().out
    assert "a of clinics, to 20" in shown
    assert ca["fingerprint"] in shown
    assert coke(monkeypatch, "verify", "a") == 0
    assert "a: valid for 99 days" in capsys.readouterr().out


def test_without_the_extra_coke_works_and_says_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['cryptography'] = None; from coke.cli import main"
    for args in (["init"], ["verify", "a"], ["issue", "a"]):
        command = [sys.executable, "-c", f"{hidden}; main()", "identity", *args]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 2
        assert "pip install 'coke[agent]'" in run.stderr
    assert not list(tmp_path.iterdir())
