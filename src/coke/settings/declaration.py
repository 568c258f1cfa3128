"""All settings, each once: the keys of a file, the options of the commands, the table in the docs.

To be read without NumPy, for help and refusals come before any work. The choices of a setting are
those of the code that uses it; a test compares them.
"""
# Types are evaluated here and now: msgspec would do it again at every use of a type in quotes.

from functools import partial
from typing import Annotated, Any

import msgspec

from coke.data.reading import MISSING
from coke.maths.algorithms import ALGORITHMS
from coke.maths.losses import LOSSES
from coke.settings.knobs import COMMANDS, EVERYWHERE, Face, Knob, Scope, declared
from coke.settings.stream import MEMORY, StreamTable

Toml = dict[str, Any]
AUTO, WAIT = "auto", "wait"
HASHED = "hashed"  # levels of text, told by digests
PUBLIC = "public"  # units known before any row
BALANCED, BROADCAST, ROWS = "balanced", "broadcast", "rows"
PLAIN: dict[str, Any] = {  # with model = "plain", and …
    "n_features": 100, "kernel": "gaussian", "frequencies": "drawn", "inputs": "scaled",
    "linear": 0.0, "weigh": "sites",
}  # fmt: skip
PLAIN_LAMBDA = 1e-3
LOOKING = ("mixture", "moments")  # whitenings for which a site looks at its raw inputs


