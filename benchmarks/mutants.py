"""`make mutants`: breaks a copy of the code in one place at a time and sees a test fail each time.

A test that no mutant can fail proves nothing. Exits non-zero if a mutant survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """One change to one file, and the test that must notice it."""

    what: str
    file: str
    old: str
    new: str
    test: str


COKE, SIM = "maths/coke.py", "run/simulate.py"
MUTANTS = [
    Mutant("primal forgets its own word", COKE, "own.d * s.hat + s.heard - s.g",
           "s.hat + s.heard - s.g", "test_coke.py::test_simulation_equals_the_papers_equations"),
    Mutant("dual with a wrong sign never agrees", COKE, "(own.d * s.hat - s.heard)",
           "(s.heard - own.d * s.hat)", "test_coke.py::test_every_agent_reaches"),
    Mutant("dual takes the private θ", COKE, "(own.d * s.hat - s.heard)",
           "(own.d * s.theta - s.heard)", "test_coke.py::test_duals_sum_to_zero"),
    Mutant("silence is told all the same", COKE, "return np.where(news, theta, hat), news",
           "return theta, news", "test_coke.py::test_a_silent_agents_word"),
    Mutant("threshold compared the wrong way", COKE, "[:, None] >= h)", "[:, None] < h)",
           "test_coke.py::test_a_silent_agents_word"),
    Mutant("a step that shrinks like 1/k", COKE, "if first else primal(own, s)\n",
           "if first else primal(own, s)\n        theta = s.theta + (theta - s.theta) / k\n",
           "test_coke.py::test_every_agent_reaches"),
    Mutant("the first agent is favoured", COKE, "return Local(risk.argmin(self.rho * d), d",
           "d = d + np.eye(len(d))[:, :1]\n        return Local(risk.argmin(self.rho * d), d",
           "test_coke.py::test_relabelling"),
    Mutant("a product over all rows at once", "maths/quadratic.py", "theta = np.matvec(M, r)",
           "theta = np.einsum('nij,nj->ni', M, r, optimize=True) + 1e-17 * (r @ M[0])",
           "test_coke.py::test_one_row_agents"),
    Mutant("neighbours are added in another order", "run/exchange.py", "self._weights @ self._last",
           "self._weights.toarray()[:, ::-1] @ self._last[::-1]",
           "test_coke.py::test_one_row_agents"),
    Mutant("unequal Metropolis rows", "maths/graph.py", "np.maximum(d[W.row], d[W.col])",
           "d[W.row]", "test_graph.py::test_metropolis"),
    Mutant("the training loss forgets ρd‖θ‖²", "maths/quadratic.py",
           " - c * np.vecdot(theta, theta)", "",
           "test_coke.py::test_simulation_equals_the_papers_equations"),
    Mutant("a Gaussian with heavier tails", "maths/kernels.py", "d: np.ones((L, 1)),",
           "d: 1.0 + 0.2 * stream.take(L, 1),", "test_features.py::test_error_shrinks"),
    Mutant("the Laplacian's ω is Gaussian", "maths/kernels.py", "1.0 / np.abs(stream.take(L, d))",
           "np.ones((L, d))", "test_features.py::test_features_are_unbiased"),
    Mutant("Matérn 3/2 with the scale of 5/2", "maths/kernels.py", "Kernel(_matern32, _matern(3))",
           "Kernel(_matern32, _matern(5))", "test_features.py::test_features_are_unbiased"),
    Mutant("orthogonal directions that are not", "maths/draws.py",
           "q[:, j + 1 :] -= overlap[..., None] * q[:, j : j + 1]", "pass",
           "test_features.py::test_orthogonal"),
    Mutant("another stream of bits", "maths/draws.py", "np.random.PCG64(seed)",
           "np.random.PCG64DXSM(seed)", "test_features.py::test_features_are_the_stored_bits"),
    Mutant("SIMD sums decide the bits", "maths/draws.py", "return np.cumsum(x, axis=-1)[..., -1]",
           "return x.sum(axis=-1)", "test_features.py::test_features_are_the_stored_bits"),
    Mutant("a resumed run starts its ledger again", SIM,
           "spent, quiet, ended, settled = at.spent, ",
           "spent, quiet, ended, settled = 0 * at.spent, ", "test_history.py::test_a_resumed_run"),
    Mutant("classes are added up pair by pair", "maths/classification.py",
           "sum(values[1:], values[0]) / len(values)", "np.mean(values, axis=0)",
           "test_coke.py::test_one_row_agents"),
    Mutant("rounds on as many threads as there are", "threads.py",
           "nullcontext() if self._already else self._pools.limit(limits=1, user_api=\"blas\")",
           "nullcontext()", "test_coke.py::test_bits_do_not_depend"),
    Mutant("δ_d as the paper prints it", "maths/theory.py", "nu * c.M**2 / (rho * c.s_min**2)",
           "nu * c.M**2 * c.s_min**2 / rho", "test_theory.py::test_the_papers_printed_rate"),
    Mutant("m without the Hessian's factor 2", "maths/theory.py", "2.0 * np.linalg.eigvalsh(risk.A",
           "1.0 * np.linalg.eigvalsh(risk.A", "test_theory.py::test_convexity_constants"),
    Mutant("Energy keeps its outliers", "data/paper.py", "lambda y: y <= 300", "lambda y: y <= 1e9",
           "test_paper.py::test_prepared_files"),
    Mutant("the digest is not looked at", "data/files.py", "or _digest(body) != digest", "",
           "test_model.py::test_a_changed_bit"),
    Mutant("shapes are believed", "model.py", "    _check_shapes(model, n if n > 2 else 1)\n", "",
           "test_model.py::forged"),
    Mutant("silence costs a transmission", "run/ledger.py", "np.hstack([size > 0, size,",
           "np.hstack([size >= 0, size,",
           "test_coke.py::test_simulation_equals_the_papers_equations"),
    Mutant("the sender keeps what it meant, not what it said", COKE,
           "hat[i] += codec.decode(message, theta.shape[-1])", "hat[i] = theta[i]",
           "test_compare.py::test_duals_sum_to_zero_to_the_last_bit"),
    Mutant("thresholds shrink after a send too", COKE,
           "np.where(news, h, self.threshold.factor * h)", "self.threshold.factor * h",
           "test_compare.py::test_thresholds_shrink"),
    Mutant("the closed form forgets E sin cos", "maths/whitening.py", "[[cc, sc.T], [sc, ss]]",
           "[[cc, 0 * sc.T], [0 * sc, ss]]", "test_whitening.py::test_the_closed_form"),
    Mutant("merging forgets the distance of the means", "maths/whitening.py", "/ weight + between",
           "/ weight", "test_whitening.py::test_merging"),
    Mutant("one copy of the way down is counted", "run/talk.py",
           "for message in turn.tell.values():",
           "for message in list(turn.tell.values())[:1]:", "test_agree.py::test_descriptions"),
    Mutant("a site stops once it is content", "maths/stopping.py", "count > diameter", "count > 0",
           "test_stopping.py::test_all_stop"),
    Mutant("the countdown does not spread", SIM,
           "np.minimum.at(heard.countdown, self.i, quiet.countdown[self.n])", "pass",
           "test_stopping.py::test_the_simulation_hears"),
    Mutant("a budget is a wish", SIM, "hat = np.where(broke, before.hat, after.hat)",
           "return after, size, broke\n    hat = after.hat", "test_stopping.py::test_a_budget"),
    Mutant("scaling forgets the distance of the means", "data/scaling.py",
           "within + share * (1.0 - share) * apart**2", "within", "test_agree.py::test_told"),
    Mutant("whitened statistics depend on the number of sites", "maths/whitening.py",
           "np.matvec(inverse, b)", "b @ inverse.T", "test_field.py::test_the_estimator"),
    Mutant("a first hit counts as settled", "run/goal.py",
           "                else:\n                    settled = None\n", "",
           "test_compare.py::test_settled"),
    Mutant("hinge stops at a gap of 0.1", "maths/margins.py", "GAP = 1e-6", "GAP = 1e-1",
           "test_margins.py"),
    Mutant("logistic stops at a gradient of 1e-4", "maths/margins.py", "GRADIENT = 1e-8",
           "GRADIENT = 1e-4", "test_margins.py"),
    Mutant("the centre weighs rows equally", "maths/classification.py",
           "np.repeat(1.0 / self.T, self.T.astype(np.int64))",
           "np.full(int(self.T.sum()), len(self.T) / self.T.sum())",
           "test_risks.py::test_consensus_reaches"),
]  # fmt: skip


def survives(mutant: Mutant, folder: Path) -> bool:
    """True if the test passes on the broken copy."""
    package = folder / "src" / "coke"
    path = package / mutant.file
    text = path.read_text("utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.what}: {mutant.old!r} stands {text.count(mutant.old)} times")
    path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    tests = os.pathsep.join([str(folder / "src"), str(ROOT / "tests")])
    file, _, name = mutant.test.partition("::")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--no-header"]
    command += [str(ROOT / "tests" / file), *(["-k", name] if name else [])]
    env = {**os.environ, "PYTHONPATH": tests, "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    path.write_text(text, "utf-8")
    if run.returncode not in (0, 1):
        raise SystemExit(f"{mutant.what}: pytest could not run:\n{run.stdout[-2000:]}")
    if " passed" not in run.stdout and " failed" not in run.stdout:
        raise SystemExit(f"{mutant.what}: {mutant.test} was skipped; set COKE_DATA")
    return run.returncode == 0


def main() -> int:
    """All mutants, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "src", folder / "src")
        alive = []
        for mutant in MUTANTS:
            lives = survives(mutant, folder)
            print(
                f"{'SURVIVED' if lives else 'caught':9s} {mutant.what}  ({mutant.test})", flush=True
            )
            alive += [mutant.what] if lives else []
    print(f"{len(MUTANTS) - len(alive)} of {len(MUTANTS)} mutants caught")
    return int(bool(alive))


if __name__ == "__main__":
    sys.exit(main())
