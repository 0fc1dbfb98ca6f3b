# The few verbs a person types. Each creates what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NICE ?=

.PHONY: demo test check bench docs kafka help

help:                           ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip

$(VENV)/.base: $(BIN)/python setup.cfg
	$(BIN)/pip install -q -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/pip install -q -e '.[dev,spark]'
	@touch $@

kafka: $(VENV)/.base            ## fetch Apache Kafka with Maven, start it once, stop it
	$(BIN)/python -m faust_assigner.testing.kafka

check: $(VENV)/.dev             ## ruff, mypy --strict, import-linter, docs build
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict --quiet

test: $(VENV)/.dev kafka        ## all tests
	$(BIN)/pytest
