"""`coke identity`: an authority for a network, and certificates for its sites."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coke.cli import options
from coke.cli.console import print_json
from coke.errors import CokeError, ConfigError, FileError
from coke.settings.sites import LONGEST_DAYS, SITE_DAYS
from coke.talk.names import CA, site_id

if TYPE_CHECKING:
    from coke.field.identity import Credential

app = options.app(help="Certificates for a network of sites.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option(help="Where ca.crt and the certificates lie.")]
Name = Annotated[str, typer.Argument(help="The site's name, as its neighbours call it.")]
Replace = Annotated[bool, typer.Option("--replace", help="Make a new key; the old one is lost.")]
HERE = Path("identity")


@app.callback()
def _about() -> None:
    """Commands about certificates."""


@app.command()
def init(
    network: Annotated[str, typer.Option(help="The network's name.")] = "coke",
    folder: Folder = HERE,
    replace: Replace = False,
    json: options.AsJson = False,
) -> None:
    """Make a network's authority, which signs the certificates of its sites."""
    from coke.field import identity  # here, and below: help needs no NumPy

    made = identity.found(folder, network, _now(), replace=replace)
    advice = f"{made.path} goes to every site; {CA}.key stays here, safe, and nowhere else."
    _show(made, advice, json)


@app.command()
def issue(
    name: Name,
    folder: Folder = HERE,
    days: Annotated[int, typer.Option(help=f"Valid for, at most {LONGEST_DAYS}.")] = SITE_DAYS,
    renew: Annotated[
        bool, typer.Option("--renew", help="A new certificate for the same key.")
    ] = False,
    replace: Replace = False,
    json: options.AsJson = False,
) -> None:
    """Make a site's key and certificate, or renew its certificate."""
    if renew and replace:
        raise ConfigError("both --renew and --replace: expected one; --renew keeps the key")
    from coke.field import identity

    if renew:
        made = identity.renew(folder, name, _now(), days=days)
        advice = f"{made.path} goes to the site, in place of the old one."
    else:
        made = identity.issue(folder, name, _now(), days=days, replace=replace)
        pair = f"{made.path.name}, {made.path.stem}.key"
        advice = f"{pair} and {CA}.crt in {folder} go to the site, by a safe way."
    _show(made, advice, json)


@app.command()
def request(
    name: Name,
    network: Annotated[str, typer.Option(help="The network's name.")],
    folder: Folder = HERE,
    replace: Replace = False,
    json: options.AsJson = False,
) -> None:
    """At the site: make its key, which stays here, and a request for the network's keeper."""
    from coke.field import enrolling

    asked = enrolling.ask_for(folder, name, network, _now(), replace=replace)
    if json:
        print_json({"path": str(asked.path), "name": asked.name, "key": asked.fingerprint})
        return
    sys.stdout.write(
        f"{asked.path}: {asked.name} of {asked.network}\nSHA-256 of the key {asked.fingerprint}\n"
        f"{asked.path.name} goes to the network's keeper, who signs it; tell the SHA-256 by "
        "telephone. The key stays here.\n"
    )


@app.command()
def sign(
    file: Annotated[Path, typer.Argument(help="A site's request, ID.csr.")],
    key: Annotated[str, typer.Option(help="SHA-256 of the key, as the site has told it.")],
    folder: Folder = HERE,
    days: Annotated[int, typer.Option(help=f"Valid for, at most {LONGEST_DAYS}.")] = SITE_DAYS,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also for another key than the site had.")
    ] = False,
    json: options.AsJson = False,
) -> None:
    """Where ca.key is: sign a site's request."""
    from coke.field import enrolling

    made = enrolling.sign(folder, file, key, _now(), days=days, replace=replace)
    _show(made, f"{made.path.name} and {CA}.crt go to the site, which accepts them.", json)


@app.command()
def accept(
    name: Name,
    certificate: Annotated[Path, typer.Argument(help="ID.crt, as the keeper has sent it.")],
    ca: Annotated[Path, typer.Argument(help="ca.crt, as the keeper has sent it.")],
    folder: Folder = HERE,
    json: options.AsJson = False,
) -> None:
    """At the site: take over the certificate of its request, if all of it is right."""
    from coke.field import enrolling, identity

    own = enrolling.accept(folder, name, certificate, ca, _now())
    made = identity.read_credential(own.certificate)
    mark = identity.read_credential(own.ca).fingerprint
    _show(made, f"Compare the SHA-256 of {CA}.crt by telephone: {mark}", json)


