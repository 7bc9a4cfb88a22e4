# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-slow lint types clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(STAMP)
	$(BIN)/python -m benchmarks.demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

test: lint types
	$(BIN)/pytest -n 2

test-slow: $(STAMP)
	$(BIN)/pytest -m slow

bench-%: $(STAMP)
	$(BIN)/python -m benchmarks.$*

clean:
	rm -rf .venv demo .mypy_cache .ruff_cache .hypothesis
