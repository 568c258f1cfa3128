"""A network that is run for months: new runs, earlier models, backups, other releases."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from coke.cli.rolling import RollingLog
from coke.data.files import pack
from coke.errors import ConfigError, FileError, InputError
from coke.field import store as stores
from coke.field.backups import FORM, LIST, backup, restore
from coke.field.kept import go_back, keep_model, kept_models
from coke.field.lock import alone
from coke.field.retraining import changed, prepare
from coke.field.store import Store
from coke.learning.model import load_model
from coke.page.status import site_status
from coke.settings.sites import read_site
from kit.agents import PACE, B, Nets, fails
from kit.commands import coke
from kit.field import Field, made_rows


def network(folder: Path, rows: int = 90) -> Field:
    """Three sites in threads, which have trained once they are run."""
    return Field(folder, made_rows(rows), 3, 3, algorithm="tree-newton", carrier="memory")


# Models.


def model(folder: Path, what: str) -> Path:
    path = folder / "new.coke"
    path.write_bytes(pack("model", what, {}))
    return path


def test_the_last_models_are_kept_and_one_goes_back_and_forth(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for run in range(1, 5):
        keep_model(models, run, model(tmp_path, f"of run {run}"), most=3)
    found = kept_models(models)
    assert (found.runs, found.used) == ([2, 3, 4], 4)
    assert go_back(models) == 3
    assert found.path.read_bytes() == found.of(3).read_bytes()
    assert go_back(models) == 2
    with pytest.raises(InputError, match="runs 2, 3, 4 are kept, run 2 is in use"):
        go_back(models)
    with pytest.raises(InputError, match="run 1 is not there"):
        go_back(models, 1)
    keep_model(models, 4, found.of(4), most=3)  # its agent was started once more
    assert kept_models(models).used == 2
    keep_model(models, 5, model(tmp_path, "of run 5"), most=1)
    assert (kept_models(models).runs, kept_models(models).used) == ([5], 5)


def test_the_model_in_use_is_kept_however_old_it_is(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for run in (1, 2):
        keep_model(models, run, model(tmp_path, f"of run {run}"), most=2)
    go_back(models)
    keep_model(models, 2, model(tmp_path, "other"), most=1)
    assert kept_models(models).runs == [1]


def test_going_back_leads_to_another_model_where_a_run_changed_nothing(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for run, what in enumerate(("first", "second", "second"), start=1):
        keep_model(models, run, model(tmp_path, what), most=5)
    assert go_back(models) == 1


# New runs.


def test_new_rows_are_learnt_in_one_command_and_one_goes_back_in_another(tmp_path: Path) -> None:
    """The model of run 2 is that of a network that had these rows from the start."""
    field = network(tmp_path / "net")
    coke("network", "run", field.folder, "--json", cwd=tmp_path)
    first = [path.parent / "models" / "model.coke" for path in field.paths]
    before = [path.read_bytes() for path in first]
    other = Field(tmp_path / "other", made_rows(90, seed=1), 3, 3, algorithm="tree-newton",
                  carrier="memory")  # fmt: skip
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    for name, path in zip(field.names, other.paths, strict=True):
        (fresh / f"{name}.parquet").write_bytes((path.parent / "rows.parquet").read_bytes())
    told = coke("network", "retrain", field.folder, "--rows", fresh, "--json", cwd=tmp_path)
    assert len(json.loads(told.stdout)["sites"]) == 3
    coke("network", "run", other.folder, "--json", cwd=tmp_path)
    theirs = [load_model(path.parent / "state" / "model.coke") for path in other.paths]
    for path, model in zip(first, theirs, strict=True):
        assert_array_equal(load_model(path).theta, model.theta)
    status = [site_status(read_site(path)) for path in field.paths]
    assert [one["models"] for one in status] == [{"kept": [1, 2], "used": 2}] * 3
    assert [(one["run"], one["state"]) for one in status] == [(2, "finished")] * 3
    coke("agent", "health", field.paths[0], cwd=tmp_path)  # exit code 0: nobody need look
    assert json.loads(coke("network", "status", field.folder, "--json", cwd=tmp_path).stdout)
    coke("network", "back", field.folder, cwd=tmp_path)
    assert [path.read_bytes() for path in first] == before
    assert coke("network", "back", field.folder, "--run", 9, cwd=tmp_path, code=2)


def test_files_are_prepared_for_agents_that_others_start(tmp_path: Path) -> None:
    """On a machine with one site, too; whoever joined late is there from the start now."""
    field = network(tmp_path)
    one = field.paths[0]
    one.write_text(one.read_text().replace("[site]\n", "[site] # ours\njoins = true\n"))
    coke("network", "retrain", one.parent, "--prepare", "--json", cwd=tmp_path)
    site = read_site(one).site
    assert (site.run, Path(site.state).name, site.joins) == (2, "state-2", False)
    assert "[site] # ours" in one.read_text()
    assert prepare(field.paths) == 3  # all of them, though one was ahead
    assert {Path(read_site(path).site.state).name for path in field.paths} == {"state-3"}


def test_what_cannot_be_retrained_is_refused_before_anything_changes(tmp_path: Path) -> None:
    field = network(tmp_path / "net")
    texts = [path.read_bytes() for path in field.paths]
    with alone(field.paths[1].parent / "state"), pytest.raises(FileError, match="stop it"):
        prepare(field.paths)
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "site-0.csv").write_text("x,y\n")
    with pytest.raises(ConfigError, match="0 files of rows for site 'site-1'"):
        prepare(field.paths, rows)
    coke("network", "retrain", tmp_path, cwd=tmp_path, code=2)
    assert [path.read_bytes() for path in field.paths] == texts


def test_states_of_runs_long_ago_are_not_kept(tmp_path: Path) -> None:
    field = network(tmp_path)
    place = field.paths[0].parent
    for n in range(2, 9):
        (place / f"state-{n}").mkdir()
    (place / "state-of-affairs").mkdir()
    text = field.paths[0].read_text()
    field.paths[0].write_text(text.replace("[site]\n", '[site]\nrun = 8\nstate = "state-8"\n'))
    assert prepare(field.paths[:1]) == 9
    left = sorted(path.name for path in place.glob("state*"))
    assert left == ["state-5", "state-6", "state-7", "state-8", "state-of-affairs"]


KEYS = st.sampled_from(["run", "state", "joins", "name", "other"])
LINES = st.sampled_from(
    ["# a comment", "", "run = 1", 'state = "s"', "  run = 2", "x = [1,\n 2]", "[other]", "a.b = 1"]
)


@given(st.lists(LINES, max_size=6), st.lists(LINES, max_size=6), st.integers(1, 99))
def test_values_are_changed_and_nothing_else_or_the_file_is_refused(
    above: list[str], below: list[str], run: int
) -> None:
    text = "\n".join([*above, "[site]", *below, ""])
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    wanted = {**before, "site": {**before["site"], "run": run, "state": "s-2"}}
    try:
        after = changed(text, {"site": {"run": run, "state": "s-2"}})
    except ConfigError:
        assert "  run = 2" in below or "x = [1,\n 2]" in below or "[other]" in below
        return
    assert tomllib.loads(after) == wanted
    assert after.count("# a comment") == text.count("# a comment")


# Backups.


def test_a_backup_has_everything_and_leads_to_the_same_end(tmp_path: Path) -> None:
    """What processes leave is not in it; modes are as they were."""
    field = network(tmp_path / "net")
    key = field.folder / "authority.key"
    key.write_bytes(b"secret")
    key.chmod(0o600)
    coke("network", "run", field.folder, "--json", cwd=tmp_path)
    archive = tmp_path / "monday.tar"
    coke("network", "backup", field.folder, archive, cwd=tmp_path)
    assert archive.stat().st_mode & 0o777 == 0o600
    coke("network", "restore", archive, tmp_path / "again", "--json", cwd=tmp_path)
    for path in (p for p in field.folder.rglob("*") if p.is_file()):
        there = tmp_path / "again" / path.relative_to(field.folder)
        assert there.exists() == (path.name != "lock")
        if there.exists():
            assert there.read_bytes() == path.read_bytes()
            assert there.stat().st_mode == path.stat().st_mode
    coke("network", "retrain", tmp_path / "again", "--json", cwd=tmp_path)


def test_backups_are_refused_by_name(tmp_path: Path) -> None:
    field = network(tmp_path / "net")
    archive = tmp_path / "a.tar"
    state = field.paths[0].parent / "state"
    state.mkdir()
    with alone(state), pytest.raises(FileError, match="another agent works here"):
        backup(field.folder, field.paths, archive)
    assert not archive.exists()
    with pytest.raises(FileError, match="inside what it is to hold"):
        backup(field.folder, field.paths, field.folder / "a.tar")
    backup(field.folder, field.paths, archive)
    with pytest.raises(FileError, match="already"):
        backup(field.folder, field.paths, archive)
    with pytest.raises(FileError, match="new or empty"):
        restore(archive, field.folder)
    with pytest.raises(FileError, match="cannot be restored"):
        restore(tmp_path / "none.tar", tmp_path / "x")


def small(folder: Path) -> bytes:
    made = folder / "small"
    (made / "sites").mkdir(parents=True)
    (made / "sites" / "a").write_bytes(b"content " * 99)
    (made / "b").write_bytes(b"")
    backup(made, [], folder / "small.tar")
    return (folder / "small.tar").read_bytes()


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("backup")
    return folder, small(folder)


@given(data=st.data())
def test_a_backup_that_was_altered_is_refused_and_leaves_nothing(
    archived: tuple[Path, bytes], data: st.DataObject
) -> None:
    """Or is restored to the byte: some bytes of a tar file mean nothing."""
    folder, whole = archived
    at = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["cut", "flip"]))
    spoilt = whole[:at] if how == "cut" else whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    (folder / "spoilt.tar").write_bytes(spoilt)
    try:
        restore(folder / "spoilt.tar", folder / "out")
    except FileError:
        assert not (folder / "out").exists()
        return
    files = {p.relative_to(folder / "out").as_posix(): p.read_bytes()
             for p in (folder / "out").rglob("*") if p.is_file()}  # fmt: skip
    assert files == {"sites/a": b"content " * 99, "b": b""}
    shutil.rmtree(folder / "out")


HOSTILE = ["../out", "/etc/x", "a/../../b", "a//b", "a\\b", "", ".", "./a"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_backup_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    entry = {"name": name, "size": 0, "digest": "", "mode": 0o644}
    listed = msgspec.json.encode({"form": FORM, "coke": "0", "files": [entry]})
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for one, text in ((LIST, listed), (name, b"")):
            info = tarfile.TarInfo(one)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    with pytest.raises(FileError, match="no backup has"):
        restore(tmp_path / "a.tar", tmp_path / "new" / "er")
    assert sorted(path.name for path in tmp_path.rglob("*")) in (["a.tar"], ["a.tar", "new"])


def test_a_backup_of_a_later_form_says_which_release_reads_it(tmp_path: Path) -> None:
    listed = msgspec.json.encode({"form": FORM + 1, "coke": "9.9.0", "files": []})
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo(LIST)
        info.size = len(listed)
        tar.addfile(info, io.BytesIO(listed))
    with pytest.raises(FileError, match=r"coke 9\.9\.0"):
        restore(tmp_path / "a.tar", tmp_path / "x")


# Other releases.


def released(nets: Nets, version: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    """A network one site of which has another release."""
    net = nets(tol=1e-3, pace=PACE, **more)
    plain = net.kind

    def kind(config: Any, rows: Any) -> Any:
        with monkeypatch.context() as patch:
            if config.site.name == B:
                patch.setattr("coke.field.mission.__version__", version)
            return plain(config, rows)

    net.kind = kind
    return net


def test_sites_of_two_releases_refuse_each_other_by_name(
    nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = released(nets, "0.2.0", monkeypatch)
    net.start()
    for name in (B, *sorted(net.friends[B])):
        error = fails(net, name)
        assert isinstance(error, ConfigError)
        assert "coke is 0." in str(error)


def test_sites_whose_releases_differ_in_the_last_number_train(
    nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bits of a network that has one release."""
    net, calm = released(nets, "0.1.99", monkeypatch), nets(tol=1e-3)
    for one in (net, calm):
        one.start()
        one.wait()
    assert_array_equal(net.theta(), calm.theta())


