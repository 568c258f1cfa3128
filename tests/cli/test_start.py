"""Help and refusals come before NumPy, SciPy and Arrow are imported: quickly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from coke.cli.main import COMMANDS

pytestmark = pytest.mark.processes  # it starts some, or opens sockets

HEAVY = ("numpy", "scipy", "pyarrow", "sklearn", "networkx", "matplotlib")
PROGRAM = f"""
import json, sys
from coke.cli.main import main
try:
    main()
except SystemExit as stop:
    loaded = [name for name in {HEAVY} if name in sys.modules]
    sys.stderr.write("\\n" + json.dumps([stop.code, loaded]))
"""
TYPO = "[data]\nagnets = 3\n"
SITE = '[data]\nfile = "x"\ntarget = "y"\n[site]\nname = "a"\nnetwork = "n"\nneighbours = {}\n'


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("--help", 0, "identity"),
        ("--version", 0, "coke 0."),
        ("", 2, "Commands"),
        *((f"{name} --help", 0, "Usage") for name in COMMANDS),
        ("network init --help", 0, "--patience"),
        ("run --rounds 0", 2, "rounds=0: expected at least 1"),
        ("run --loss nonsense", 2, "unknown loss 'nonsense'"),
        ("run --data rows.csv", 2, "name the target column"),
        ("run typo.toml", 2, "Did you mean 'agents'?"),
        ("run --resume nowhere", 2, "no such folder"),
        ("run --rounds many", 2, "Invalid value for '--rounds'"),
        ("compare typo.toml", 2, "Did you mean 'agents'?"),
        ("audit --algorithm cta", 2, "cannot be audited"),
        ("theory --loss hinge", 2, "needs class labels"),
        ("network init new --algorithm cta", 2, "cannot run on agents"),
        ("agent site.toml", 2, "no neighbours"),
        ("agent typo.toml", 2, "Did you mean 'agents'?"),
        ("predict model.coke rows.csv --out p.txt", 2, ".csv or .parquet"),
        ("export model.coke model.txt", 2, "ending in .onnx"),
        ("serve model.coke", 2, "no such file"),
        ("rnu", 2, "Did you mean 'run'?"),
    ],
)
def test_help_and_refusals_import_nothing_heavy(
    tmp_path: Path, line: str, code: int, said: str
) -> None:
    (tmp_path / "typo.toml").write_text(TYPO)
    (tmp_path / "site.toml").write_text(SITE)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *line.split()], cwd=tmp_path, capture_output=True, text=True
    )
    *before, last = run.stderr.splitlines()
    assert said in run.stdout + " ".join(before)
    assert json.loads(last) == [code, []]


def test_to_import_coke_is_to_import_little() -> None:
    code = f"import coke, sys; dir(coke); print([n for n in {HEAVY} if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


READING = """
import sys
from coke.data.tables import read_rows
from coke.engines.history import History
from coke.field.agent import Agent
from coke.field.results import _table
from coke.studies.audit import site_warnings
lines = [{"round": 1, "spoke": True, "away": None}, {"round": 2, "spoke": False, "away": 0.5}]
assert _table(lines).to_pylist() == lines
assert _table([]).num_rows == 0
rows = read_rows("rows.csv", "y")
History("coke", "mse", ["a"]).to_parquet("history.parquet")
print([n for n in ("pandas", "networkx") if n in sys.modules], rows.X.tolist(), rows.y.tolist())
"""


def test_an_agent_loads_no_graphs_and_reading_rows_and_histories_no_pandas(tmp_path: Path) -> None:
    """Each takes a process a fifth of a second, and an agent has no other use for them."""
    pytest.importorskip("pandas")
    (tmp_path / "rows.csv").write_text("x,z,y\n1,2.5,3\n4,5,6\n")
    run = subprocess.run(
        [sys.executable, "-c", READING], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[] [[1.0, 2.5], [4.0, 5.0]] [3, 6]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    from importlib import import_module

    command = get_command(import_module(f"coke.cli.{name}").app)
    assert (command.help or "").partition("\n")[0].rstrip() == COMMANDS[name]
