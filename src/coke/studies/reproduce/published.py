"""What the paper printed: the settings of its captions and the numbers of its tables.

Two slips are mended in the labels: the header of the last table names the wrong data sets (it is
Energy and Air quality, as its caption says), and "0.02 %" of CTA in the text should be 2 %.
"""

from __future__ import annotations

from typing import NamedTuple

METHODS = ("cta", "dkla", "coke")
ROUNDS = 2000
RHO, ETA = 1e-2, 0.99
RANDOM = "random"  # the networks, with as many edges as a caption says


class Setting(NamedTuple):
    """One data set as one caption runs it."""

    title: str
    data: str  # of `coke.studies.reproduce.recipes`, or "synthetic"
    sigma: float
    n_features: int
    lam: float
    v: float
    mu: float
    mapping: str = "cos-sin"
    agents: int = 10
    edges: int = 28
    rounds: int = ROUNDS


SETTINGS: dict[str, Setting] = {
    "synthetic": Setting(
        "Synthetic", "synthetic", 1.0, 100, 5e-5, 1.0, 0.95, agents=20, edges=95, rounds=5000
    ),
    "twitter": Setting("Twitter", "twitter", 1.0, 100, 1e-3, 1.0, 0.97),
    "twitter-large": Setting("Twitter (large)", "twitter", 1.0, 100, 1e-3, 0.5, 0.98),
    "toms": Setting("Tom's hardware", "toms", 1.0, 100, 1e-2, 0.5, 0.95, mapping="cos-phase"),
    "energy": Setting("Energy", "energy", 0.1, 100, 1e-3, 0.5, 0.98),
    "air": Setting("Air quality", "air_quality", 0.1, 200, 1e-5, 0.9, 0.97),
}


class Marks(NamedTuple):
    """A table at iteration marks: training and test MSE, and the transmissions of COKE."""

    setting: str
    unit: float  # the table's numbers are in this unit
    k: tuple[int, ...]
    train: dict[str, tuple[float, ...]]
    test: dict[str, tuple[float, ...]]
    sent: tuple[int, ...]  # by COKE; the others send N a round


class Levels(NamedTuple):
    """A table of transmissions until the training MSE first reaches a level; None: never."""

    setting: str
    unit: float
    level: tuple[float, ...]
    sent: dict[str, tuple[int | None, ...]]


K = (50, 100, 200, 500, 1000, 1500, 2000)