def test_a_run_that_another_release_began_is_refused_with_what_to_do(
    nets: Nets, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nets()
    net.start()
    net.until(lambda: net.rounds() >= 3)
    net.stop()
    monkeypatch.setattr("coke.field.mission.__version__", "0.2.0")
    net.start(B)
    said = str(fails(net, B))
    assert "begun by coke 0.1, and this is 0.2" in said
    assert "coke network retrain" in said


# Bounds.


def test_a_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    log = RollingLog(tmp_path / "log.jsonl", most=1000)
    for k in range(500):
        log.write(b'{"round": %d}' % k)
    log.close()
    both = log.before.read_bytes() + log.path.read_bytes()
    assert max(log.path.stat().st_size, log.before.stat().st_size) <= 1000
    rounds = [json.loads(line)["round"] for line in both.splitlines()]
    assert rounds == list(range(rounds[0], 500))
    assert log.path.stat().st_mode & 0o777 == 0o600
    again = RollingLog(tmp_path / "log.jsonl", most=1000)  # a new start goes on
    again.write(b"{}")
    again.close()
    assert log.path.read_bytes().endswith(b"}\n{}\n")


def test_a_history_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its older half gets coarser, its last rounds are all there."""
    monkeypatch.setattr(stores, "HISTORY", 10_000)
    store = Store(tmp_path, flushed=False)
    for k in range(1, 3001):
        store.append({"round": k, "loss": float(np.exp(-k))})
        assert store.history.stat().st_size <= 10_100
    rounds = [line["round"] for line in store.rounds(3000)]
    assert rounds == sorted(set(rounds))
    assert rounds[-100:] == list(range(2901, 3001))
    assert rounds[0] < 100
