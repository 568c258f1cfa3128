"""The paper's data sets: prepared from raw files, downloaded from a server, whole or refused."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from coke.data.tables import inputs_of
from coke.errors import CokeError, DataError, FileError, InputError
from coke.studies.reproduce.download import fetch
from coke.studies.reproduce.recipes import _find_file, paper_rows, raw_table
from coke.studies.reproduce.uci import AIR, FORMATS, _unpacked, parse_raw

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

DataFile = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "off_by"),
    # Energy's inputs were rounded to tenths before they were scaled; the others are exact.
    [("energy", 0.0500001 / 778.9), ("air_quality", 0.0), ("toms_hardware", 0.0)],
)
def test_prepared_files_are_made_from_the_raw_ones(
    data_file: DataFile, name: str, off_by: float
) -> None:
    rows = paper_rows(name, data_file(f"{name}.parquet"))
    wanted = pyarrow.parquet.read_table(data_file(f"{name}_adaraker.parquet"))
    X = inputs_of(wanted, [column for column in wanted.column_names if column != "y"])
    assert rows.X.shape == X.shape
    assert np.abs(rows.X - X).max() <= off_by
    assert_array_equal(rows.y, wanted["y"].to_numpy())
    assert rows.X.min() >= 0
    assert rows.X.max() <= 1
    assert (rows.y.min(), rows.y.max()) == (0, 1)


def test_twitter_is_there_prepared(data_file: DataFile) -> None:
    rows = paper_rows("twitter", data_file("twitter_adaraker.parquet"))
    assert rows.X.shape == (13_813, 77)


def as_uci_writes_it(name: str, table: pa.Table) -> bytes:
    """The raw table in the dress of UCI's own file."""
    out = io.BytesIO()
    if name == "energy":
        named = table.rename_columns([c if c != "y" else "Appliances" for c in table.column_names])
        pa.csv.write_csv(named, out)
    elif name == "toms_hardware":
        pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=False))
    else:
        lines = ["Date;Time;CO(GT);" + ";".join(AIR) + ";;"]
        for row in table.to_pylist():
            hour = round(24 * row["time_of_day"])
            numbers = [f"{row[key]:.4f}".replace(".", ",") for key in ("y", *AIR)]
            lines.append(f"10/03/2004;{hour:02d}.00.00;" + ";".join(numbers) + ";;")
        lines += [";" * 16] * 114
        out.write("\n".join(lines).encode("latin-1"))
    return out.getvalue()


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return out.getvalue()


