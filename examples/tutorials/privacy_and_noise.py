"""
What a model gives away, and what noise costs
=============================================

Rows that stay are not yet private: messages solve equations in them. With ``privacy=DP(epsilon)``
every site adds noise to its statistics once, and all that follows is post-processing. This is what
it costs, and what it needs.
"""

# %%
# What everybody must know before
# -------------------------------
# Nothing may be learnt from rows without being paid for: units come from ranges known before, the
# bandwidth is a number, and targets beyond their range are clipped.

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import coke

rng = np.random.default_rng(0)
T, N = 20_000, 5
X = rng.uniform(0, 1, size=(T, 2)) * [100, 5]  # age, dose
y = np.sin(X[:, 0] / 20) + 0.2 * X[:, 1] + 0.2 * rng.normal(size=T)
sites = rng.integers(0, N, T)
public = {"x0": (0.0, 100.0), "x1": (0.0, 5.0), "y": (-2.0, 3.0)}


def fitted(epsilon: float) -> coke.COKERegressor:
    """With so much told of every row, at most."""
    model = coke.COKERegressor(
        privacy=coke.DP(epsilon=epsilon) if np.isfinite(epsilon) else None,
        model="plain",
        scale="public",
        ranges=public,
        features=coke.Features(n_features=15, sigma=1.0),
        algorithm=coke.Coke(whitening="range"),
        random_state=0,
    )
    return model.fit(X[:-2000], y[:-2000], sites=sites[:-2000])


# %%
# The price
# ---------
# Smaller ε, more noise. The last is without privacy.

scores = {epsilon: fitted(epsilon).score(X[-2000:], y[-2000:]) for epsilon in (0.5, 1, 4, np.inf)}
for epsilon, score in scores.items():
    print(f"ε = {epsilon:<4} R² = {score:.3f}")

# %%

plt.figure(figsize=(6, 2.4))
plt.plot(range(len(scores)), list(scores.values()), "o-")
plt.xticks(range(len(scores)), [f"ε = {epsilon}" for epsilon in scores])
plt.ylabel("R² on new rows")
plt.tight_layout()

# %%
# What was spent
# --------------
# Each fit draws its noise anew and spends ε once more, unless the sites keep what they released:
# then a second fit on the same rows, also with another λ, spends nothing.

kept = coke.COKERegressor(
    privacy=coke.DP(epsilon=1.0, releases=tempfile.mkdtemp()),
    model="plain",
    scale="public",
    ranges=public,
    features=coke.Features(n_features=15, sigma=1.0),
    algorithm=coke.Coke(whitening="range"),
)
for _ in range(2):
    kept.fit(X, y, sites=sites)
    print(kept.budget_)

# %%
# A site may do better alone: its own model, from its rows without noise, is told to nobody.

assert kept.alone_ is not None
print(kept.alone_.shape, "parameters of the sites' own models")

# %%
# What a neighbour could learn of your rows without noise: ``coke audit`` runs the attacks on them
# (:doc:`/privacy`).
