# Two commands do everything on a machine with Python 3.11+ and make: `make run`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out/digits
# One BLAS thread: the matrices are small, and two threads only get in each other's way.
export OPENBLAS_NUM_THREADS ?= 1

BENCHES := start fit classes weigh outputs simulate online agreement communication certificate protocol carrier flood soak kills chaos page serve field privacy fuzz liars streaming sweep mpi growth

.PHONY: bench-stations browser screens bench-model bench-compare bench-strange walk test-busy run test lint format docs package bench bench-short $(BENCHES:%=bench-%) mutants reproduce clean

run: $(VENV)/run.stamp
	$(BIN)/coke run --example digits --out $(OUT)

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile  # a file's fixtures are made once

# Beside eight busy loops: all tests once, those of processes three times (half an hour and more).
test-busy: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/busy.py $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pages that are made from code (a test compares them), and the site of all pages in out/site, without the network.
docs: $(VENV)/dev.stamp
	$(BIN)/python -c 'from pathlib import Path; from coke.settings.page import settings_page; \
		Path("docs/settings.md").write_text(settings_page(), "utf-8")'
	$(BIN)/python -m sphinx -W --keep-going -q -E -b html -d out/site-cache docs out/site

# The sdist and the wheel, checked; the wheel with its dependencies in an empty environment runs the README's example.
package: $(VENV)/dev.stamp
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv dist/empty
	dist/empty/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	$(BIN)/python tests/kit/readme.py > dist/empty/example.py
	cd dist/empty && bin/python -I example.py && bin/coke --version

# Each prints its figures with the machine's floors beside them, and fails on a missed promise.
$(BENCHES:%=bench-%): bench-%: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/$*.py $(ARGS)

# The error of the chosen model on tables, beside boosted trees (half an hour; needs the data sets).
bench-model: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/model.py $(ARGS)

# `coke compare` on every data set, 20 000 rows of each at most (an hour at most; needs the data sets).
bench-compare: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/compare.py $(ARGS)

# Chromium, for `make screens` alone; from the system's packages.
browser:
	tools/browser.sh

# The report of `make run` as a browser shows it, as PNG in out/, to be looked at; other pages by ARGS.
screens: $(VENV)/dev.stamp
	$(BIN)/coke run --example digits --out $(OUT)
	$(BIN)/python benchmarks/screens.py $(OUT)/report.html $(ARGS)

# Twelve agents on streams in fast time, killed and away (some ten minutes).
bench-stations: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/twelve.py $(ARGS)

# The choice on tables of many kinds, generated and bundled (a quarter of an hour).
bench-strange: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/strange.py $(ARGS)

# Every figure of docs/performance.md with the machine's floors, in one run of about ten minutes.
bench: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/everything.py --keep

# The ratios of speed with small sizes and half of every goal; CI runs it.
bench-short: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/everything.py --short

# Needs the data sets: `coke data fetch NAME`, or their folder in COKE_DATA.
reproduce: $(VENV)/run.stamp
	$(BIN)/coke reproduce all --out out/reproduction
	$(BIN)/python benchmarks/reproduction.py out/reproduction/reproduction.json

# The way of a row through the package on every face, in switches between modules.
walk: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/walk.py $(ARGS)

mutants: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/mutants.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) --version 2>&1): coke needs 3.11 or later; set PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/run.stamp

clean:
	rm -rf $(VENV) out dist docs/tutorials .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
