"""
Rows that come
==============

Sensors have no table. ``partial_fit`` predicts the rows that arrive, then learns from them; the
sites tell each other as little as a batch does, and notice together when the world has changed.
"""

# %%
# Six stations, hour by hour
# --------------------------
# At hour 250 all instruments are exchanged.

import matplotlib.pyplot as plt
import numpy as np

import coke

HOURS, STATIONS, DRIFT, DAY = 500, 6, 250, 25
rng = np.random.default_rng(0)
names = np.array([f"station {n}" for n in range(STATIONS)])
X = rng.normal(size=(HOURS, STATIONS, 3))
y = np.sin(2 * X[..., 0]) + X[..., 1] * X[..., 2] + 0.1 * rng.normal(size=(HOURS, STATIONS))
y[DRIFT:] = 1.0 - y[DRIFT:]
X[100:120, 3, 0] = np.nan  # a sensor is broken

# %%
# Learning as they come
# ---------------------
# A call takes whatever is new. ``tick`` is the hour of each row, ``sites`` who has it.

model = coke.COKERegressor(model="plain", features=coke.Features(n_features=40), lam=1e-4)
for first in range(0, HOURS, DAY):
    hours = np.arange(first, first + DAY)
    model.partial_fit(
        X[hours].reshape(-1, 3),
        y[hours].ravel(),
        sites=np.tile(names, DAY),
        tick=np.repeat(hours, STATIONS),
    )

print("alarms at hours", model.alarms_)
print(model.arrivals_)
print(f"{model.bytes_ / 1000:.1f} kB for {model.arrivals_.taken} rows")

# %%
# How good it was
# ---------------
# Every row is predicted before it is learnt from: the prequential error.

ticks = np.array([one.tick for one in model.prequential_])
loss = np.array([one.loss / one.rows for one in model.prequential_])
smooth = np.convolve(loss, np.ones(DAY) / DAY, "valid")
plt.figure(figsize=(6, 2.4))
plt.semilogy(ticks[DAY - 1 :], smooth)
plt.axvline(DRIFT, color="gray", ls=":")
plt.xlabel("hour")
plt.ylabel("squared error")
plt.tight_layout()

# %%
# Now, and at the end
# -------------------
# Predictions for one site have its fast layer; ``finish`` ends with the proven optimum of all rows
# as they count now.

last, seen = X[-DAY:].reshape(-1, 3), y[-DAY:].ravel()
print(
    f"{model.predict(last[:1], site='station 0')[0]:.2f} at station 0, where it was {seen[0]:.2f}"
)
model.finish()
error = np.mean((model.predict(last) - seen) ** 2)
print(f"mean squared error of the last day, all settled: {error:.3f}")

# %%
# What may come late, twice or from the future: :doc:`/streams`.
