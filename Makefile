# `make demo` and `make test` need Python and nothing else: each creates the environment and installs what it uses.
# Stamp files record what is installed, so that a second run starts at once.
#
#   make test VENV=/some/where PYTHON=python3.12 PYTEST_ARGS="-k contraction"

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint types contracts format api check clean

help:
	@echo "make demo       run the digits example (no PyTorch needed)"
	@echo "make test       run all tests"
	@echo "make lint       ruff: rules and formatting"
	@echo "make types      pyright, strict, over qfuse/"
	@echo "make contracts  import-linter: who may import whom"
	@echo "make check      lint, types and contracts"
	@echo "make format     ruff: apply formatting and safe fixes"
	@echo "make api        write tests/api/public_api.txt anew"
	@echo "make clean      remove .venv and all caches"

demo: $(STAMPS)/demo
	$(BIN)/python examples/digits/demo.py

test: $(STAMPS)/test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMPS)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMPS)/test
	$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python

contracts: $(STAMPS)/test
	$(BIN)/lint-imports

check: lint types contracts

format: $(STAMPS)/test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

api: $(STAMPS)/test
	$(BIN)/python tests/api/test_public_api.py --update

$(STAMPS)/venv:
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/demo: pyproject.toml $(STAMPS)/venv
	@echo "installing qfuse[iree] into $(VENV)"
	@$(PIP_INSTALL) --editable ".[iree]"
	@touch $@

$(STAMPS)/test: pyproject.toml $(STAMPS)/venv
	@echo "installing qfuse[dev,iree,torch,tosa] into $(VENV)"
	@$(PIP_INSTALL) --editable ".[dev,iree,torch,tosa]"
	@touch $@
	@touch $(STAMPS)/demo

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
