# The recipes on real engines, in an environment of their own; `include` it in the Makefile.
# Spark needs Java 17 or later.
ENGINES := .venv-engines

.PHONY: test-engines

test-engines: $(DEV)  ## Run the recipes for Spark, Ray and Dask on local clusters.
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[arrow]' --group engines
	$(BIN)/python -m pytest -q tests/system/engines --engines $(ENGINES)
