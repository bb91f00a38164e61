# Commands of the book; `make` lists them. Each makes what it needs first: nothing else has to be typed.
#
# `.venv` holds the pinned environment: requirements.txt for whoever reads and runs the book; commands that prove or print
# it add requirements-test.txt; constraints.txt pins what these two leave open. Both are completed again whenever one of
# these files or pyproject.toml changes.

PYTHON ?= python3
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
SINCE ?=
ONLY ?=
PATIENCE ?= 600
# An index with other builds of torch, as https://download.pytorch.org/whl/cpu. Torch alone is taken from there: beside a second
# index pip would take any name from whoever offers the highest version.
TORCH_INDEX ?=

VENV := .venv
# Node's packages: for tests of the explorers, and whoever changes a script. The book itself needs none.
PACKAGES := $(if $(shell command -v npm 2>/dev/null),node_modules/.ready)
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test
# Modules are compiled when they are first imported, not all 19 000 of them now. So Python must be allowed to keep the
# result: some machines forbid it, and each page's kernel would compile torch again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# As the book runs its pages: processes beside each other, one thread each, so that sums are added in one order.
THREADS ?= 1
ONE_THREAD := OMP_NUM_THREADS=$(THREADS) MKL_NUM_THREADS=$(THREADS) OPENBLAS_NUM_THREADS=$(THREADS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help ready book html student notebooks pins test check format lint lint-and-unit unit weekly close nbval processors browser bench times scripts clean

help:  ## list the commands
	@echo "Attention, Checked. Commands (JOBS=n sets the number of processes, here $(JOBS); PYTHON=... the Python 3.11+ to use):"
	@sed -n 's/^\([a-z]*\):.*##\( .*\)/  make \1@ \2/p' $(firstword $(MAKEFILE_LIST)) | awk -F@ '{ printf "%-18s%s\n", $$1, $$2 }'

ready: $(READY)  ## make the environment only: enough to rerun a page

book: $(READY)  ## run every page on this machine, then render the HTML (PIN=COMMIT: pages in Colab install that one)
	$(RUN) -m attnlib book --jobs $(JOBS) $(if $(PIN),--pin $(PIN))
	$(if $(PIN),$(RUN) -m pip wheel --quiet --no-deps --wheel-dir _build/notebooks/wheel/$(PIN) .)

html: $(READY)  ## render the HTML from the stored outputs; nothing is run
	$(RUN) -m attnlib html

student: $(READY)  ## render the edition without solutions, with notebooks that check answers
	$(RUN) -m attnlib html --edition student

notebooks: $(READY)  ## run every page and renew its stored outputs
	$(RUN) -m attnlib notebooks

# After a pin changed: pip chooses the rest anew, in an environment of its own.
pins:  ## choose anew what requirements*.txt leave open, and write constraints.txt
	rm -rf _build/pins
	$(PYTHON) -m venv _build/pins
	_build/pins/bin/python -m pip install --quiet -r requirements-test.txt
	sed '/^[^#]/,$$d' constraints.txt >_build/pins/constraints.txt
	_build/pins/bin/python -m pip freeze --exclude-editable -r requirements.txt -r requirements-test.txt | sed '1,/^## /d' >>_build/pins/constraints.txt
	mv _build/pins/constraints.txt constraints.txt
	rm -rf _build/pins

# The book is rendered, on one core, beside the cheap checks and the unit tests; it shows the outputs that nbval then proves.
test: $(READY_TEST)  ## prove everything: lint, rendering, unit tests, stored outputs, pages in the browser
	$(MAKE) -j 2 html lint-and-unit
	$(MAKE) nbval
	$(MAKE) browser

lint-and-unit: lint
	$(MAKE) unit

lint: $(READY_TEST)  ## check the style of the code, its types, and who imports whom
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

format: $(READY_TEST)  ## write the code in the style that lint asks for: layout, order of imports
	$(RUN) -m ruff check --select I --fix .
	$(RUN) -m ruff format .

# SINCE: the commit to compare with, unless it is the one where this branch left main.
check: $(READY_TEST)  ## a minute or two, while you work: lint, no claim half made, and the fast unit tests that your change reaches
	$(MAKE) lint
	$(ONE_THREAD) $(RUN) -m tests.check --jobs $(JOBS) $(if $(SINCE),--since $(SINCE))

# The tests that need Node find its packages, where the machine has npm. Each worker gets a run of files (worksteal), and what is
# left of another's when it has done its own: a study that a file's tests share is computed once, and all workers end together.
# One worker more than processes: many tests wait for a kernel, a scheduler or Sphinx. Every worker imports every file of tests, so
# those of the browser are not even looked at.
unit: $(READY_TEST) $(PACKAGES)  ## unit tests
	$(ONE_THREAD) $(RUN) -m pytest tests -m "not browser and not weekly" --ignore tests/browser -n $$(($(JOBS) + 1)) --dist worksteal --durations 20

weekly: $(READY_TEST) $(PACKAGES)  ## unit tests that are slow and guard what seldom changes
	$(ONE_THREAD) $(RUN) -m pytest tests -m weekly -n $(JOBS) --dist worksteal --durations 20

close:  ## unit tests once more, red where floats are equal only just: another processor may refuse them
	PYTEST_ADDOPTS="-p tests.close_calls" $(MAKE) unit

# One page stays on one worker (loadscope): its cells share a kernel. One more worker than cores, for kernels take a while to start.
# PATIENCE: seconds for a cell.
nbval: $(READY_TEST)  ## run every page and compare with its stored outputs
	$(ONE_THREAD) $(RUN) -m pytest --nbval --nbval-current-env --nbval-cell-timeout $(PATIENCE) --timeout $(PATIENCE) notebooks -n $$(($(JOBS) + 1)) --dist loadscope

# ONLY: the machines' names, unless it is to be all of them.
processors: $(READY_TEST) $(PACKAGES)  ## unit tests and pages as other processors would run them (half an hour)
	$(RUN) -m bookkit.pages.processors $(if $(ONLY),--only $(ONLY)) -- $(MAKE) unit nbval
	@# And with exp, log and erf off by a relative 2^-46: more than any two processors differ.
	PYTEST_ADDOPTS="-p tests.shaken" $(MAKE) unit

browser: $(READY_TEST) $(PACKAGES)  ## look at the built pages in headless Chromium
	$(RUN) -m pytest tests/browser -m browser -n $(JOBS) --dist worksteal

bench: $(READY_TEST)  ## measure the speed of the loops against the naive form, and write its tables
	$(RUN) -m benchmarks

times: $(READY)  ## measure how long each page runs: figures say it
	$(RUN) -m bookkit.pages.times

scripts: node_modules/.ready  ## build the explorers' scripts from book/scripts/ and make their data (needs Node)
	$(RUN) -m attnbook.explorers
	$(RUN) -m attnbook.story
	node book/scripts/build.mjs

clean:  ## remove what was built, also kept results of pages; the environment stays
	rm -rf _build .mypy_cache .pytest_cache .ruff_cache

node_modules/.ready: package.json package-lock.json
	@command -v npm >/dev/null || { echo "error: this needs Node and npm: sudo apt-get install nodejs npm" >&2; exit 2; }
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(READY): requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or later is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 2; }
	@# An environment of another Python cannot be mended.
	@if [ -x $(RUN) ] && [ "$$($(RUN) -c 'import sys; print(sys.version_info[:2])')" != \
	  "$$($(PYTHON) -c 'import sys; print(sys.version_info[:2])')" ]; then rm -rf $(VENV); fi
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(INSTALL) --no-deps --index-url $(TORCH_INDEX) $(shell sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.txt))
	$(INSTALL) -r requirements.txt
	@# Compiles what every page imports. And matplotlib would remark, in the output of the first page, that it lists the fonts.
	$(RUN) -c 'import ipykernel.kernelapp, matplotlib.font_manager, matplotlib.pyplot, numba, papermill, scipy.stats, torch'
	@touch $@

$(READY_TEST): requirements-test.txt constraints.txt $(READY)
	$(INSTALL) -r requirements-test.txt
	@touch $@
