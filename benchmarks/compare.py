"""`make bench-compare`: `coke compare` on every data set of COKE_DATA, at most 20 000 rows of each.

As a user would run it: no option but the target, the sites where a column names them, and `--json`.
Prints what each method scores on rows held out and which were cheapest, and keeps the documents as
JSON. Fails where a command fails or loses a row, our own method does not end well, or an hour is
over.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the commands: two of them share the machine

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from coke.studies.compare.boosted import installed
from coke.studies.compare.compare import BOOSTED, METHODS, QUADRATIC, SLOW

DATA = Path(os.environ.get("COKE_DATA", "../shared/data"))
MOST, HOUR = 20_000, 3600.0
OUT = Path("out/bench-compare.json")
RAW = ("raw/heart_disease", "raw/adult.data.gz", "raw/bank-full.csv.gz", "raw/penguins.csv")
TARGETS = {"tables/uk_used_cars.parquet": "price", "raw/penguins.csv": "species"}  # others: last
SITES = {"raw/penguins.csv": "island"}  # others: the column `site`, where there is one
Found = dict[str, Any]


def sets() -> dict[str, list[str]]:
    """Every set's path in the folder ↦ its options: the target, and the sites' column."""
    found = {str(path.relative_to(DATA)): path for path in sorted(DATA.rglob("*.parquet"))}
    found |= {name: DATA / name for name in RAW if (DATA / name).exists()}
    return {name: options(name, path) for name, path in found.items()}


def options(name: str, path: Path) -> list[str]:
    """What nobody but the user knows of a set."""
    parquet = path.suffix == ".parquet"
    site = "site" if parquet and "site" in pyarrow.parquet.read_schema(path).names else None
    site = SITES.get(name, site)
    return ["--target", TARGETS.get(name, "last"), *(["--site", site] if site else [])]


def some_rows(name: str, folder: Path) -> Path:
    """The file itself, or one with as many of its rows as are wanted."""
    path = DATA / name
    small = folder / name.replace("/", "-").removesuffix(".gz")
    if path.suffix == ".gz":
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        small.write_bytes(b"".join(lines[:MOST]))
        return small
    if path.suffix != ".parquet":
        return path
    table = pyarrow.parquet.read_table(path)
    if table.num_rows > MOST:
        keep = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:MOST])
        pyarrow.parquet.write_table(table.take(keep), small)
        return small
    return path


def compared(name: str, how: list[str], left: float) -> Found:
    """One command, or why there is no document of it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = some_rows(name, Path(folder))
        command = [sys.executable, "-m", "coke", "compare", "--data", str(file), *how, "--json"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=max(left, 1.0))
        except subprocess.TimeoutExpired:
            return {
                "set": name,
                "seconds": time.monotonic() - started,
                "error": "the hour was over",
            }
    found: Found = {"set": name, "seconds": time.monotonic() - started}
    try:
        document = json.loads(run.stdout)
    except ValueError:
        document = {"error": run.stderr[-500:]}
    return found | document


def missed(one: Found) -> list[str]:
    """What a set's document lacks."""
    if "error" in one:
        return [f"{one['set']}: {one['error']}"]
    rows = {row["method"]: row for row in one["rows"]}
    numbers = "objective" not in rows["coke"]
    left = (*(() if numbers else (*QUADRATIC, *SLOW)), *(() if installed() else BOOSTED))
    lost = [name for name in METHODS if name not in rows and name not in left]
    said = [f"{one['set']}: no row of {', '.join(lost)}"] if lost else []
    if rows["coke"]["failed"]:
        said.append(f"{one['set']}: coke failed: {rows['coke']['failed']}")
    return said


SHOWN = ("coke", "tree-newton", "local-only", "linear", "boosted-pooled", "boosted-average")


def line_of(one: Found) -> str:
    """What is printed of a set: scores on rows held out; the bytes on the wire of two."""
    if "error" in one:
        return f"| {one['set']} | {one['error']} |"
    rows = {row["method"]: row for row in one["rows"]}
    cells = [_score(rows.get(name)) for name in SHOWN]
    wires = [f"{rows[name]['wire_bytes'] / 1e3:.0f}" for name in SHOWN[:2]]
    failed = [name for name, row in rows.items() if row["failed"]]
    short = [name for name, row in rows.items() if row["reached"] is False and not row["failed"]]
    cells += [*wires, ", ".join(failed), ", ".join(short), f"{one['seconds']:.0f}"]
    return f"| {one['set']} | {one['measure']} | " + " | ".join(cells) + " |"


def _score(row: Found | None) -> str:
    known = row is not None and row["score"] is not None and not row["failed"]
    return f"{row['score']:.3f}" if row and known else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="sets whose names hold this")
    parser.add_argument("--workers", type=int, default=2)
    wanted = parser.parse_args()
    started = time.monotonic()
    chosen = {
        name: how for name, how in sets().items() if any(word in name for word in wanted.only)
    }
    if not chosen:
        print(f"no set of that name in {DATA}: name their folder in COKE_DATA")
        return 1
    heads = ["set", "measure", *SHOWN, *(f"kB, {name}" for name in SHOWN[:2])]
    heads += ["failed", "not at the goal", "s"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")

    def one(item: tuple[str, list[str]]) -> Found:
        found = compared(*item, left=HOUR - (time.monotonic() - started))
        print(line_of(found), flush=True)
        return found

    with ThreadPoolExecutor(wanted.workers) as pool:
        found = list(pool.map(one, chosen.items()))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    return verdict(found, time.monotonic() - started)


def verdict(found: list[Found], seconds: float) -> int:
    """The promises, and how many were missed."""
    said = [line for one in found for line in missed(one)]
    if seconds > HOUR:
        said.append(f"{seconds:.0f} s in all: expected at most {HOUR:.0f}")
    for line in said:
        print(f"MISS {line}")
    print(f"{len(found)} sets, {seconds:.0f} s, {len(said)} promises missed")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