def _names(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")


def _of(setting: str) -> str:
    return " and ".join(name for name, entry in ALGORITHMS.items() if setting in entry.uses)


_PROVEN = ", ".join(name for name, entry in ALGORITHMS.items() if entry.basis)
_TOL = ", ".join(f"{e.tol:g} for {name}" for name, e in ALGORITHMS.items() if e.tol is not None)
_dealt = partial(Knob, scope=Scope.RUN, faces=COMMANDS)  # how one file's rows become sites
_read = partial(Knob, scope=Scope.RUN, faces=COMMANDS | Face.SITE)  # how a file is read
_written = partial(Knob, scope=Scope.RUN, faces=COMMANDS | Face.SITE | Face.PREDICT)  # its form
_large = partial(Knob, scope=Scope.RUN, faces=Face.RUN)  # rows that do not fit into memory
_network = partial(Knob, scope=Scope.RUN, faces=COMMANDS | Face.ESTIMATORS)  # made for a run
_learns = partial(Knob, faces=EVERYWHERE & ~Face.THEORY)  # where algorithms run …
_trains = partial(Knob, faces=EVERYWHERE & ~Face.THEORY & ~Face.COMPARE)  # … and where one does
_spends = partial(Knob, faces=Face.RUN | Face.NETWORK | Face.SITE | Face.ESTIMATORS, resume=True)
_BUDGET = _spends("Budget of all sites together.", "[1, inf)", "a positive number")
_here = partial(Knob, scope=Scope.SITE, faces=Face.SITE)  # of a site on a network


# fmt: off

class DataTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[data]: where the rows come from, who holds them, and in which units they are."""

    file: Annotated[str | None, _read(
        "Rows: a table's file, a folder with a file for each site, or a database.",
        option="data", path=True)] = None
    example: Annotated[str, _dealt("Rows where no file is named.", choices={
        "synthetic": "the paper's problem",
        "digits": "scikit-learn's digits at ten sites, each of which has seen two"})] = "synthetic"
    target: Annotated[str | list[str] | None, Knob(
        "Column to predict, or last; may be repeated, for several numbers of a row.",
        faces=COMMANDS | Face.SITE)] = None
    site: Annotated[str | None, _dealt("Column that says which site holds a row.")] = None
    weight: Annotated[str | None, Knob(
        "Column that says for how many rows a row stands.",
        scope=Scope.RUN, faces=Face.RUN | Face.NETWORK | Face.SITE)] = None
    drop: Annotated[list[str], _read(
        "Column to leave out, or a pattern such as 'id*'; may be repeated.")] = []
    missing: Annotated[str, _read("Rows with missing values.", choices={
        "fill": "by what the sites agree on", "drop": "left out", "refuse": "an error"})] = "fill"
    levels: Annotated[str, Knob(
        "How sites tell each other the levels of text.", faces=COMMANDS | Face.SITE, choices={
            "plain": "as they are", HASHED: "by digests"})] = "plain"
    separator: Annotated[str, _written(
        "What separates values in a text file: a character, tab, blanks, or auto.")] = AUTO
    decimal: Annotated[str, _written(
        "Decimal point of a text file.", choices=_names(AUTO, ".", ","))] = AUTO
    encoding: Annotated[str, _written(
        "Of a text file: utf-8, cp1252, latin-1, …, or auto.")] = AUTO
    header: Annotated[str, _written("Whether a text file's first line names the columns.", choices={
        AUTO: "", "yes": "", "no": "they are c1 … cN"})] = AUTO
    missing_values: Annotated[list[str], _written(
        "What stands for no value in a text file; may be repeated.")
    ] = msgspec.field(default_factory=partial(list, MISSING))
    query: Annotated[str | None, _written(
        "SQL query of the rows, where the file is a database.")] = None
    split: Annotated[str | None, _dealt(
        "How rows are dealt out to agents.",
        choices={"iid": "at random", "sorted": "by the target"})] = None
    sizes: Annotated[list[int] | None, _dealt(
        "Rows of an agent, as often as there are agents; near equal without it.",
        "[1, inf)", "at least 1")] = None
    size_range: Annotated[tuple[int, int] | None, _dealt(
        "Rows of an agent, drawn between the two.", "[1, inf)", "at least 1")] = None
    agents: Annotated[int, _network(
        "Number of agents, where nothing names the sites.", "[1, inf)", "at least 1")] = 10
    test: Annotated[float, Knob(
        "Share of a site's rows that is kept for testing.", "[0, 1)", "a share from 0 to below 1",
        scope=Scope.SITE, faces=COMMANDS | Face.SITE)] = 0.3
    scale: Annotated[str, Knob(
        "Units of inputs and target, all sites alike.", choices={
            "none": "", "standard": "mean 0, spread 1", "minmax": "0 to 1",
            PUBLIC: "to [−1, 1] by ranges"})] = "standard"
    ranges: Annotated[dict[str, tuple[float, float]], Knob(
        "For scale public: NAME = [LOW, HIGH] of a column, known before any row.")] = {}
    out_of_core: Annotated[bool, _large("Pass over the rows; keep none in memory.")] = False
    precision: Annotated[str, _large(
        "Of the features whose sums are taken.", choices={
            AUTO: "float32 where it will do", "double": "float64"})] = AUTO
    on_disk: Annotated[str | None, Knob(
        "Folder for rows with class labels and their features, instead of memory.",
        scope=Scope.RUN, faces=Face.RUN | Face.SITE, path=True)] = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the columns to predict; y where nothing names one."""
        given = "y" if self.target is None else self.target
        return (given,) if isinstance(given, str) else tuple(given)


class Features(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[features]: φ(x) with φ(x)ᵀφ(y) ≈ κ(x, y), the same at all sites.

    What is "auto" the sites choose with model = "auto"; with model = "plain" it is L = 100, the
    Gaussian kernel, σ = √(Σ_j var_j / 2) over the scaled inputs, and nothing of the rest.
    """

    n_features: Annotated[int | str, Knob(
        "Number of random features L, or auto.", "[1, inf)",
        'at least one random feature, or "auto"; try 100', choices=_names(AUTO),
        option="features")] = AUTO
    kernel: Annotated[str, Knob("Kernel κ.", choices=_names(
        AUTO, "gaussian", "laplacian", "cauchy", "matern32", "matern52"))] = AUTO
    sigma: Annotated[float | str, Knob(
        "Bandwidth σ, or auto: of each column, or from the inputs' spread.", "(0, inf)",
        'a positive bandwidth, or "auto"; start near the typical distance between two rows',
        choices=_names(AUTO))] = AUTO
    kernels: Annotated[tuple[str | float, ...], Knob(
        "One of several kernels: σ, KERNEL, KERNEL:σ, or KERNEL:σ,σ by column; may be repeated.",
        "(0, inf)", "positive bandwidths, or KERNEL:σ", faces=EVERYWHERE & ~Face.THEORY)] = ()
    mapping: Annotated[str, Knob(
        "Map φ.", choices={"cos-sin": "2L entries", "cos-phase": "L entries"})] = "cos-sin"
    sampling: Annotated[str, Knob(
        "How frequencies are drawn.", choices=_names("iid", "orthogonal"))] = "iid"
    frequencies: Annotated[str, Knob("Which frequencies are kept, with model auto.", choices={
        AUTO: "of many the useful ones", "drawn": "as drawn"})] = AUTO
    inputs: Annotated[str, Knob("What the features are of, with model auto.", choices={
        AUTO: "whichever predicts better", "scaled": "the columns in standard units",
        "quantiles": "their normal scores"})] = AUTO
    linear: Annotated[float | str, Knob(
        "Weight of a linear part, with model auto; or auto.", "[0, inf)",
        'a weight ≥ 0, or "auto"', choices=_names(AUTO))] = AUTO
    weigh: Annotated[str, Knob("What weighs the same in training.", choices={
        AUTO: "rows with model auto", "sites": "as in the paper", ROWS: "whoever has them"})] = AUTO


class GraphTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[graph]: who talks to whom."""

    kind: Annotated[str, _network("Network.", option="graph", choices=_names(
        "random", "erdos-renyi", "ring", "star", "complete", "grid", "small-world"))] = "random"
    edges: Annotated[int | None, _network("Edges of a random network.")] = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is learnt, and how: all that a run, a study or a site can be told."""

    algorithm: Annotated[str, _trains(
        "Algorithm.", choices={name: entry.about for name, entry in ALGORITHMS.items()})] = AUTO
    beside: Annotated[list[str], Knob(
        "Another algorithm to run as well; may be repeated.",
        choices=_names(*(name for name in ALGORITHMS if name != AUTO)),
        scope=Scope.RUN, faces=Face.RUN)] = []
    loss: Annotated[str, Knob(
        "Loss.", choices={name: loss.about for name, loss in LOSSES.items()})] = AUTO
    model: Annotated[str, Knob("Model.", faces=EVERYWHERE & ~Face.THEORY, choices={
        AUTO: "chosen by the sites together", "plain": "the paper's features, nothing chosen"})
    ] = AUTO
    lam: Annotated[float | str, Knob(
        "Regularisation λ, of all sites together, or auto.", "[0, inf)",
        'λ ≥ 0, or "auto"; the paper uses 1e-5 … 1e-3', choices=_names(AUTO),
        )] = msgspec.field(name="lambda", default=AUTO)
    rho: Annotated[float, Knob(
        f"Step ρ of {_of('rho')}.", "(0, inf)", "a step size ρ > 0; the paper uses 0.01")] = 1e-2
    v: Annotated[float, _learns(
        f"Threshold h(k) = v μᵏ of {_of('v')}: v.", "[0, inf)",
        "v ≥ 0; v = 0 sends in every round (DKLA)")] = 1.0
    mu: Annotated[float, _learns(
        f"Threshold h(k) = v μᵏ of {_of('mu')}: μ.", "(0, 1)",
        "0 < μ < 1; the paper uses 0.95 … 0.99")] = 0.95
    eta: Annotated[float, _learns(
        f"Step η of {_of('eta')}.", "(0, inf)", "a step size η > 0; the paper uses 0.99")] = 0.99
    rounds: Annotated[int, _learns(
        "At most so many rounds.", "[1, inf)", "at least 1", resume=True)] = 1000
    tol: Annotated[float | None, _trains(
        "Stop once no site's parameters move or differ by more, in norm, in the target's spread; "
        f"0 runs all rounds, as do those without a default ({_TOL}). Where it is not given, what "
        "ends with a proof stops once that can be made.",
        "[0, inf]", "a number, 0 for all rounds", resume=True)] = None
    accuracy: Annotated[float, _trains(
        "How far above the optimum the objective may be at most, relative to it; proven at the end "
        f"of {_PROVEN}.", "(0, 1]", "a share above 0 and up to 1; 0.01 is usual")] = 0.01
    sums: Annotated[bool, _trains(
        "Whether a site's neighbour may see sums of gradients of the sites behind it.")] = True
    links: Annotated[str, _learns("What one message to several neighbours costs.", choices={
        "unicast": "a copy for each", BROADCAST: "one for all"})] = "unicast"
    guard: Annotated[bool, Knob(
        "Close the edge to a neighbour that an audit convicts or whose words no honest site has; "
        "tell claims by name.", faces=Face.NETWORK | Face.SITE)] = False
    memory: Annotated[float, MEMORY] = 500.0
    max_bytes: Annotated[int | None, _BUDGET] = None
    max_transmissions: Annotated[int | None, _BUDGET] = None
    whitening: Annotated[str, _learns("Where coke's common basis comes from.", choices={
        "mixture": "of Gaussians", "moments": "one Gaussian", "gram": "the average Gram matrix",
        "sample": "public inputs", "range": "public ranges"})] = "mixture"
    sample: Annotated[str | None, _learns(
        "File of public inputs, for whitening sample.", path=True)] = None
    privacy: Annotated[str, _trains(
        "Differential privacy of single rows.", choices=_names("none", "dp"))] = "none"
    epsilon: Annotated[float | None, _trains(
        "ε of privacy dp.", "(0, 1000]", "0 < ε ≤ 1000; 1 is strict, 10 weak")] = None
    delta: Annotated[float, _trains(
        "δ of privacy dp.", "[1e-12, 1)", "1e-12 ≤ δ < 1, far below 1/T; try 1e-5")] = 1e-5
    classes: Annotated[list[str | int | float | bool], _trains(
        "With privacy dp, all labels there can be, known before any row; may be repeated.")] = []
    class_weight: Annotated[str, _trains("What the rows of each class weigh together.", choices={
        "none": "as many as they are", BALANCED: "as much as those of any other"})] = "none"
    secure_sum: Annotated[bool, _trains(
        "With privacy dp, less noise by a sum that shows none of its parts.")] = False
    colluding: Annotated[int, _trains(
        "Sites that may put together what they know of a secure sum.", "[1, inf)",
        "at least 1: a site knows itself")] = 1
    new_budget: Annotated[bool, _trains(
        "Spend epsilon once more on rows or settings that have changed.",
        scope=Scope.SITE)] = False
    fast: Annotated[bool, Knob(
        "Compiled rounds (the extra fast): other last bits.",
        faces=Face.RUN | Face.NETWORK | Face.SITE)] = False
    seed: Annotated[int, Knob("Seed of features, network, splits and synthetic rows.", "[0, inf)",
        "a whole number ≥ 0")] = 0
    data: DataTable = DataTable()
    features: Features = Features()
    graph: GraphTable = GraphTable()
    stream: StreamTable = StreamTable()

    def plain(self) -> Toml:
        """Plain dictionaries, as a file has them."""
        plain: Toml = msgspec.to_builtins(self)
        return plain


class SiteTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[site]: one site on a network."""

    name: Annotated[str, _here("The site's name, any text; its certificate has the id of it.")]
    network: Annotated[str, Knob("The network's name.", faces=Face.SITE)]
    neighbours: Annotated[dict[str, str], _here(
        'NAME = ADDRESS to call, such as "tls/HOST:PORT"; "" where the neighbour calls.')]
    carrier: Annotated[str, Knob(
        "How its frames reach the neighbours.", faces=Face.SITE, choices={
            "tls": "mutual TLS", "zenoh": "that of Zenoh", "memory": "in one process"})] = "tls"
    listen: Annotated[list[str], _here('Addresses to listen on: "tls/HOST:PORT".')] = []
    identity: Annotated[str | None, _here(
        "Folder with ca.crt, ID.crt and ID.key, of the name's id.", path=True)] = None
    state: Annotated[str, _here("Folder for what the site must not forget.", path=True)] = "state"
    releases: Annotated[str, _here("Folder for what privacy dp noised.", path=True)] = "releases"
    models: Annotated[str, _here("Folder for the last models, one a run.", path=True)] = "models"
    last_models: Annotated[int, _here("How many of them are kept.", "[1, inf)", "at least 1")] = 5
    run: Annotated[int, Knob("Number of the run.", faces=Face.SITE)] = 1
    joins: Annotated[bool, _here("Whether the others have begun without it.")] = False
    patience: Annotated[float | str, _here(
        "How long to wait for the missing: seconds, auto (ten usual rounds), or wait for ever.",
        "(0, inf]", f'seconds, "{AUTO}" or "{WAIT}"', choices=_names(AUTO, WAIT))] = AUTO
    max_sites: Annotated[int, _here(
        "Most sites that there may be; more are refused.", "[1, inf)", "at least 1")] = 4096
    approve: Annotated[str | None, _here(
        "Digest of the common settings that the owner confirms; else none is asked for.")] = None
    page: Annotated[int | None, _here(
        "Port of the site's page on this machine, 0 for any free one; without it no page.",
        "[0, 65535]", "a port from 0 to 65535")] = None
    plaintext_loopback: Annotated[bool, _here("For tests: 127.0.0.1 without TLS.")] = False


class SiteSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A site's file: the settings of a run, and a table [site]."""

    site: SiteTable


# fmt: on
TABLES = {"data": DataTable, "features": Features, "graph": GraphTable, "stream": StreamTable}
TABLES |= {"site": SiteTable}
KNOBS = declared(SiteSettings)
