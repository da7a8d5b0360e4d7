# Everything here needs only make, a python3 (3.11 or later) and a package index.
# PYTHON=... names the interpreter to use; VENV=... the environment to make.

VENV ?= .venv
MAXTEXT_VENV ?= .venv-maxtext
PYTHON ?=
BIN := $(VENV)/bin
INSTALL = sh scripts/install.sh $(VENV)

.DEFAULT_GOAL := help
.PHONY: help plan maxtext test test-slow check lint types layers rules pages docs smoke clean
.NOTPARALLEL:

help:  ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

plan: $(VENV)/core.stamp  ## Plan Llama 3.1 70B on 64 Ironwood chips.
	@$(BIN)/ridgeline train llama3.1-70b --on tpu7x:4x4x4 --global-batch 256 --seq-len 8192 --tokens 15T

maxtext: $(MAXTEXT_VENV)/maxtext.stamp  ## Install MaxText in an environment of its own, for `compile`.

test: $(VENV)/test.stamp  ## Run the tests, without the slow ones.
	@$(BIN)/python -m pytest -q

test-slow: $(VENV)/test.stamp  ## Run the slow tests.
	@$(BIN)/python -m pytest -q -m slow

check: lint types layers rules pages  ## Lint, types, layers, house rules, documentation.

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/dev.stamp
	$(BIN)/basedpyright

layers: $(VENV)/dev.stamp
	$(BIN)/lint-imports

rules: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q tests/structure

pages: $(VENV)/dev.stamp
	$(BIN)/python docs/generate.py --check

docs: $(VENV)/core.stamp  ## Write the generated parts of README.md and docs/ again.
	@$(BIN)/python docs/generate.py

smoke: $(VENV)/test.stamp  ## Import everything, ask for help, run the doctests.
	@$(BIN)/python --version
	@$(BIN)/ridgeline --help > /dev/null
	@$(BIN)/python -m pytest -q src

clean:  ## Remove the virtual environment and all caches.
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(MAXTEXT_VENV)/maxtext.stamp: src/ridgeline/export/maxtext_0_2_5.toml
	@sh scripts/maxtext.sh $(MAXTEXT_VENV) $(PYTHON)
	@touch $@

$(VENV)/core.stamp: pyproject.toml constraints.txt
	@$(INSTALL) '.' $(PYTHON)
	@touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt
	@$(INSTALL) '.[test]' $(PYTHON)
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	@$(INSTALL) '.[dev]' $(PYTHON)
	@touch $@
