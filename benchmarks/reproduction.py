"""`make reproduce`: after `coke reproduce all`, holds the numbers against the paper's claims.

Prints every check with its figure, lists all deviations beyond 15 %, exits non-zero on a failure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Check = tuple[str, bool]
TABLES = ("table1", "table2", "table4", "table5")
METHODS = ("cta", "dkla", "coke")


def at(table: dict[str, Any], k: int) -> dict[str, Any]:
    """The row of an iteration mark."""
    return next(row for row in table["rows"] if row["k"] == k)


def near_the_paper(found: dict[str, Any]) -> Iterator[Check]:
    """Energy and Air quality: DKLA and COKE within 5 % (train) and 10 % (test), CTA within 6 %."""
    for name in ("table4", "table5"):
        table = found[name]
        end = at(table, 2000)
        for method, part, most in (
            ("dkla", "train", 0.05), ("coke", "train", 0.05), ("dkla", "test", 0.10),
            ("coke", "test", 0.10), ("cta", "train", 0.06),
        ):  # fmt: skip
            off = end[method][part]["relative"]
            yield f"{table['data']}: {method} {part} {100 * off:+.1f} %", abs(off) <= most
        sent = at(table, 200)["coke"]["transmissions"]
        ratio = sent["mean"] / sent["paper"]
        yield f"{table['data']}: sent by k = 200, {ratio:.1f} × the paper's", 0.1 < ratio < 10


def order_of_methods(found: dict[str, Any]) -> Iterator[Check]:
    """At every mark no method is ahead of DKLA by more than 0.3 %, on every data set."""
    for name in TABLES:
        rows = found[name]["rows"]
        train = [{m: row[m]["train"]["mean"] for m in METHODS} for row in rows]
        good = all(t["dkla"] <= 1.003 * min(t.values()) for t in train)
        yield f"{found[name]['data']}: DKLA leads at every mark, or is within 0.3 %", good


def orders_that_differ(found: dict[str, Any]) -> Iterator[str]:
    """Marks at which the three methods stand in another order than the paper's."""
    for name in TABLES:
        for row in found[name]["rows"]:
            ours, paper = ({m: row[m]["train"][key] for m in METHODS} for key in ("mean", "paper"))
            pairs = [(a, b) for a in METHODS for b in METHODS if paper[a] < paper[b]]
            for a, b in pairs:
                if ours[a] > ours[b]:
                    by = 100 * (ours[a] / ours[b] - 1)
                    yield f"{found[name]['data']}, k = {row['k']}: {a} behind {b} by {by:.1f} %"


def coke_against_dkla(found: dict[str, Any]) -> Iterator[Check]:
    """COKE ends within 0.5 % of DKLA with fewer transmissions, on every data set."""
    for name in TABLES:
        end = at(found[name], 2000)
        off = end["coke"]["train"]["mean"] / end["dkla"]["train"]["mean"] - 1
        sent = end["coke"]["transmissions"]["mean"] / end["dkla"]["transmissions"]["mean"]
        text = f"{found[name]['data']}: COKE {100 * off:+.2f} % of DKLA with {100 * sent:.0f} %"
        yield f"{text} of its transmissions", abs(off) <= 0.005 and sent < 1
    rows = {(row["data"], row["method"]): row for row in found["figure2"]["rows"]}
    for data in ("Synthetic", "Twitter"):
        coke, dkla = rows[data, "coke"], rows[data, "dkla"]
        off = coke["train"]["mean"] / dkla["train"]["mean"] - 1
        sent = coke["transmissions"]["mean"] / dkla["transmissions"]["mean"]
        text = f"{data}: COKE {100 * off:+.2f} % of DKLA with {100 * sent:.0f} %"
        yield f"{text} of its transmissions", abs(off) <= 0.005 and sent < 1


def deviations(found: dict[str, Any]) -> Iterator[str]:
    """Everything more than 15 % from the paper: errors, messages, and messages per level."""
    for name in TABLES:
        for row in found[name]["rows"]:
            where = f"{found[name]['data']}, k = {row['k']}"
            for method in METHODS:
                for part in ("train", "test", "transmissions"):
                    off = row[method][part]["relative"]
                    if off is not None and abs(off) > 0.15:
                        yield f"{where}, {method} {part}: {100 * off:+.0f} %"
    for name in ("table3", "table6"):
        for part in found[name]["parts"]:
            for row in part["rows"]:
                yield from _level(f"{part['data']}, MSE {row['level']:.4g}", row)


def _level(where: str, row: dict[str, Any]) -> Iterator[str]:
    for method in METHODS:
        paper, ours = row[method]["paper"], row[method]["mean"]
        if (paper is None) != (ours is None):
            yield f"{where}, {method}: sent {paper} in the paper, {ours} here"
        elif paper is not None and abs(ours / paper - 1) > 0.15:
            yield f"{where}, {method}: {ours / paper:.1f} × the paper's messages"


def main() -> int:
    """All checks of a reproduction.json."""
    found = json.loads(Path(sys.argv[1]).read_text())
    failed = 0
    for checks in (near_the_paper, order_of_methods, coke_against_dkla):
        for text, good in checks(found):
            print(f"{'ok  ' if good else 'MISS'} {text}")
            failed += not good
    print("\nin another order than the paper's:")
    print("\n".join(f"  {text}" for text in orders_that_differ(found)))
    print("\nbeyond 15 % (see docs/reproduction.md):")
    print("\n".join(f"  {text}" for text in deviations(found)))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
