"""
Planning: which method, how many bytes
======================================

Before a network is built: what would each method cost on such data, and would joining pay?
``coke compare`` runs them all on one machine, on rows that are like those of the sites.
"""

# %%
# Rows that are like theirs
# -------------------------

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
plant = rng.choice(["a", "b", "c", "d"], 600)
rows = pd.DataFrame(rng.normal(size=(600, 3)), columns=["flow", "heat", "load"])
rows["yield"] = np.sin(2 * rows["flow"]) + rows["heat"] * rows["load"] + 0.1 * rng.normal(size=600)
rows["plant"] = plant
folder = Path(tempfile.mkdtemp())
rows.to_csv(folder / "plants.csv", index=False)

# %%
# The comparison
# --------------
# Every method goes on until its objective is within a hundredth of the optimum's, and is charged
# what it sent until then, agreement included. A budget (``--max-bytes``) ends a run before a
# message that would go beyond it.


def coke(*args: str) -> Any:
    """A command of coke, as its JSON document."""
    command = [sys.executable, "-m", "coke", *args, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, cwd=folder).stdout)


found = coke(
    *("compare", "--data", "plants.csv", "--target", "yield", "--site", "plant"),
    *("--model", "plain", "--features", "40", "--rounds", "300"),
    *(f"--method={name}" for name in ("tree-newton", "coke", "coke-paper", "dkla-paper")),
)
table = pd.DataFrame(found["rows"])[["method", "rounds", "transmissions", "bytes", "score"]]
print(table.to_string(index=False))

# %%
# Nobody told the first two how to be tuned; the paper's own methods send whole vectors of doubles.

plt.figure(figsize=(6, 2.4))
plt.barh(table["method"], table["bytes"] / 1000)
plt.xscale("log")
plt.xlabel("kB until the goal")
plt.tight_layout()

# %%
# Does joining pay?
# -----------------
# ``coke run`` trains on the same rows and says so first. Some rows of every site are held out.

run = coke(
    *("run", "--data", "plants.csv", "--target", "yield", "--site", "plant", "--out", "plants"),
    *("--model", "plain", "--features", "40"),
)
print(run["verdict"]["text"])

# %%
# What the methods cost in theory and on real tables: :doc:`/communication`; what the sites choose
# together: :doc:`/choosing`.