MARKS: dict[str, Marks] = {
    "table1": Marks(
        "twitter-large", 1e-3, K,
        {"cta": (3.9, 3.3, 3.0, 2.7, 2.5, 2.5, 2.4), "dkla": (2.4, 2.4, 2.3, 2.3, 2.2, 2.2, 2.2),
         "coke": (4.5, 2.6, 2.4, 2.3, 2.2, 2.2, 2.2)},
        {"cta": (4.0, 3.4, 3.2, 2.9, 2.7, 2.7, 2.6), "dkla": (2.6, 2.6, 2.5, 2.5, 2.5, 2.5, 2.5),
         "coke": (4.2, 2.8, 2.6, 2.5, 2.5, 2.5, 2.5)},
        (13, 100, 298, 902, 4648, 9648, 14648),
    ),
    "table2": Marks(
        "toms", 1e-4, K,
        {"cta": (20.02, 16.6, 13.68, 11.19, 10.27, 10.01, 9.92),
         "dkla": (10.01, 9.91, 9.90, 9.90, 9.90, 9.90, 9.90),
         "coke": (17.40, 10.67, 9.97, 9.90, 9.90, 9.90, 9.90)},
        {"cta": (20.16, 17.09, 14.58, 12.35, 11.47, 11.22, 11.13),
         "dkla": (11.20, 11.10, 11.10, 11.10, 11.10, 11.10, 11.10),
         "coke": (18.82, 11.86, 11.15, 11.10, 11.10, 11.10, 11.10)},
        (10, 112, 331, 1114, 5600, 10600, 15600),
    ),
    "table4": Marks(
        "energy", 1e-3, K,
        {"cta": (25.65, 24.88, 24.17, 23.40, 22.84, 22.54, 22.35),
         "dkla": (22.52, 22.12, 21.81, 21.55, 21.48, 21.47, 21.47),
         "coke": (25.22, 23.65, 22.57, 21.88, 21.51, 21.47, 21.47)},
        {"cta": (26.45, 25.57, 24.77, 23.92, 23.31, 22.97, 22.75),
         "dkla": (22.97, 22.50, 22.15, 21.86, 21.79, 21.78, 21.78),
         "coke": (26.02, 24.2, 23.02, 22.22, 21.82, 21.78, 21.78)},
        (0, 57, 254, 987, 5752, 10752, 15752),
    ),
    "table5": Marks(
        "air", 1e-3, K,
        {"cta": (6.4, 4.5, 3.2, 2.2, 1.7, 1.6, 1.5), "dkla": (1.8, 1.6, 1.4, 1.3, 1.2, 1.2, 1.2),
         "coke": (3.7, 2.2, 1.7, 1.3, 1.2, 1.2, 1.2)},
        {"cta": (6.7, 4.8, 3.5, 2.5, 2.0, 1.8, 1.8), "dkla": (2.1, 1.8, 1.7, 1.6, 1.6, 1.6, 1.6),
         "coke": (4.0, 2.5, 2.0, 1.6, 1.6, 1.6, 1.6)},
        (72, 172, 384, 2263, 7263, 12263, 17263),
    ),
}  # fmt: skip

LEVELS: dict[str, tuple[Levels, Levels]] = {
    "table3": (
        Levels(
            "twitter-large", 1e-3, (5, 4, 3, 2.8, 2.6, 2.3, 2.2),
            {"cta": (360, 480, 1860, 3250, 6120, None, None),
             "dkla": (20, 30, 60, 100, 180, 1080, 5660), "coke": (10, 10, 48, 55, 100, 577, 4428)},
        ),
        Levels(
            "toms", 1e-4, (18, 16, 14, 12, 10, 9.95, 9.90),
            {"cta": (680, 1020, 1610, 2880, 7950, 17620, None),
             "dkla": (20, 30, 60, 110, 250, 640, 1550), "coke": (3, 22, 28, 51, 128, 361, 984)},
        ),
    ),
    "table6": (
        Levels(
            "energy", 1e-3, (25, 24, 23.5, 23, 22.5, 22, 21.5),
            {"cta": (860, 2290, 4160, 7690, 14750, None, None),
             "dkla": (20, 70, 140, 250, 480, 1160, 4950),
             "coke": (11, 48, 76, 134, 258, 652, 4062)},
        ),
        Levels(
            "air", 1e-3, (5.0, 3.0, 2.0, 1.8, 1.6, 1.5, 1.2),
            {"cta": (810, 2290, 6010, 8160, 12300, 16190, None),
             "dkla": (60, 180, 360, 490, 750, 1010, 5990),
             "coke": (49, 81, 211, 285, 424, 586, 5383)},
        ),
    ),
}  # fmt: skip

FIGURES = {
    "figure1": "Functional convergence by COKE: every agent's prediction for one row",
    "figure2": "Training MSE against rounds (mean; band: all seeds)",
    "figure3": "Training MSE against transmissions",
}
FIGURE_SETTINGS = ("synthetic", "twitter")
NAMES = (*sorted([*MARKS, *LEVELS]), *FIGURES)


def settings_of(name: str) -> tuple[str, ...]:
    """The experiments that a table or figure needs."""
    if name in MARKS:
        return (MARKS[name].setting,)
    if name in LEVELS:
        return tuple(levels.setting for levels in LEVELS[name])
    return FIGURE_SETTINGS
