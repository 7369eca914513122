# Roamcast: every target sets up what it needs, without root. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE := $(VENV)/.site
EXTRAS := dev
# The lock's versions on the Python that it is for; on others its lines do not apply, and pip takes the newest.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock
QUICK := not spark and not realtime and not long
# Bytecode is kept, whatever the machine's own setting: the tests start hundreds of processes of this package.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint types quick unit coverage pictures docs hooks lock bench emulation torture reproduce league clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY)  ## the virtual environment with everything in it

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Roamcast needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(INSTALL) --editable '.[$(EXTRAS)]'
# Spark needs Java 17 or newer. Where the machine has none, PyPI's runtime stands in.
	$(BIN)/python -m roamcast.lab.spark.java --quiet || $(INSTALL) --editable '.[$(EXTRAS),java]'
	touch $(READY)

demo: $(READY)  ## the main job in small: one scenario, every strategy, to an HTML report
	rm -rf out/demo
	$(BIN)/roamcast demo --out out/demo

# Side by side: mypy has one process, and takes half a minute in a fresh clone.
check: lint  ## lint, types and the tests that need no Spark, no real time and no long computation; about 65 seconds on 2 cores
	$(MAKE) --no-print-directory --jobs 2 types quick

test: lint  ## lint, types and all tests; about seven minutes on 2 cores
	$(MAKE) --no-print-directory --jobs 2 types unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

quick: $(READY)
	$(BIN)/pytest -n 2 -m "$(QUICK)"

# A process needs up to 400 MB beside Spark and a browser.
WORKERS ?= 2
unit: $(READY)
	$(BIN)/pytest -n $(WORKERS)

coverage: $(READY)  ## which lines and branches the tests of `make check` reach; the report is out/coverage/index.html
	$(BIN)/pytest -n 2 -m "$(QUICK)" --cov --cov-report=term --cov-report=html:out/coverage

pictures: $(READY)  ## the documentation's pictures, from real runs in a headless Chromium; writes docs/images
	$(BIN)/python -m tools.pictures

docs: $(SITE)  ## the documentation site, in build/site; broken links and references fail
	$(BIN)/zensical build --strict --clean

$(SITE): $(READY)
	$(INSTALL) --editable '.[docs]'
	touch $(SITE)

hooks: $(READY)  ## lint and types before each commit
	$(BIN)/pre-commit install

lock:  ## requirements.lock anew: the newest versions that fit together
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "the lock is for Python 3.11; name one: make lock PYTHON=python3.11")'
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS),docs,java]'
	echo '# The versions that Roamcast is tested with; a constraints file for pip, made by `make lock`.' > build/lock.txt
	build/lock/bin/pip --disable-pip-version-check freeze --all --exclude pip --exclude-editable | sed -n 's/^[A-Za-z0-9._-]*==[^ ]*$$/& ; python_version == "3.11"/p' >> build/lock.txt
	mv build/lock.txt requirements.lock

# ONLY="matching simulator": some of them. RECORD="a note": the run becomes a row of benchmarks/series.jsonl.
bench: $(READY)  ## the speed and memory goals, as ratios; fails on a loss of more than 15% since the last recorded run
	$(BIN)/python benchmarks/series.py $(ONLY) $(if $(RECORD),--record "$(RECORD)")

emulation: $(READY)  ## real nodes in namespaces against the bars of docs/study/emulation.md; half an hour, real time
	$(BIN)/python -m tests.runtime.emulate.interoperation
	$(BIN)/python benchmarks/emulation.py

torture: $(READY)  ## the long suites: 10,000 random schedules of the tree and of the handoff, property tests at length, nodes killed at random; hours
	$(BIN)/pytest -n 2 --timeout 3600 tests/torture

SEED ?= 501
RESUME ?=  # --resume: go on with an interrupted one
PROFILE ?= quick
reproduce: $(READY)  ## the papers' figures, ours beside theirs, to a page; PROFILE=full writes docs/protocols/results.md and README
	$(BIN)/roamcast reproduce --profile $(PROFILE) --seed $(SEED) --out out/reproduction/$(PROFILE) $(RESUME) \
		$(if $(filter full,$(PROFILE)),--page docs/protocols/results.md --counts README.md)

league: $(READY)  ## every strategy in the same dozen scenarios, ten seeds that nothing was tuned on; writes docs/study/league.md and the verdict in README.md
	$(BIN)/roamcast league --profile full --seed 901 --out out/league --page docs/study/league.md --verdict README.md

clean:  ## forget the virtual environment and everything built
	rm -rf $(VENV) build out .mypy_cache .ruff_cache .pytest_cache .hypothesis
