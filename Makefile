# Everything a fresh machine needs: Python >= 3.11, make, git, a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow check bench clean install

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(STAMP) ## make .venv and install the pinned dependencies

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "permcode needs Python >= 3.11: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/permcode doctor --build
	@touch $@

demo: $(STAMP) ## the whole road on the Python code of this machine: runs/demo
	$(BIN)/permcode run --recipe demo --out runs/demo

test: $(STAMP) ## the whole test suite but the slow marks (under 12 minutes on 2 cores)
	$(BIN)/python -m pytest -m 'not slow and not gpu'

test-slow: $(STAMP) ## the tests marked slow
	$(BIN)/python -m pytest -m slow

check: $(STAMP) ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP) ## the benchmarks behind the numbers in the docs
	$(BIN)/python -m benchmarks.pretrain_step

clean: ## remove build products and caches (runs/ and .venv stay)
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
