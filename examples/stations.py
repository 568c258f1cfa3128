"""Twelve stations, hour by hour: one sensor breaks, and later the world changes."""

import numpy as np

import coke

HOURS, STATIONS, BREAKS, DRIFTS = 800, 12, 300, 500
rng = np.random.default_rng(0)
names = np.array([f"station {n:02d}" for n in range(STATIONS)])

weather = rng.normal(size=(HOURS, 1, 3)).cumsum(axis=0) * 0.2  # the same for all of them, but for …
X = np.sin(weather) + 0.5 * rng.normal(size=(HOURS, STATIONS, 3))  # … what differs by place
y = np.sin(2 * X[..., 0]) + X[..., 1] * X[..., 2] + 0.1 * rng.normal(size=(HOURS, STATIONS))
y[DRIFTS:] = 1.0 - y[DRIFTS:]  # a new instrument everywhere
X[BREAKS : BREAKS + 48, 3, 0] = np.nan  # two days without a thermometer at station 03

model = coke.COKERegressor(model="plain", features=coke.Features(n_features=50), lam=1e-4)
day = 24
for first in range(0, HOURS, day):
    hours = np.arange(first, min(first + day, HOURS))
    model.partial_fit(
        X[hours].reshape(-1, 3),
        y[hours].ravel(),
        sites=np.tile(names, len(hours)),
        tick=np.repeat(hours, STATIONS),
    )

week = 7 * day
spans = {
    "first week": (0, week),
    "until the drift": (week, DRIFTS),
    "day of the drift": (DRIFTS, DRIFTS + day),
    "a week later": (DRIFTS + week, HOURS),
}
for name, (a, b) in spans.items():
    some = [one for one in model.prequential_ if a <= one.tick < b]
    rows = sum(one.rows for one in some)
    ours, last = (sum(getattr(one, key) for one in some) / rows for key in ("loss", "last"))
    print(f"{name:16s} squared error {ours:.3f}, of the last value {last:.3f}")
print(f"alarms at hours {model.alarms_}; {model.arrivals_.gaps} rows had gaps and were left out")
print(f"{model.bytes_ / 1000:.1f} kB for {model.arrivals_.taken} rows")
