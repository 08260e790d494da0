PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PORT ?= 7860

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo test test-heavy lint format clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"SAKURA needs Python 3.11 or newer; {sys.executable} is {v[0]}.{v[1]}. Set PYTHON=python3.11.")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): requirements.txt | $(VENV)/bin/python
	@echo "Installing the packages of requirements.txt (several minutes the first time)"
	@$(BIN)/python -m pip install --progress-bar on -r requirements.txt
	@touch $@

$(STAMP)-dev: requirements-dev.txt $(STAMP)
	@echo "Installing the packages of requirements-dev.txt"
	@$(BIN)/python -m pip install --progress-bar on -r requirements-dev.txt
	@touch $@

install: $(STAMP)  ## install what the page needs into .venv

install-dev: $(STAMP)-dev  ## install what the tests and linters need as well

demo: install  ## serve the page at http://127.0.0.1:7860 (PORT=... for another port)
	@$(BIN)/python app.py --port $(PORT)

test: install-dev  ## run the tests
	$(BIN)/python -m pytest

test-heavy: install-dev  ## run the tests that take minutes
	$(BIN)/python -m pytest -m heavy

lint: install-dev  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install-dev  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and what the tools left
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
