# The server tests, with a vLLM of their own; `include` it in the Makefile.
SERVERS_PYTHON ?= $(PYTHON)
SERVERS := .venv-servers

.PHONY: test-servers

test-servers: $(DEV)  ## Run the tests against a real vLLM on the CPU.
	$(SERVERS_PYTHON) tests/support/servers/make_environment.py $(SERVERS)
	$(BIN)/python -m pytest -q tests/system/servers --vllm $(SERVERS)
