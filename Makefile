# `make help` lists what can be made. Variables are given on the command line:
#   make train ARGS="algo=impala env=cartpole"
#   make setup PYTHON=python3.12 TORCH_INDEX=https://download.pytorch.org/whl/cpu
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

PYTHON ?=
TORCH_INDEX ?=
ARGS ?=
PYTEST_ARGS ?=
export PYTHON TORCH_INDEX

BIN := .venv/bin
BASE := .venv/.installed-base
DEV := .venv/.installed-dev
INPUTS := pyproject.toml constraints.txt scripts/setup.sh
FOOTBALL := scripts/install_football.sh scripts/football_wheel.py

# Another interpreter, or another build of torch, than the one installed is a reason to install again.
ifneq ($(TORCH_INDEX),)
ifneq ($(TORCH_INDEX),$(shell cat .venv/torch-index 2>/dev/null))
CHANGED := again
endif
endif
ifneq ($(PYTHON),)
VERSION := import sys; print(sys.version_info[:2])
ifneq ($(shell { $(PYTHON) -c '$(VERSION)'; } 2>/dev/null),$(shell { $(BIN)/python -c '$(VERSION)'; } 2>/dev/null))
CHANGED := again
endif
endif

.PHONY: help setup setup-dev football train test lint format typecheck clean distclean again

help:  ## Show this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1 \2/p' $(MAKEFILE_LIST) | \
	  while read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done
	@printf '%s\n' '' 'Variables:' \
	  '  ARGS="..."         what `make train` passes to lamarck: ARGS="algo=impala seed=1"' \
	  '  PYTEST_ARGS="..."  what `make test` passes to pytest: PYTEST_ARGS="-m '"'not slow'"'"' \
	  '  PYTHON=...         the Python to use, 3.11 to 3.13; the first that fits by default' \
	  '  TORCH_INDEX=URL    the index to take torch from; by default the one pip uses, which on' \
	  '                     Linux usually means CUDA (3 GB). The CPU build (200 MB) is at' \
	  '                     https://download.pytorch.org/whl/cpu'

setup: $(BASE)  ## Make .venv and install everything that training needs

setup-dev: $(DEV)  ## The same with what the tests need

football: $(BASE)  ## Build and install the football engine (minutes the first time)
	@scripts/install_football.sh

train: $(BASE)  ## Train: PPO on Pong, or as ARGS say
	@$(BIN)/lamarck train $(ARGS)

test: $(DEV)  ## Check style and types, and run the whole test suite
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(DEV)  ## Check style
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(DEV)  ## Mend style where that can be done by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

typecheck: $(DEV)  ## Check types
	$(BIN)/mypy

clean:  ## Remove caches and built packages
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## Remove .venv as well; run folders stay
	rm -rf .venv

$(BASE): $(INPUTS) $(CHANGED)
	@scripts/setup.sh base
	@touch $@

# The tests' environment holds all that training needs, so one installation serves both.
$(DEV): $(INPUTS) $(FOOTBALL) $(CHANGED)
	@scripts/setup.sh dev
	@touch $(BASE) $@