def tarred(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A web server on loopback that serves what the test puts into its dictionary."""
    files: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files.get(self.path)
            if self.path.startswith("/chunked"):  # cut: the last chunk never comes
                self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nab")
                return
            self.send_response(200 if data is not None else 404)
            short = self.path.startswith("/short")
            self.send_header("Content-Length", str(len(data or b"") + 100 * short))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *args: Any) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}", files
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.mark.parametrize("name", FORMATS)
def test_a_download_becomes_the_raw_table(
    data_file: DataFile, tmp_path: Path, server: Any, name: str
) -> None:
    """UCI's file inside archives, over HTTP, to the Parquet file that the recipes read."""
    url, files = server
    raw = pyarrow.parquet.read_table(data_file(f"{name}.parquet"))
    data = as_uci_writes_it(name, raw)
    member = FORMATS[name].member
    if name == "toms_hardware":  # UCI nests it: a tar file in a zip file
        files["/x"] = zipped(regression_dot_tar_dot_gz=tarred(f"./regression/TH/{member}", data))
    else:
        files["/x"] = zipped(**{member.replace(".", "_dot_"): data, "readme_dot_txt": b"hello"})
    seen: list[tuple[int, int | None]] = []
    got = fetch(name, tmp_path, url=f"{url}/x", watch=lambda *at: seen.append(at))
    assert got.rows == FORMATS[name].rows
    assert got.sha256 == hashlib.sha256(files["/x"]).hexdigest()
    assert seen[-1] == (len(files["/x"]), len(files["/x"]))
    a, b = paper_rows(name, got.path), paper_rows(name, data_file(f"{name}.parquet"))
    assert_allclose(a.X, b.X, atol=1e-7)
    assert_allclose(a.y, b.y, atol=1e-7)
    (tmp_path / member).write_bytes(data)  # the same file, by hand
    assert raw_table(name, tmp_path / member).num_rows == FORMATS[name].rows


def test_downloads_that_fail_say_so(data_file: DataFile, tmp_path: Path, server: Any) -> None:
    url, files = server
    raw = as_uci_writes_it("energy", pyarrow.parquet.read_table(data_file("energy.parquet")))
    files["/x"], files["/short"], files["/cut"] = raw, raw, raw[: len(raw) // 2]
    files["/other"] = b"<html>not found</html>"
    files["/bad.zip"] = zipped(a=b"1")[:-5]
    closed = "http://127.0.0.1:9/x"
    for address, said in {
        f"{url}/none": "Not Found",
        f"{url}/short": "came|Incomplete|IncompleteRead",
        f"{url}/cut": "not UCI's|cut or altered",
        f"{url}/other": "not UCI's",
        f"{url}/bad.zip": "not UCI's",
        f"{url}/chunked": "cannot be downloaded.*IncompleteRead",
        f"{url}/a b": "cannot be downloaded.*control characters",
        closed: "refused.*--file",
        "ftp://somewhere": "https://",
    }.items():
        with pytest.raises(FileError, match=said):
            fetch("energy", tmp_path, url=address)
    with pytest.raises(FileError, match="SHA-256 is"):
        fetch("energy", tmp_path, url=f"{url}/x", sha256="0" * 64)
    assert not list(tmp_path.iterdir())  # nothing half-done is left
    with pytest.raises(DataError, match="Did you mean 'energy'"):
        fetch("enrgy", tmp_path)


def test_a_file_downloaded_elsewhere_is_taken(
    data_file: DataFile, tmp_path: Path, monkeypatch: Any
) -> None:
    """`file` is checked and kept as a download would be, and nothing is downloaded."""
    monkeypatch.setattr("coke.studies.reproduce.download.download", None)
    raw = pyarrow.parquet.read_table(data_file("energy.parquet"))
    file, to = tmp_path / "energy.zip", tmp_path / "to"
    file.write_bytes(zipped(energydata_complete_dot_csv=as_uci_writes_it("energy", raw)))
    got = fetch("energy", to, file=file)
    assert (got.path, got.rows) == (to / "energy.parquet", raw.num_rows)
    assert got.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(FileError, match="SHA-256 is"):
        fetch("energy", to, file=file, sha256="0" * 64)
    with pytest.raises(FileError, match="cannot be read"):
        fetch("energy", to, file=tmp_path / "absent.zip")
    with pytest.raises(InputError, match="expected one"):
        fetch("energy", to, file=file, url="https://somewhere")


def test_a_folder_that_cannot_be_written_is_refused_before_the_download(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("coke.studies.reproduce.download.download", None)
    (tmp_path / "file").write_bytes(b"")
    for to in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match=r"not a folder to write to.*choose another"):
            fetch("energy", to)


def test_an_altered_file_is_noticed(data_file: DataFile) -> None:
    """One number changed, one row gone: the sums tell."""
    raw = pyarrow.parquet.read_table(data_file("energy.parquet"))
    y = raw["y"].to_numpy().copy()
    y[7] += 10
    changed = raw.set_column(raw.column_names.index("y"), "y", pa.array(y))
    for table in (changed, raw.slice(1)):
        with pytest.raises(FileError, match="cut or altered"):
            parse_raw("energy", as_uci_writes_it("energy", table))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_data_set(data: bytes) -> None:
    for name in FORMATS:
        for dress in (data, zipped(x=data), gzip.compress(data), b"PK\x03\x04" + data):
            with pytest.raises(CokeError):
                parse_raw(name, dress)


def test_unpacking_finds_the_file_at_any_depth() -> None:
    inner = zipped(deep__wanted_dot_csv=b"found")
    assert _unpacked(zipped(one_dot_zip=inner), "wanted.csv") == b"found"
    assert _unpacked(b"plain", "wanted.csv") == b"plain"
    with pytest.raises(FileError, match=r"no wanted\.csv"):
        _unpacked(zipped(a=b"", b=b""), "wanted.csv")


def test_unpacking_tries_every_archive_inside() -> None:
    """Others, damaged ones and ones in name only come first, as in UCI's file."""
    first = {"a_dot_zip": b"none", "b_dot_tar_dot_gz": b"\x1f\x8b", "c_dot_zip": zipped(x=b"")}
    assert _unpacked(zipped(**first, d_dot_tgz=tarred("./w.csv", b"found")), "w.csv") == b"found"
    with pytest.raises(
        FileError, match=r"no w\.csv in the archive, which holds a\.zip.*; a\.zip: "
    ):
        _unpacked(zipped(**first), "w.csv")


def test_unpacking_reads_nothing_that_is_not_wanted(monkeypatch: Any) -> None:
    data = zipped(big=b"0" * 1000, sub__w_dot_csv=b"found")
    honest, read = zipfile.ZipFile.read, []

    def watched(self: zipfile.ZipFile, name: str) -> bytes:
        read.append(name)
        return honest(self, name)

    monkeypatch.setattr(zipfile.ZipFile, "read", watched)
    assert _unpacked(data, "w.csv") == b"found"
    assert read == ["sub/w.csv"]


def test_archives_that_cannot_be_unpacked_say_so() -> None:
    """Encrypted, of an unknown method, damaged, and cut: each a FileError."""
    whole = bytearray(zipped(w_dot_csv=b"0123456789" * 50))
    entry = whole.index(b"PK\x01\x02")

    def changed(*at: tuple[int, int]) -> bytes:
        data = whole.copy()
        for place, value in at:
            data[place] = value
        return bytes(data)

    tar = tarred("w.csv", bytes(range(256)) * 50)
    for data, said in {
        changed((6, 1), (entry + 8, 1)): "encrypted",
        changed((8, 77), (entry + 10, 77)): "not supported",
        changed((35, 255), (36, 255)): "Error|invalid|CRC",
        tar[: len(tar) // 2]: "ended|end of",
        tar[:60] + bytes(60) + tar[120:]: "",
    }.items():
        with pytest.raises(FileError, match=f"the archive around w.csv cannot be read.*({said})"):
            _unpacked(data, "w.csv")


def test_missing_data_sets_say_where_they_were_looked_for(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("COKE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(FileError, match="coke data fetch energy"):
        _find_file("energy")
    with pytest.raises(FileError, match=r"twitter_adaraker\.parquet.*cannot be downloaded"):
        paper_rows("twitter")
    with pytest.raises(FileError, match="cannot be read"):
        raw_table("energy", tmp_path / "absent.csv")
    with pytest.raises(DataError, match="unknown data set"):
        paper_rows("facebook")
