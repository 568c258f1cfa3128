"""`make mutants`: breaks a copy of the code in one place at a time and sees a test fail each time.

A test that no mutant can fail proves nothing. Exits non-zero if a mutant survives. Arguments are
parts of file names, to break only those.
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


COKE, SIM, SLOTS = "maths/algorithms/coke.py", "engines/process.py", "field/store.py"
STOPPING = "maths/algorithms/stopping.py"
DP, RELEASE = "privacy/noise.py", "privacy/release.py"
FEATURES, WHITE = "maths/features/features.py", "maths/features/whitening.py"
MIXTURES = "maths/features/mixtures.py"
QUADRATIC = "maths/losses/problem.py"
MUTANTS = [
    Mutant("a sketch forgets how many rows it stands for", "maths/choice/quantiles.py",
           "weights = np.concatenate([part.T * _MASS for part in parts])",
           "weights = np.concatenate([_MASS for part in parts])", "test_quantiles.py"),
    Mutant("evidence climbs down", "maths/choice/evidence.py",
           "E = W * slope", "E = -W * slope", "test_evidence.py"),
    Mutant("rows left out help themselves", "maths/choice/errors.py",
           "/ (squares @ weights)[:, None]", "/ 1.0", "test_leaving_out.py"),
    Mutant("rows of a fit as if they had no part in it", "maths/choice/errors.py",
           "return np.asarray(w * np.sum(white.T", "return np.asarray(0 * np.sum(white.T",
           "test_leaving_out.py"),
    Mutant("directions that are not conjugate", "maths/choice/conjugate.py",
           "g + share * self.p", "g", "test_conjugate.py"),
    Mutant("as many misses as there are rows", "maths/choice/misses.py",
           "n = self.seen", "n = float(self.counts.sum())", "test_misses.py"),
    Mutant("sums of whole numbers lose their high halves", "talk/sums.py",
           "found = _HALF * found +", "found = 0 * found +", "test_integers.py"),
    Mutant("primal forgets its own word", COKE, "return d * hat + heard - g",
           "return hat + heard - g", "test_coke.py::test_simulation_equals_the_papers_equations"),
    Mutant("dual with a wrong sign never agrees", COKE, "(d * hat - heard)",
           "(heard - d * hat)", "test_coke.py::test_every_agent_reaches"),
    Mutant("dual takes the private θ", COKE, "dual(own.d, s.hat, heard, s.g)",
           "dual(own.d, s.theta, heard, s.g)", "test_coke.py::test_duals_sum_to_zero"),
    Mutant("silence is told all the same", COKE, "return np.where(news, x, hat), Spoken",
           "return x, Spoken", "test_coke.py::test_a_silent_agents_word"),
    Mutant("threshold compared the wrong way", COKE, "[:, None] >= h)", "[:, None] < h)",
           "test_coke.py::test_a_silent_agents_word"),
    Mutant("a step that shrinks like 1/k", COKE, "s.heard, s.g), k)\n",
           "s.heard, s.g), k)\n        theta = s.theta + (theta - s.theta) / k\n",
           "test_coke.py::test_every_agent_reaches"),
    Mutant("the first agent is favoured", COKE, "return Local(solver(self.rho * d), d",
           "d = d + np.eye(len(d))[:, :1]\n        return Local(solver(self.rho * d), d",
           "test_coke.py::test_relabelling"),
    Mutant("a product over all rows at once", QUADRATIC, "theta = across(r, M)",
           "theta = across(r, M) + 1e-12 * len(r)",
           "test_coke.py::test_one_row_agents"),
    Mutant("neighbours are added in another order", SIM, "self._W @ s.hat",
           "self._W.toarray()[:, ::-1] @ s.hat[::-1]",
           "test_coke.py::test_one_row_agents"),
    Mutant("unequal Metropolis rows", "maths/graph.py", "np.maximum(d[W.row], d[W.col])",
           "d[W.row]", "test_graph.py::test_metropolis"),
    Mutant("the training loss forgets ρd‖θ‖²", QUADRATIC,
           " - c * np.vecdot(theta, theta)", "",
           "test_coke.py::test_simulation_equals_the_papers_equations"),
    Mutant("a Gaussian with heavier tails", FEATURES, "d: np.ones((L, 1)),",
           "d: 1.0 + 0.2 * stream.take(L, 1),", "test_features.py::test_error_shrinks"),
    Mutant("the Laplacian's ω is Gaussian", FEATURES, "1.0 / np.abs(stream.take(L, d))",
           "np.ones((L, d))", "test_features.py::test_features_are_unbiased"),
    Mutant("Matérn 3/2 with the scale of 5/2", FEATURES, "_Kernel(_matern32, _matern(3))",
           "_Kernel(_matern32, _matern(5))", "test_features.py::test_features_are_unbiased"),
    Mutant("orthogonal directions that are not", FEATURES,
           "q[:, j + 1 :] -= overlap[..., None] * q[:, j : j + 1]", "pass",
           "test_features.py::test_orthogonal"),
    Mutant("another stream of bits", FEATURES, "np.random.PCG64(seed)",
           "np.random.PCG64DXSM(seed)", "test_features.py::test_features_are_the_stored_bits"),
    Mutant("SIMD sums decide the bits", FEATURES, "return np.cumsum(x, axis=-1)[..., -1]",
           "return x.sum(axis=-1)", "test_features.py::test_features_are_the_stored_bits"),
    Mutant("a resumed run starts its ledger again", SIM,
           "stop.begin(at.k, at.spent,", "stop.begin(at.k, 0 * at.spent,",
           "test_history.py::test_a_resumed_run"),
    Mutant("classes are added up pair by pair", "maths/losses/one_vs_rest.py",
           "sum(values[1:], values[0]) / len(values)", "np.mean(values, axis=0)",
           "test_coke.py::test_one_row_agents"),
    Mutant("rounds on as many threads as there are", "threads.py",
           "nullcontext() if self._already else _pools().limit(limits=1)",
           "nullcontext()", "test_coke.py::test_bits_do_not_depend"),
    Mutant("δ_d as the paper prints it", "maths/theory.py",
           "nu * self.M**2 / (rho * self.s_min**2)", "nu * self.M**2 * self.s_min**2 / rho",
           "test_theory.py::test_the_papers_printed_rate"),
    Mutant("m without the Hessian's factor 2", "maths/theory.py", "eigenvalues = 2.0 * np.linalg",
           "eigenvalues = 1.0 * np.linalg", "test_theory.py::test_convexity_constants"),
    Mutant("Energy keeps its outliers", "recipes.py", "lambda y: y <= 300", "lambda y: y <= 1e9",
           "test_paper.py::test_prepared_files"),
    Mutant("the digest is not looked at", "data/files.py", "or _digest(body) != digest", "",
           "test_model.py::test_a_changed_bit"),
    Mutant("shapes are believed", "learning/modelfile.py",
           "    _check_shapes(model, LOSSES[model.loss].outputs(model.scaling.y_shift.size, n))\n",
           "", "test_model.py::forged"),
    Mutant("silence costs a transmission", STOPPING, "np.hstack([size > 0, size,",
           "np.hstack([size >= 0, size,",
           "test_coke.py::test_simulation_equals_the_papers_equations"),
    Mutant("the sender keeps what it meant, not what it said", COKE,
           "hat[rows] += said.values", "hat[rows] = x[rows]",
           "test_compare.py::test_duals_sum_to_zero_to_the_last_bit"),
    Mutant("thresholds shrink after a send too", COKE,
           "np.where(news, h, self.factor * h)", "self.factor * h",
           "test_compare.py::test_thresholds_shrink"),
    Mutant("the closed form forgets E sin cos", MIXTURES, "even * np.outer(s, c) - odd",
           "0 * even - 0 * odd", "test_whitening.py::test_the_closed_form"),
    Mutant("merging forgets the distance of the means", MIXTURES, "/ weight + between",
           "/ weight", "test_whitening.py::test_merging"),
    Mutant("one copy of the way down is counted", "maths/ledger.py",
           "copies=len(messages))", "copies=1)", "test_agree.py::test_descriptions"),
    Mutant("a site stops once it is content", STOPPING, "count > diameter", "count > 0",
           "test_stopping.py::test_all_stop"),
    Mutant("the countdown does not spread", STOPPING,
           "np.minimum.at(own, self._i, said[self._n])", "pass",
           "test_stopping.py::test_the_simulation_hears"),
    Mutant("whoever agrees with its neighbours is content", STOPPING,
           "ok[rows] = _within(tol, theta[rows], said[rows])", "ok[rows] = True",
           "test_stopping.py::test_the_tolerance"),
    Mutant("a budget is a wish", STOPPING, "if over.any():", "if False:",
           "test_stopping.py::test_a_budget"),
    Mutant("scaling forgets the distance of the means", "data/units.py",
           "within + share * (1.0 - share) * apart**2", "within", "test_agree.py::test_told"),
    Mutant("whitened statistics depend on the number of sites", WHITE,
           "return np.array(rows).reshape(r.shape)",
           "return np.array(rows).reshape(r.shape) + 1e-12 * len(rows)",
           "test_field.py::test_the_estimator"),
    Mutant("a first hit counts as settled", "studies/compare/goal.py",
           "                else:\n                    settled = None\n", "",
           "test_compare.py::test_settled"),
    Mutant("hinge stops at a gap of 0.1", "maths/losses/hinge.py", "GAP = 1e-6", "GAP = 1e-1",
           "test_margins.py"),
    Mutant("hinge never guesses", "maths/losses/hinge.py", "GUESSES = 12", "GUESSES = 0",
           "test_margins.py::test_hinge_goes_from"),
    Mutant("rows that repeat end the guessing", "maths/losses/hinge.py",
           "np.linalg.lstsq(Z @ S, 1.0 - Z @ theta, rcond=ALIKE)[0]",
           "np.linalg.solve(Z @ S, 1.0 - Z @ theta)", "test_margins.py::test_hinge_goes_from"),
    Mutant("logistic stops at a gradient of 1e-4", "maths/losses/newton.py", "GRADIENT = 1e-8",
           "GRADIENT = 1e-4", "test_margins.py"),
    Mutant("an outlier pulls as far as it is off", "maths/losses/huber.py",
           "np.clip((self.own.y - f) / self.tau, -DELTA, DELTA)", "(self.own.y - f) / self.tau",
           "test_huber.py::test_the_gradient_vanishes"),
    Mutant("Huber's Newton gets no help", "maths/losses/huber.py", "LOST = 15", "LOST = 10**6",
           "test_huber.py::test_newton_finds_its_way"),
    Mutant("a system is remembered for other rows", "maths/losses/huber.py",
           "self._system(k.tobytes())", "self._system(np.full_like(k, k.max()).tobytes())",
           "test_huber.py::test_newton_finds_its_way"),
    Mutant("the centre weighs rows equally", "maths/losses/rowwise.py",
           "c = np.concatenate(self.shares)",
           "c = np.full(len(y), len(self.T) / len(y))",
           "test_risks.py::test_consensus_reaches"),
    Mutant("half the noise", DP, "np.full(sums.shape[-1], noise.s)",
           "np.full(sums.shape[-1], 0.5 * noise.s)", "test_privacy_noise.py::test_an_audit"),
    Mutant("the noise off the diagonal is not halved", DP, "[off] *= math.sqrt(0.5)",
           "[off] *= 1.0", "test_privacy_noise.py::test_noise_has"),
    Mutant("sensitivity of one row that comes, not one replaced", DP,
           "math.sqrt(2.0) * (B * B + Y * Y / 2)", "math.sqrt(B**4 + (B * Y) ** 2)",
           "test_privacy_noise.py::test_sensitivity"),
    Mutant("cos-phase takes the bound of cos-sin", DP,
           'return 1.0 if mapping == "cos-sin" else math.sqrt(2.0)', "return 1.0",
           "test_privacy_noise.py::test_cos_phase"),
    Mutant("noise beside the grid", DP, "np.rint(scale * z / noise.grid)", "scale * z / noise.grid",
           "test_privacy_noise.py::test_sums_and_noise"),
    Mutant("negative eigenvalues stay", DP, "np.maximum(values, 0.0)", "values",
           "test_privacy_noise.py::test_projection"),
    Mutant("a site's own noise protects it from itself", DP, "s / math.sqrt(N - colluding)",
           "s / math.sqrt(N)", "test_secure_sum.py::test_the_total"),
    Mutant("noise from a seed", RELEASE, "secrets.token_bytes(32 * n)",
           "np.random.default_rng(0).bytes(32 * n)", "test_privacy_noise.py::test_entropy"),
    Mutant("targets are not clipped", RELEASE, "return np.clip(y, -Y, Y)", "return y",
           "test_privacy_release.py::test_the_seed"),
    Mutant("codes are taken for shorter than they are", "maths/losses/codes.py",
           "np.sqrt(1.0 - 1.0 / K)", "np.sqrt(0.5 * (1.0 - 1.0 / K))",
           "test_private_classes.py::test_sensitivity_of_codes"),
    Mutant("private sites centre codes elsewhere", "learning/public.py",
           "shift = (0.0,) * max(", "shift = (0.1,) * max(",
           "test_private_classes.py::test_nobody_tells_shares"),
    Mutant("any label passes", "learning/public.py", "if label not in known]", "if False]",
           "test_private_classes.py::test_a_label"),
    Mutant("sharpness from raw rows", "learning/closing.py",
           "if ready.noised is not None:", "if False:",
           "test_private_classes.py::test_all_that_is_said"),
    Mutant("λ is not raised", RELEASE, "max(lam, least) / N", "lam / N",
           "test_private_runs.py::test_the_lambda_rule"),
    Mutant("a restart draws again", RELEASE, "if meta.still(path, terms, (X, y), again):",
           "if meta.still(path, terms, (X, y), again) and False:",
           "test_privacy_release.py::test_a_restart"),
    Mutant("changed rows go unnoticed", RELEASE,
           "if self.made_from == made_from(self.salt, terms, rows):", "if True:",
           "test_privacy_release.py::test_what_changed"),
    Mutant("earlier budgets are forgotten", RELEASE, "spent = (*before, terms.budget)",
           "spent = (terms.budget,)", "test_privacy_release.py::test_what_changed"),
    Mutant("a release is used before it is on disk", RELEASE,
           "    write_file(path, pack(KIND, meta,", "    _ = (path, pack(KIND, meta,",
           "test_privacy_release.py::test_nothing_is_used"),
    Mutant("raw rows stay in reach", "learning/ready.py",
           "return None if self.noised else self.sites.units(", "return self.sites.units(",
           "test_private_runs.py::test_other_rows"),
    Mutant("masks of the same sign", "privacy/masks.py",
           "words + mask if me < other else words - mask", "words + mask",
           "test_secure_sum.py::test_masks_cancel"),
    Mutant("the same masks for another sum", "share.py", "common + which.encode()", "common",
           "test_secure_sum.py::test_masks_are_never"),
    Mutant("a share for any sum", "share.py", "if kept.roster and not self.again:",
           "if kept.roster == which:", "test_secure_sum.py::test_a_share_serves"),
    Mutant("the noise of the largest site", "share.py", "return min(member.T",
           "return max(member.T", "test_secure_sum.py::test_everybody"),
    Mutant("the older of two states is read", SLOTS, "sorted(copies, reverse=True)",
           "sorted(copies)", "test_slots.py::test_a_torn_write"),
    Mutant("a state is written over the last one", SLOTS, "self._over(sequence % 2,",
           "self._over(0,", "test_slots.py::test_a_torn_write"),
    Mutant("a torn state passes", SLOTS, "check == _check(head, state)", "len(check) == CHECK",
           "test_slots.py"),
    Mutant("what makes no sense yet is kept", "field/agreeing.py", "messages=talking.used)",
           "messages=talking.heard)", "test_strangers.py::test_garbage_that_came_early"),
    Mutant("whoever may go leaves in silence", "field/parting.py",
           "Parted() if letter.had else", "None if letter.had else",
           "test_interleavings.py::test_nobody_waits_for_one_who_has_gone"),
    Mutant("a change of membership is not passed on", "field/node.py",
           "wide=self.wide or frame.wide", "wide=self.wide",
           "test_membership.py::test_a_site_that_leaves"),
    Mutant("the dual is not what was said", "field/edge.py", "g = dual(1.0, own, cp, end.g)",
           "g = dual(1.0, 1.01 * own, cp, end.g)", "test_node.py::test_sites_that_wait_are"),
    Mutant("a word that is owed is never asked for", "field/edge.py",
           "return self.last is not None and self.s >= self.last", "return self.last is not None",
           "test_node.py::test_whoever_was_away"),
    Mutant("one round more than there are", "field/node.py",
           "if self.k >= self.setup.limits.rounds:", "if self.k > self.setup.limits.rounds:",
           "test_node.py::test_limits_end_all"),
    Mutant("a budget without the agreement", "field/node.py", "before, since = self.setup.spent,",
           "before, since = Ledger(),", "test_one_round.py::test_budgets"),
    Mutant("a basis that nobody uses", "field/mission.py", "Wanted(entry.basis and own is None,",
           "Wanted(True,", "test_one_round.py::test_an_algorithm_without"),
    Mutant("lockstep forgets itself", "field/moves.py", "| {self._setup.name: s.hat[0]}",
           "| {self._setup.name: 0 * s.hat[0]}", "test_lockstep.py::test_sites_in_lockstep"),
    Mutant("a row is counted twice", "data/passes.py", "first = self.size - self.rows",
           "first = self.size - self.rows - 1", "test_passes.py::test_neither_chunks"),
    Mutant("sums depend on who else is here", "data/passes.py", "waiting[site].full(X, y)",
           "[*waiting[site].full(X, y), *next(iter(waiting.values())).rest()]",
           "test_picked.py::test_sites_alone"),
    Mutant("the last site of a row group is skipped", "data/formats.py",
           "any(low <= name <= high", "any(low <= name < high", "test_picked.py::test_of_a_sorted"),
    Mutant("row groups are read as they lie", "data/formats.py", "if rows >= chunk or i ==",
           "if i ==", "test_picked.py::test_of_a_sorted"),
    Mutant("rows that went meanwhile are not missed", "out_of_core.py", "if n != len(kept):",
           "if n > len(held):", "test_picked.py::test_a_stream_whose_file_changes"),
    Mutant("only the last rows bend", "maths/losses/newton.py", "total += half.T @ half",
           "total = half.T @ half", "test_margins.py::test_chunks_of_rows"),
    Mutant("whitened features in memory", "maths/losses/rowwise.py", "len(basis.C), self.room)",
           "len(basis.C), np.empty)", "test_rooms.py::test_features_in_files"),
    Mutant("all features copied once more", "maths/losses/rowwise.py", "_end_to_end(self.Phi)",
           "np.concatenate(self.Phi)", "test_rooms.py::test_features_in_files"),
    Mutant("every class has features of its own", "maths/losses/one_vs_rest.py",
           "replace(self.first, y=y)", "replace(self.first, y=y, Phi=(*self.first.Phi,))",
           "test_rooms.py::test_classes_share"),
    Mutant("rows in memory all the same", "out_of_core.py", "X, near = room(",
           "X, near = np.empty(",
           "test_rooms.py::test_rows_on_disk"),
    Mutant("an infinite label is a class", "data/formats.py", "math.isinf(name)", "False",
           "test_rooms.py::test_rows_read_in_chunks"),
    Mutant("classes in another order", "data/sources.py",
           "np.array(self.classes, kind)[", "np.sort(np.array(self.classes, kind))[",
           "test_rooms.py::test_rows_read_in_chunks"),
    Mutant("a site's empty file is passed over", "data/sources.py", "            if not rows:",
           "            if False:", "test_parts.py::test_a_site_whose_file"),
    Mutant("classes of the kind of the first rows", "data/reading/text.py",
           "if named.target is not None and named.target in schema.names:", "if False:",
           "test_rooms.py::test_classes_of_a_text"),
    Mutant("some rows weigh as some", MIXTURES, "one.weight * len(X) / len(some)",
           "one.weight", "test_whitening.py::test_very_many_rows"),
    Mutant("the last part stands for all", MIXTURES,
           "range(0, max(1, len(X)), PART)", "range(0, max(1, len(X)), PART)[-1:]",
           "test_whitening.py::test_very_many_rows"),
    Mutant("text and numbers are the same classes", "out_of_core.py", "if len(kinds) > 1:",
           "if False:", "test_rooms.py::test_files_whose_classes"),
    Mutant("open intervals hold their ends", "settings/reading.py", "any(out and value == end",
           "any(False and value == end", "test_settings.py::out_of_bounds"),
    Mutant("a resumed run may change all", "settings/reading.py", "    if fixed:\n",
           "    if False:\n", "test_settings.py::test_a_resumed_run"),
    Mutant("sites compare what is a site's own", "settings/sites.py", "scope is Scope.ALL and",
           "scope is not Scope.RUN and", "test_settings.py::test_sites_compare"),
    Mutant("an option given is an option lost", "cli/options.py", "if it not in (None, [])",
           "if it in (None, [])", "test_settings.py::test_options_become"),
    Mutant("one's own algorithm is not run", "estimators/consensus.py", "train(ready, own or ",
           "train(ready, ", "test_estimator.py::test_an_algorithm_of_ones_own"),
    Mutant("help imports NumPy", "cli/main.py", "formatter.write_dl(",
           "import numpy\n            formatter.write_dl(",
           "test_start.py::identity"),
    Mutant("float32 however large the angle", "data/blocks.py", "raise _BeyondError", "pass",
           "test_passes.py::test_blocks_beyond"),
    Mutant("float32 however small the ridge", "data/blocks.py", "not np.min(how.G) >= LEAST",
           "False", "test_blocks.py::test_sums_are"),
    Mutant("float32 however large θ", "data/blocks.py", ".max() <= SHORT)", ".max() <= np.inf)",
           "test_predicting.py::test_decisions"),
    Mutant("the answer to whatever was asked first", "maths/alike.py",
           "question = _bits(args), _bits(sorted(kwargs.items()))", "question = len(args)",
           "test_agree.py"),
    Mutant("all targets in the units of the first", "data/units.py",
           "return (y - self.y_shift) / self.y_scale",
           "return (y - self.y_shift) / self.y_scale[0]",
           "test_several_targets.py::test_passes_tell"),
    Mutant("a choice that forgets every other target", "learning/choice.py",
           "angles = 2.0 * np.pi", "angles = 4.0 * np.pi", "test_few.py"),
    Mutant("settings that stop leave others no room", "studies/compare/sweep.py",
           "theta[i] = (u.reshape(-1, D) @ f.Q[i].T).reshape(r.shape)",
           "np.matmul(u.reshape(-1, D), f.Q[i].T, out=theta[i].reshape(-1, D))",
           "test_sweep.py::test_so_it_is_with_several_outputs"),
    Mutant("shares of classes of all rows, those for testing too", "data/out_of_core.py",
           "if held or i in raw:", "if i in raw:",
           "test_several_targets.py::test_passes_tell"),
    Mutant("names that look alike share an id", "talk/names.py",
           'return f"{slug}-{blake2b(name.encode(), digest_size=10).hexdigest()}"',
           "return slug", "test_names.py"),
    Mutant("a name that looks like an id is its own", "talk/names.py",
           "and not _TAKEN.fullmatch(name)", "", "test_names.py"),
    Mutant("a method that fails ends the comparison", "studies/compare/compare.py",
           "except Exception as error:", "except GeneratorExit as error:",
           "test_compare_failures.py"),
    Mutant("a formula in a CSV file", "learning/predicting.py",
           "return arrow.if_else(runs,", "return arrow.if_else(number,", "test_predict.py"),
    Mutant("a model file of any size is read", "data/files.py", "if size > most:", "if False:",
           "test_predict.py::test_a_hostile"),
    Mutant("sums of rows that all weigh the same", "data/blocks.py",
           "y, Phi = root * y, root.astype(Phi.dtype) * Phi", "y, Phi = y, Phi",
           "test_weights.py::test_a_weight_is"),
    Mutant("shares of rows that all weigh the same", "maths/losses/rowwise.py",
           "return tuple(w / Ti for", "return tuple(0 * w + 1 / Ti for",
           "test_weights.py::test_a_weight_is"),
    Mutant("few rows that all weigh the same", "maths/losses/thin.py",
           "root[i, :, 0] = np.sqrt(T[i] / np.maximum(w, 1e-300))", "pass",
           "test_weights.py::test_a_weight_is"),
    Mutant("columns of rows that all weigh the same", "data/units.py",
           "mean = weights @ Z / T", "pass", "test_weights.py::test_a_weight_is"),
    Mutant("balanced classes that weigh the same", "data/units.py",
           "own = self.balance[which(y, self.classes)]", "own = np.ones(len(y))",
           "test_weights.py::test_balanced"),
    Mutant("a Ctrl-C while ranks ask each other is lost", "learning/train.py",
           "due, stop = self.engine.any(due, stop)",
           "due, stop = self.engine.any(due, stop); self.interrupted = stop",
           "test_ranks.py::test_ctrl_c_at_one_rank"),
]  # fmt: skip


def survives(mutant: Mutant, folder: Path) -> bool:
    """True if the test passes on the broken copy."""
    package = folder / "src" / "coke"
    (path,) = package.rglob(mutant.file)
    text = path.read_text("utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.what}: {mutant.old!r} stands {text.count(mutant.old)} times")
    path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    tests = os.pathsep.join([str(folder / "src"), str(ROOT / "tests")])
    file, _, name = mutant.test.partition("::")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--no-header"]
    (where,) = (ROOT / "tests").rglob(file)
    command += [str(where), *(["-k", name] if name else [])]
    env = {**os.environ, "PYTHONPATH": tests, "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    path.write_text(text, "utf-8")
    if run.returncode not in (0, 1):
        raise SystemExit(f"{mutant.what}: pytest could not run:\n{run.stdout[-2000:]}")
    if " passed" not in run.stdout and " failed" not in run.stdout:
        raise SystemExit(f"{mutant.what}: {mutant.test} was skipped; set COKE_DATA")
    return run.returncode == 0


def main() -> int:
    """All mutants that were asked for, one after the other."""
    wanted = [m for m in MUTANTS if any(part in m.file for part in sys.argv[1:] or [""])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "src", folder / "src")
        alive = []
        for mutant in wanted:
            lives = survives(mutant, folder)
            print(
                f"{'SURVIVED' if lives else 'caught':9s} {mutant.what}  ({mutant.test})", flush=True
            )
            alive += [mutant.what] if lives else []
    print(f"{len(wanted) - len(alive)} of {len(wanted)} mutants caught")
    return int(bool(alive))


if __name__ == "__main__":
    sys.exit(main())
