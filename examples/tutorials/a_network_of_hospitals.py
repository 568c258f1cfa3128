"""
A network of hospitals
======================

Five hospitals want to know which patients come back within a month. None may hand out a row. Each
is small, and they differ: in age, in what they treat, in what they forget to write down.
"""

# %%
# Rows as they are
# ----------------
# Numbers, text and gaps in one table; the column ``hospital`` says who holds a row.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import coke

rng = np.random.default_rng(0)
names = ["north", "south", "east", "west", "port"]
beds = [90, 70, 60, 50, 30]
hospital = np.repeat(names, beds)
where = np.repeat(np.arange(5), beds)
rows = pd.DataFrame(
    {
        "age": rng.normal(50 + 6 * where, 12),
        "pressure": rng.normal(130, 15, len(where)),
        "ward": rng.choice(["surgery", "heart", "lungs"], len(where)),
    }
)
risk = (
    1.5 * np.cos((rows["age"] - 70) / 12)
    + 0.002 * (rows["pressure"] - 130) ** 2
    + 1.0 * (rows["ward"] == "heart")
    - 1.2
)
back = np.where(rng.random(len(rows)) < 1 / (1 + np.exp(-2.0 * risk)), "back", "well")
rows.loc[rng.random(len(rows)) < 0.05, "pressure"] = np.nan
rows.head()

# %%
# One model of all of them
# ------------------------
# With every default on: the sites agree on units, levels of text and what fills gaps, choose the
# model together, and train until it is proven to be within a hundredth of the optimum.

model = coke.COKEClassifier(random_state=0).fit(rows, back, sites=hospital)
verdict = model.verdict_
print(verdict)
print(f"{model.bytes_ / 1000:.1f} kB in all, {model.agreement_bytes_ / 1000:.1f} of them to agree")

# %%
# Did it pay?
# -----------
# ``verdict_`` compares, for every site, the model of all with the one it would have had alone, each
# row judged as if it had been left out.

assert verdict is not None  # privacy and agents keep it to themselves
for name, at in verdict.sites.items():
    print(f"{name:6s} {at.together} together, {at.home} with its own model")

# %%
# New patients
# ------------
# A data frame with the same columns; an unknown ward is no level, a gap is filled.

new = pd.DataFrame({"age": [71, 35], "pressure": [150, None], "ward": ["heart", "dental"]})
print(model.predict(new), model.predict_proba(new).round(2).tolist())

# %%
# What matters, by the slopes of the model where the patients are:

plt.figure(figsize=(6, 2))
plt.barh(rows.columns, model.importance_)
plt.xlabel("share of what changes the prediction")
plt.tight_layout()

# %%
# The same by real agents
# -----------------------
# A simulation has all rows in one process. An agent has its own rows only, and talks to its
# neighbours. Here each is a thread; ``engine="agents"`` makes each a process that talks over mutual
# TLS. The bits are the same.

agents = coke.COKEClassifier(random_state=0, engine=coke.Agents(carrier="memory"))
agents.fit(rows, back, sites=hospital)
print(np.array_equal(agents.model_.theta, model.model_.theta))

# %%
# Across machines every hospital has a file of its own, an identity, and runs ``coke agent``; on one
# machine ``coke network init`` writes all of it to try (see :doc:`/deploying`). The model goes to
# a file without a row in it:

path = Path(tempfile.mkdtemp()) / "readmission.coke"
model.model_.save(path)
print(coke.load_model(path).predict(new))