@app.command()
def revoke(
    who: Annotated[str, typer.Argument(help="The site's name, or the SHA-256 of a key.")],
    folder: Folder = HERE,
    json: options.AsJson = False,
) -> None:
    """Where ca.key is: no site believes this one's key any more, once it has the new list."""
    from coke.field import revoking

    made = revoking.revoke(folder, who, _now())
    path = folder / revoking.LIST
    if json:
        print_json({"path": str(path), "number": made.number, "revoked": made.revoked})
        return
    sys.stdout.write(
        f"{path}: list {made.number}, {len(made.revoked)} revoked\n{path.name} goes to a site, "
        "which takes it with `coke identity take`; agents that run pass it on to neighbours.\n"
    )


@app.command()
def take(
    file: Annotated[Path, typer.Argument(help="ca.revoked, as the keeper has sent it.")],
    folder: Folder = HERE,
    json: options.AsJson = False,
) -> None:
    """At a site: take over a list of revoked keys; its agent, if it runs, obeys within seconds."""
    from coke.field import revoking

    taken = revoking.take_list(folder, file, _now())
    if json:
        print_json({"number": taken.number, "revoked": taken.revoked})
        return
    lines = [
        f"{one.name or one.key}, since {one.since:%Y-%m-%d %H:%M} UTC" for one in taken.revoked
    ]
    sys.stdout.write("\n".join([f"list {taken.number}:", *lines, ""]))


@app.command()
def show(folder: Folder = HERE, json: options.AsJson = False) -> None:
    """List the certificates in a folder, and why any would be refused."""
    now = _now()
    rows = [_row(folder, name, now) for name in _names(folder)]
    if json:
        print_json({"folder": str(folder), "certificates": rows})
        return
    sys.stdout.write("".join(_line(row) for row in rows))


@app.command()
def verify(
    name: Name,
    folder: Folder = HERE,
    ahead: Annotated[int, typer.Option("--for", help="Still valid in so many days.", min=0)] = 0,
    json: options.AsJson = False,
) -> None:
    """Check a site's certificate and key as its agent will; refused is exit code 2."""
    from coke.field import identity, revoking

    own = identity.load(folder, name, _now() + timedelta(days=min(ahead, 10_000)))
    revoking.check_believed(folder, site_id(name), _now())
    left = _days_left(own.ends, _now())
    if json:
        print_json({"name": name, "valid": True, "ends": own.ends, "days_left": left})
    else:
        sys.stdout.write(f"{name}: valid for {left} days, to {own.ends:%Y-%m-%d %H:%M} UTC\n")


def _now() -> datetime:
    return datetime.now(UTC)


def _days_left(ends: datetime, now: datetime) -> int:
    return (ends - now) // timedelta(days=1)


def _names(folder: Path) -> list[str]:
    """Whose certificates are in the folder, the authority's first."""
    names = sorted(path.stem for path in folder.glob("*.crt"))
    if not names:
        raise FileError(f"{folder}: no certificates here; name the folder of `coke identity init`")
    return sorted(names, key=lambda name: name != CA)


def _row(folder: Path, name: str, now: datetime) -> dict[str, Any]:
    from coke.field import identity, revoking

    row = dict.fromkeys(("network", "begins", "ends", "days_left", "fingerprint"))
    refused = ""
    try:
        row = _facts(identity.read_credential(folder / f"{name}.crt"), now)
        identity.check(folder, name, now)
        revoking.check_believed(folder, name, now)
    except CokeError as error:
        refused = str(error)
    return {**row, "name": name, "refused": refused}


def _line(row: dict[str, Any]) -> str:
    if row["fingerprint"] is None:
        return f"{row['name']}\n  refused: {row['refused']}\n"
    refused = f"  refused: {row['refused']}\n" if row["refused"] else ""
    ends = f"{row['ends']:%Y-%m-%d %H:%M} UTC, in {row['days_left']} days"
    return (
        f"{row['name']} of {row['network']}, to {ends}\n  SHA-256 {row['fingerprint']}\n{refused}"
    )


def _facts(own: Credential, now: datetime) -> dict[str, Any]:
    keys = ("name", "network", "begins", "ends", "fingerprint")
    facts = {key: getattr(own, key) for key in keys}
    return {**facts, "days_left": _days_left(own.ends, now)}


def _show(made: Credential, advice: str, as_json: bool) -> None:
    if as_json:
        print_json({**_facts(made, _now()), "path": str(made.path)})
        return
    sys.stdout.write(
        f"{made.path}: {made.name} of {made.network}, to {made.ends:%Y-%m-%d %H:%M} UTC\n"
        f"SHA-256 {made.fingerprint}\n{advice}\n"
    )
