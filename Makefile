# Everything a fresh machine needs: Python >= 3.11, make, git, a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-explore check bench bench-model bench-prep bench-loader audit clean install

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(STAMP) ## make .venv and install the pinned dependencies

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "permcode needs Python >= 3.11: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/permcode doctor --build || { \
		echo "make: fix the lines that begin with error as they say after ->, then run the same command again" >&2; \
		exit 1; }
	@touch $@

demo: $(STAMP) ## all stages on the Python code of this machine: runs/demo
	$(BIN)/permcode run --recipe demo --out runs/demo

test: $(STAMP) ## the test suite but what is slow or needs a GPU (three files at a time)
	$(BIN)/python -m pytest -m 'not gpu and not slow' -n 3 --dist loadfile --no-loadscope-reorder

test-slow: $(STAMP) ## the slow tests that `make test` leaves out
	$(BIN)/python -m pytest -m slow

test-explore: $(STAMP) ## the property tests alone, with ten times as many examples, drawn anew; a failure says how to repeat it
	$(BIN)/python -m pytest -m 'not gpu' -n 2 --timeout 3600 --hypothesis-profile explore

check: $(STAMP) ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

audit: .venv-audit/.installed ## compare the pinned packages with known advisories (needs the network)
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

.venv-audit/.installed:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet 'pip-audit>=2.10,<3'
	@touch $@

bench: $(STAMP) ## how the share of predicted tokens changes a training step's cost
	$(BIN)/python -m benchmarks.pretrain_step

bench-model: $(STAMP) ## the model beside Hugging Face's XLNet and GPT-2: step, gradients, memory, generation (half an hour; QUICK=1 for a taste)
	rm -rf runs/bench-model
	$(BIN)/python -m benchmarks.model_step $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.model_gradients $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.model_memory $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.model_generation $(if $(QUICK),--quick)

BENCH := runs/bench-prep
PEERS := .venv-bench/bin/python

bench-prep: $(STAMP) .venv-bench/.installed ## prep's stages and the whole of it beside their peers, on this machine's code (20 minutes)
	rm -rf $(BENCH)
	mkdir -p $(BENCH)
	$(BIN)/python -m benchmarks.prep_corpus $(BENCH)/corpus --copies 4
	$(BIN)/python -m benchmarks.prep_tokenizer $(BENCH)/corpus $(BENCH)/tokenizer.json
	$(BIN)/python -m benchmarks.prep_speed $(BENCH)/corpus --peers $(PEERS) --tokenizer $(BENCH)/tokenizer.json
	$(BIN)/python -m benchmarks.prep_end_to_end $(BENCH)/corpus --peers $(PEERS) --tokenizer $(BENCH)/tokenizer.json
	$(BIN)/python -m benchmarks.prep_growth $(BENCH)/corpus --larger $(BENCH)/corpus-4

.venv-bench/.installed: benchmarks/peers.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --requirement benchmarks/peers.txt
	@touch $@

bench-loader: $(STAMP) .venv-bench-loader/.installed ## the lanes' reader beside webdataset, mosaicml-streaming and litdata (5 minutes)
	rm -rf runs/bench-loader
	$(BIN)/python -m benchmarks.loader_corpus runs/bench-loader
	.venv-bench-loader/bin/python -m benchmarks.loader_peers write runs/bench-loader
	$(BIN)/python -m benchmarks.loader_speed runs/bench-loader --peers .venv-bench-loader/bin/python

.venv-bench-loader/.installed: benchmarks/loader_peers.txt
	$(PYTHON) -m venv .venv-bench-loader
	.venv-bench-loader/bin/pip install --quiet --requirement benchmarks/loader_peers.txt
	@touch $@

clean: ## remove build products and caches (runs/ and .venv stay)
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
