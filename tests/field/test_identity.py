"""Certificates: what TLS accepts and refuses, and that nothing odd is ever loaded."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coke.errors import FileError, InputError
from coke.field import identity
from coke.field.identity import found, issue, load, renew
from kit.clinics import DAY, NOW, POSIX, SECOND, move, network

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

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


def test_an_identity_is_the_sites_own_files(clinics: Path) -> None:
    own = load(clinics, "a", NOW)
    assert own == ("a", clinics / "ca.crt", clinics / "a.crt", clinics / "a.key", NOW + 90 * DAY)
    (clinics / "ca.key").unlink()  # a site has never seen it
    assert load(clinics, "a", NOW) == own


def test_a_certificate_holds_from_its_first_second_to_its_last(clinics: Path) -> None:
    begins, ends = NOW - identity.SKEW, NOW + 90 * DAY
    for now in (begins, ends):
        load(clinics, "a", now)
    for now in (begins - SECOND, ends + SECOND, NOW + 3651 * DAY):
        with pytest.raises(FileError, match=r"valid from 2030-01-01 11:55 to .*renew it"):
            load(clinics, "a", now)
    with pytest.raises(InputError, match="without a zone"):
        load(clinics, "a", NOW.replace(tzinfo=None))


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
    clinics: Path, source: str, target: str, refused: str
) -> None:
    move(clinics.parent / source, clinics.parent / target)
    with pytest.raises(FileError, match=refused):
        load(clinics, "a", NOW)


@pytest.mark.parametrize("name", ["ca.crt", "a.crt", "a.key"])
def test_lost_and_damaged_files_are_refused(clinics: Path, name: str) -> None:
    whole = (clinics / name).read_bytes()
    for part in (b"", whole[:-40], whole[:100] + whole[101:], whole.replace(b"M", b"N", 1)):
        (clinics / name).write_bytes(part)
        with pytest.raises(FileError, match=name):
            load(clinics, "a", NOW)
    (clinics / name).unlink()
    with pytest.raises(FileError, match=f"{name}: .*cannot be read"):
        load(clinics, "a", NOW)


def test_a_second_authority_in_the_file_is_refused(clinics: Path, foreign: Path) -> None:
    with (clinics / "ca.crt").open("ab") as file:
        file.write((foreign / "ca.crt").read_bytes())
    with pytest.raises(FileError, match="expected one PEM"):
        load(clinics, "a", NOW)


@POSIX
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_that_others_can_reach_is_refused(clinics: Path, mode: int) -> None:
    (clinics / "a.key").chmod(mode)
    with pytest.raises(FileError, match=f"mode {mode:04o}.*expected 0600.*chmod"):
        load(clinics, "a", NOW)
    (clinics / "ca.key").chmod(mode)
    with pytest.raises(FileError, match=r"ca.key: mode"):
        issue(clinics, "c", NOW)


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
def test_the_authoritys_signature_alone_is_not_enough(clinics: Path, odd: Any) -> None:
    """Signed with the right key, but for more than one site's TLS."""
    resign(clinics, "a")
    assert load(clinics, "a", NOW)
    resign(clinics, "a", odd)
    for use in (load, renew):
        with pytest.raises(FileError, match="for something else"):
            use(clinics, "a", NOW)


def test_an_authority_that_has_run_out_or_has_an_odd_name_is_refused(clinics: Path) -> None:
    resign(clinics, "a")
    with pytest.raises(FileError, match=r"ca\.crt: valid from"):
        load(clinics, "a", NOW + 3651 * DAY)
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x" * 65, _validate=False),
            x509.NameAttribute(NameOID.COMMON_NAME, "ca"),
        ]
    )
    resign(clinics, "ca", issuer_name=name, subject_name=name)
    with pytest.raises(FileError, match=r"ca\.crt: network 'xxx"):
        load(clinics, "a", NOW)


def test_keys_of_another_kind_or_with_a_password_are_refused(
    clinics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, locked = serialization.NoEncryption(), serialization.BestAvailableEncryption(b"x")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    own = ec.generate_private_key(ec.SECP256R1())
    other = rsa.generate_private_key(65537, 1024)
    for data in (own.private_bytes(*form, locked), other.private_bytes(*form, plain)):
        (clinics / "a.key").write_bytes(data)
        with pytest.raises(FileError, match=r"a\.key: "):
            load(clinics, "a", NOW)
    monkeypatch.setattr(ec, "SECP256R1", ec.SECP384R1)
    found(tmp_path / "other", "clinics", NOW)
    monkeypatch.undo()
    with pytest.raises(FileError, match="another kind of key"):
        issue(tmp_path / "other", "a", NOW)
