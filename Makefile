# Everything from a fresh clone, with Python 3.10 or later and make alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The versions that the tests are known to pass with; `make constraints` raises them.
PINS := -c constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
NEWEST := .venv-newest

.PHONY: help demo test test-all net test-newest constraints lint format docs bench clean

help:  ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(RUN)  ## Answer questions over generated private records, ordinary and private.
	$(BIN)/dpicl demo

test: $(DEV)  ## Run the tests.
	$(BIN)/python -m pytest -n auto -q

net: $(DEV)  ## Run the tests of promises alone.
	$(BIN)/python -m pytest -n auto -q --dist loadfile tests/unit_tests tests/integration_tests

test-all: $(DEV)  ## Run all tests with more examples, the whole matrix and the engines: hours.
	DPICL_SUITE=whole $(BIN)/python -m pytest -n auto -q
	$(MAKE) test-servers test-engines

test-newest:  ## Run all tests with the newest versions that pyproject.toml allows.
	rm -rf $(NEWEST)
	$(MAKE) test VENV=$(NEWEST) PINS=

constraints: test-newest  ## Raise constraints.txt to what test-newest has passed with.
	$(MAKE) lint docs VENV=$(NEWEST) PINS=
	$(NEWEST)/bin/python tests/support/write_constraints.py constraints.txt

lint: $(DEV)  ## Check style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/support/check_types.py
	$(BIN)/python tests/support/line_budgets.py

format: $(DEV)  ## Put style right where a tool can.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)  ## Build the site into docs/_build/html; a warning is an error.
	$(BIN)/python -m sphinx -n -W --keep-going -q docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

bench: $(DEV)  ## Measure speed; each figure beside what it is compared with.
	$(BIN)/python -m benchmarks speed

# make test-servers: the server tests on a real vLLM, in an environment of its own.
include tests/support/servers/servers.mk

# make test-engines: the recipes for Spark, Ray and Dask, on the engines themselves.
include tests/support/engines/engines.mk

# make test-models: a small real model and encoder, in an environment of its own.
include tests/support/models/models.mk

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 10) else "langchain-dpicl needs Python 3.10 or later, and $(PYTHON) is %d.%d: run make PYTHON=python3.12" % v[:2])'
	@$(PYTHON) -m venv $(VENV) || { echo "Python has no venv module: install it (python3-venv on Debian)."; exit 1; }

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing langchain-dpicl into $(VENV) (a minute or two, once) ..."
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) $(PINS) --editable .
	@touch $@

$(DEV): pyproject.toml constraints.txt $(RUN)
	@echo "Installing the test and lint tools into $(VENV) ..."
	@$(PIP) $(PINS) --group test --group lint
	@touch $@

$(DOCS): pyproject.toml constraints.txt $(RUN)
	@echo "Installing Sphinx into $(VENV) ..."
	@$(PIP) $(PINS) --group docs
	@touch $@

clean:  ## Remove what was installed and built.
	rm -rf $(VENV) $(NEWEST) $(SERVERS) $(ENGINES) $(MODELS) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build docs/_build docs/reference/api docs/reviewers/proofs .demo
