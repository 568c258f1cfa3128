"""Identities of agents that run: enrolled, renewed, revoked, and names that are taken out."""

from __future__ import annotations

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from coke.cli.identity import app
from coke.field.revoking import LIST
from kit.field import Field, made_rows

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

pytest.importorskip("cryptography", reason="agents need the extra coke-learn[agent]")


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout


def enrol(field: Field, name: str, keeper: Path, days: int) -> None:
    """The site asks, the keeper signs, the site accepts: only a request and certificates travel."""
    own, post = field.folder / "sites" / name / "identity", field.folder / "post"
    post.mkdir(exist_ok=True)
    told = run("request", name, "--network", "test", "--folder", own)
    mark = told.split("SHA-256 of the key ")[1].split()[0]
    shutil.copy(own / f"{name}.csr", post)
    run("sign", post / f"{name}.csr", "--key", mark, "--days", days, "--folder", keeper)
    shutil.copy(keeper / f"{name}.crt", post)
    shutil.copy(keeper / "ca.crt", post)
    run("accept", name, post / f"{name}.crt", post / "ca.crt", "--folder", own)


def events(field: Field, name: str, kind: str) -> dict[str, str]:
    """Of that kind, by whom they are about."""
    lines = [event for line in field.log(name) for event in line.get("events", ())]
    return {event["who"]: event["why"] for event in lines if event["kind"] == kind}


def test_sites_are_enrolled_train_and_are_renewed_without_a_round_lost(tmp_path: Path) -> None:
    """No key leaves its site; the bits are the simulation's, and no link was ever down."""
    field = Field(
        tmp_path, made_rows(100), 2, 1, algorithm="coke", rounds=10**6, patience=100.0, tol=0
    )
    keeper = tmp_path / "keeper"
    run("init", "--network", "test", "--folder", keeper)
    for name in field.names:
        shutil.rmtree(tmp_path / "sites" / name / "identity")
        enrol(field, name, keeper, 20)
    try:
        field.start()
        field.until(lambda: min(map(field.rounds, field.names)) >= 10)
        for name in field.names:
            enrol(field, name, keeper, 90)
        field.until(lambda: all(events(field, name, "renewed") for name in field.names))
        logs = {name: field.log(name) for name in field.names}
        for name in field.names:
            field.kill(name, signal.SIGTERM)
    finally:
        field.end()
    for i, name in enumerate(field.names):
        left = field.node(name)
        assert_array_equal(left.theta[0], field.twin(left.k)[-1].state.theta[i])
        assert "ends in 20.0 days" in str(logs[name]), "it was warned of"
        assert not [line for line in logs[name] if "down" in str(line.get("events"))]
        keys = {path for path in tmp_path.rglob("*") if path.is_file() and is_key(path)}
        own = tmp_path / "sites" / name / "identity" / f"{name}.key"
        assert own in keys
        secret = own.read_bytes()
        assert [path for path in keys if path.read_bytes() == secret] == [own]


def is_key(path: Path) -> bool:
    return b"PRIVATE KEY" in path.read_bytes()


def revoked(field: Field, name: str, other: str) -> bool:
    return "revoked" in events(field, name, "refused").get(other, "")


def test_who_is_revoked_or_taken_out_while_all_run_loses_its_links(tmp_path: Path) -> None:
    """The list is given to one site, and goes from neighbour to neighbour."""
    field = Field(tmp_path, made_rows(120), 3, 3, algorithm="coke", rounds=10**6, tol=0)
    a, b, c = field.names
    authority = tmp_path / "authority"
    try:
        field.start()
        field.until(lambda: min(map(field.rounds, field.names)) >= 3)
        run("revoke", c, "--folder", authority)
        run("take", authority / LIST, "--folder", tmp_path / "sites" / a / "identity")
        for name in (a, b):
            field.until(partial(revoked, field, name, c))
        field.until(lambda: {a, b} <= events(field, c, "refused").keys())
        file = tmp_path / "sites" / a / "site.toml"
        before = file.read_text()
        lines = before.splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith(f"{b} = ")))
        assert file.read_text() != before
        field.until(lambda: b in events(field, a, "forgotten"))
        field.until(lambda: "no neighbour" in events(field, b, "refused").get(a, ""))
    finally:
        field.end()
