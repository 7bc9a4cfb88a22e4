# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Python compiles what is imported; to compile all of every package takes longer than to install it.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

.PHONY: setup setup-bench lock sbom soak speed-records demo test test-slow test-faults lint types docs docs-links results-page drawings clean

# Container images often forbid Python to keep what it has compiled; every command would compile PyTorch again.
unexport PYTHONDONTWRITEBYTECODE

# Several test processes share the cores: one thread each. Benchmarks set their own.
demo test test-slow test-faults: export OMP_NUM_THREADS = 1

setup: $(STAMP)

$(STAMP): requirements.lock requirements-torch.lock pyproject.toml setup.py
	$(PYTHON) -m venv .venv
# PyTorch beside the others, which are all in the lock; then what its wheel for this machine wants besides.
	$(INSTALL) --no-deps -r requirements-torch.lock & torch=$$!; \
	  $(INSTALL) --no-deps --require-hashes -r requirements.lock && wait $$torch
	$(INSTALL) -r requirements-torch.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

demo: $(STAMP)
	$(BIN)/python -m examples.demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy -n 2

test: lint types
	$(BIN)/pytest -n 2 --dist worksteal

# Damaged files for each reader, and kills of commands: docs/reliability.md.
CASES ?= 100
KILLS ?= 20

test-faults: $(STAMP)
	$(BIN)/python -m tests.faults --cases $(CASES) --kills $(KILLS) $(ARGS)

# Weeks in minutes: memory, many senders, jumping clocks, a full disk, a source that comes and goes, kills.
soak: $(STAMP)
	$(BIN)/python -m benchmarks.soak $(ARGS)

# After a change of requirements.in: hashes of every file that the index has of these versions.
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check uv
	.venv-lock/bin/uv pip compile requirements.in --no-deps --generate-hashes --no-annotate --quiet \
	  --custom-compile-command "make lock" --output-file requirements.lock
	.venv-lock/bin/uv pip compile requirements-docs.in --no-deps --generate-hashes --no-annotate --quiet \
	  --custom-compile-command "make lock" --output-file requirements-docs.lock
	.venv-lock/bin/uv pip compile requirements-run.in --no-deps --generate-hashes --no-annotate --quiet \
	  --custom-compile-command "make lock" --output-file requirements-run.lock
	.venv-lock/bin/uv pip compile requirements-bench.in --no-deps --generate-hashes --no-annotate --quiet \
	  --custom-compile-command "make lock" --output-file requirements-bench.lock

# What a release is made with: every pinned package with its hashes, as CycloneDX.
sbom:
	@mkdir -p dist
	$(PYTHON) -m pages.sbom dist/sbom.json

# Sionna, the peer of bench-simulate, wants other versions than we do: it gets its own environment.
setup-bench:
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-bench.lock
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -r requirements-torch.lock

bench-%: $(STAMP)
	$(BIN)/python -m benchmarks.$* $(ARGS)

# Records of speed, on two cores that nothing else uses; NAMES="measure files" makes only these.
speed-records: $(STAMP)
	@$(BIN)/python -m benchmarks.records $(NAMES)

study-real: $(STAMP)
	$(BIN)/python -m studies.real --data "$(DATA)" --out results/studies/real.json $(ARGS)
	$(BIN)/python -m pages.results

study-%: $(STAMP)
	$(BIN)/python -m studies.$* $(ARGS)

# What is committed and made from records or code: the results with their pictures, the drawings of the primer.
results-page: $(STAMP)
	$(BIN)/python -m pages.results

drawings: $(STAMP)
	$(BIN)/python -m pages.drawings

# The site, docs/_build/html. Its tools join the environment that the examples run in; nothing else needs them.
DOCS := .venv/.docs-installed
SPHINX := $(BIN)/python -m sphinx -W --keep-going -q -j 1 -d docs/_build/doctrees docs

$(DOCS): $(STAMP) requirements-docs.lock
	$(INSTALL) --require-hashes --no-deps -r requirements-docs.lock
	touch $@

docs: $(DOCS)
	$(SPHINX) docs/_build/html
	@echo docs/_build/html/index.html

# What takes minutes, the site among it.
test-slow: $(DOCS)
	$(BIN)/pytest -m slow

# Links to other sites; needs a network.
docs-links: $(DOCS)
	$(SPHINX) -b linkcheck docs/_build/links

clean:
	rm -rf .venv demo docs/_build docs/reference docs/gallery .mypy_cache .ruff_cache .hypothesis
