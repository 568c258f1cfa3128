"""The next run of sites on this machine: their files say so, and their rows may be new.

A run has a number, the same at all sites, and a state folder of its own. So a new run is three
lines in a site's file: `run`, `state`, and `joins`, for whoever came late is there from the start
this time. All else in the file stays as it was written, comments too.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coke.data.files import write_file
from coke.errors import ConfigError, FileError
from coke.field.lock import worker
from coke.settings.declaration import SiteSettings
from coke.settings.sites import read_site
from coke.talk.names import site_id

_LATER = re.compile(r"(.*?)(?:-(\d+))?", re.DOTALL)


class NextRun(NamedTuple):
    """Of one site."""

    path: Path  # its file
    text: str  # what it will hold
    rows: tuple[Path, Path] | None  # new ones, and where they go
    old: list[Path]  # state folders that are no longer kept


def prepare(paths: Sequence[Path], rows: Path | None = None) -> int:
    """The sites' files for the next run, with a file of new rows for each, or those they name now.

    Its number. Everything is looked at before the first file is written.
    """
    settings = [read_site(path) for path in paths]
    run = 1 + max(one.site.run for one in settings)
    plans = [
        _planned(path, one, run, rows) for path, one in zip(paths, settings, strict=True)
    ]  # fmt: skip
    for plan in plans:
        if plan.rows is not None:
            shutil.copyfile(*plan.rows)
        write_file(plan.path, plan.text.encode())
        for folder in plan.old:
            shutil.rmtree(folder, ignore_errors=True)
    return run


def _planned(path: Path, settings: SiteSettings, run: int, rows: Path | None) -> NextRun:
    site, text = settings.site, path.read_text("utf-8")
    pid = worker(Path(site.state))
    if pid is not None:
        raise FileError(
            f"{site.state}: an agent works there (process {pid}): stop it, or let it end, first"
        )
    named = tomllib.loads(text)["site"].get("state", "state")
    match = _LATER.fullmatch(named)
    base = match[1] if match else named
    change: dict[str, dict[str, Any]] = {
        "site": {"run": run, "state": f"{base}-{run}"} | ({"joins": False} if site.joins else {})
    }
    new = None if rows is None else _rows_of(site.name, rows)
    if new is not None:
        target = path.parent / f"rows-{run}{''.join(new.suffixes)}"
        change["data"] = {"file": target.name}
        return NextRun(
            path, changed(text, change), (new, target), _old(path, base, run, site.last_models)
        )
    return NextRun(path, changed(text, change), None, _old(path, base, run, site.last_models))


def _rows_of(name: str, folder: Path) -> Path:
    """The file of that site's new rows."""
    wanted = {name, site_id(name)}
    found = [p for p in sorted(folder.glob("*")) if p.is_file() and p.name.split(".")[0] in wanted]
    if len(found) != 1:
        raise ConfigError(
            f"{folder}: {len(found)} files of rows for site {name!r}: expected one, called "
            f"{site_id(name)} with any ending, such as {site_id(name)}.csv"
        )
    return found[0]


def _old(path: Path, base: str, run: int, keep: int) -> list[Path]:
    """State folders that earlier runs of this kind made, but for the last ones."""
    place = path.parent / base
    numbers = ((folder, folder.name[len(place.name) + 1 :]) for folder in
               place.parent.glob(f"{place.name}-*"))  # fmt: skip
    return [folder for folder, n in numbers if n.isdigit() and int(n) <= run - keep]


def changed(text: str, change: dict[str, dict[str, Any]]) -> str:
    """A TOML file's text with other values of some keys of its tables."""
    wanted = tomllib.loads(text)
    for table, keys in change.items():
        wanted[table] |= keys
        for key, value in keys.items():
            text = _with(text, table, key, msgspec.json.encode(value).decode())
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        found = {}
    if found != wanted:
        lines = "; ".join(f"[{table}] {keys}" for table, keys in change.items())
        raise ConfigError(f"the file is written in a way that is not known here: set {lines}")
    return text


def _with(text: str, table: str, key: str, value: str) -> str:
    """One key, in its place or below the table's name."""
    head = re.search(rf"^\[{table}\][^\n]*\n", text, re.MULTILINE)
    if head is None:
        return text
    end = re.compile(r"^\[", re.MULTILINE).search(text, head.end())
    before, body = text[: head.end()], text[head.end() : end.start() if end else len(text)]
    after = text[len(before) + len(body) :]
    line = f"{key} = {value}\n"
    there = re.search(rf"^{key}\s*=[^\n]*\n", body, re.MULTILINE)
    body = body[: there.start()] + line + body[there.end() :] if there else line + body
    return before + body + after
