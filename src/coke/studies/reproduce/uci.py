"""UCI's raw files: what they are called, how they are written, how to tell they are whole."""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from coke.data.tables import inputs_of
from coke.errors import DataError, FileError, unknown


class _Format(NamedTuple):
    """A data set's place and shape. The sums tell a whole file from a cut or altered one."""

    url: str
    member: str  # the file inside the archive
    parse: Callable[[bytes], pa.Table]
    inputs: tuple[str, ...]
    rows: int
    sum_x: float  # Σ of all inputs
    sum_y: float
    within: float  # relative; UCI's air quality CSV is rounded, its spreadsheet is not


LIMIT = 1 << 31  # bytes an archive may unpack to
DEPTH = 3  # archives inside archives
GZIP = b"\x1f\x8b"
ARCHIVES = (".zip", ".tar.gz", ".tgz")
# What damaged, encrypted or unusual archives raise; RuntimeError: also NotImplementedError.
UNREADABLE = (
    OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error,
    lzma.LZMAError, struct.error,
)  # fmt: skip
AIR = (
    "PT08.S1(CO)", "NMHC(GT)", "C6H6(GT)", "PT08.S2(NMHC)", "NOx(GT)", "PT08.S3(NOx)", "NO2(GT)",
    "PT08.S4(NO2)", "PT08.S5(O3)", "T", "RH", "AH",
)  # fmt: skip
ROOMS = tuple(name for i in range(1, 10) for name in (f"T{i}", f"RH_{i}"))
WEATHER = ("T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint")


def _energy(data: bytes) -> pa.Table:
    table = pa.csv.read_csv(io.BytesIO(data))
    inputs = {name: table[name].cast(pa.float64()) for name in FORMATS["energy"].inputs}
    return pa.table({"date": table["date"], **inputs, "y": table["Appliances"].cast(pa.float64())})


def _air_quality(data: bytes) -> pa.Table:
    """Semicolons, decimal commas, two empty columns and empty lines at the end."""
    read = pa.csv.ReadOptions(encoding="latin-1")
    parse = pa.csv.ParseOptions(delimiter=";")
    texts = pa.csv.ConvertOptions(
        column_types={"Date": pa.string(), "Time": pa.string()}, decimal_point=","
    )
    table = pa.csv.read_csv(io.BytesIO(data), read, parse, texts)
    times = [text for text in table["Time"].to_pylist() if text]
    table = table.slice(0, len(times))
    day = [(int(h) + (int(m) + int(s) / 60) / 60) / 24 for h, m, s in (t.split(".") for t in times)]
    inputs = {name: table[name].cast(pa.float64()) for name in AIR}
    return pa.table({"time_of_day": day, **inputs, "y": table["CO(GT)"].cast(pa.float64())})


def _toms_hardware(data: bytes) -> pa.Table:
    """97 columns without names, the target last."""
    names = (*FORMATS["toms_hardware"].inputs, "y")
    read = pa.csv.ReadOptions(column_names=names)
    table = pa.csv.read_csv(io.BytesIO(data), read)
    return pa.table({name: table[name].cast(pa.float64()) for name in names})


UCI = "https://archive.ics.uci.edu/static/public"
FORMATS: dict[str, _Format] = {
    "energy": _Format(
        f"{UCI}/374/appliances+energy+prediction.zip", "energydata_complete.csv", _energy,
        ("lights", *ROOMS, *WEATHER, "rv1", "rv2"), 19735, 29630437.671167836, 1928010.0, 1e-9,
    ),
    "air_quality": _Format(
        f"{UCI}/360/air+quality.zip", "AirQualityUCI.csv", _air_quality,
        ("time_of_day", *AIR), 9357, 48815001.544693775, -320079.8, 1e-3,
    ),
    "toms_hardware": _Format(
        f"{UCI}/248/buzz+in+social+media.zip", "TomsHardware.data", _toms_hardware,
        tuple(f"x{j}" for j in range(96)), 28179, 754919267.3435416, 98244421.5, 1e-9,
    ),
}  # fmt: skip


def format_of(name: str) -> _Format:
    """The format of that name, or `DataError`."""
    if name not in FORMATS:
        raise DataError(unknown("data set", name, FORMATS))
    return FORMATS[name]


def parse_raw(name: str, data: bytes) -> pa.Table:
    """The table in UCI's file, or in an archive around it; checked to be whole."""
    known = FORMATS[name]
    try:
        table = known.parse(_unpacked(data, known.member))
        X, y = inputs_of(table, known.inputs), table["y"].to_numpy()
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise FileError(f"not UCI's {known.member}: {error}") from error
    found = (len(y), float(X.sum()), float(np.sum(y)))
    wanted = (known.rows, known.sum_x, known.sum_y)
    if found[0] != wanted[0] or not np.allclose(found[1:], wanted[1:], rtol=known.within, atol=0):
        raise FileError(
            f"{known.member} has {found[0]} rows, sums {found[1]:.8g} and {found[2]:.8g}: expected "
            f"{wanted[0]}, {wanted[1]:.8g} and {wanted[2]:.8g}; the file is cut or altered"
        )
    return table


def _unpacked(data: bytes, member: str) -> bytes:
    """The file of that name in nested archives, read in memory; any other bytes as they are."""
    archive = zipfile.is_zipfile(io.BytesIO(data)) or data.startswith(GZIP)
    return _find(data, member, DEPTH) if archive else data


def _find(data: bytes, member: str, depth: int) -> bytes:
    """The file of that name in an archive, or in any archive inside it."""
    try:
        files = _files(data)
        for name, read in files.items():
            if name.rsplit("/", 1)[-1] == member:
                return read()
    except UNREADABLE as error:
        raise FileError(f"the archive around {member} cannot be read: {error}") from error
    misses = []
    for name in (name for name in files if depth and name.endswith(ARCHIVES)):
        try:
            return _find(files[name](), member, depth - 1)
        except UNREADABLE as error:  # among them our own FileError
            misses.append(f"; {name}: {error}")
    held = ", ".join(sorted(files)[:8])
    raise FileError(f"no {member} in the archive, which holds {held}{''.join(misses[:4])}")


def _files(data: bytes) -> dict[str, Callable[[], bytes]]:
    """How to read each file of an archive; none is read yet, nothing is written to disk."""
    if data.startswith(GZIP):
        tar = tarfile.open(fileobj=io.BytesIO(data))  # noqa: SIM115  read from later
        entries = [entry for entry in tar if entry.isfile()]
        _bounded(sum(entry.size for entry in entries))
        return {entry.name: partial(_extract, tar, entry) for entry in entries}
    archive = zipfile.ZipFile(io.BytesIO(data))
    _bounded(sum(entry.file_size for entry in archive.infolist()))
    return {name: partial(archive.read, name) for name in archive.namelist()}


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    return b"" if file is None else file.read()


def _bounded(size: int) -> None:
    if size > LIMIT:
        raise FileError(f"the archive unpacks to {size} bytes: more than any data set here")
