# Everything a user or a developer starts by name. Nothing here asks for a GPU or a compiler.
#
#   make quickstart   the first run: trains a small model in about four minutes and reports on it
#   make test         the everyday suite
#   make lint         format, lint, types and import contracts
#   make check        what a change must pass: lint and test
#   make interop      the comparisons with other libraries
#   make proof        the long proofs; minutes, and seconds are asserted
#   make bench        measures speed and prints a table
#   make docs         builds the documentation site into site/; a broken link is an error
#   make docs-test    runs the commands of README and docs, shortened; minutes
#
# The packages go into .venv, once, and again when pyproject.toml or constraints.txt change.
# A special build of torch (for a GPU, say) comes from an index of your own: make test TORCH_INDEX=...

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
TORCH := torch==2.13.0

ready := $(VENV)/.ready
run := $(VENV)/bin/python
pip := $(run) -m pip --disable-pip-version-check install --quiet

.PHONY: quickstart test lint check format interop parity methods proof bench docs docs-test setup clean

quickstart: $(ready)
	$(VENV)/bin/maskwright quickstart

test: $(ready)
	$(run) -m pytest -n 2 --dist worksteal tests

lint: $(ready)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

check: lint test

format: $(ready)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

interop: $(ready)
	$(run) -m pytest -n 2 -m interop tests
	$(run) tests/interop/run.py

parity: $(ready)
	PYTHONPATH=tests $(run) -m parity.table

methods: $(ready)
	PYTHONPATH=tests $(run) -m conformance.method_table

proof: $(ready)
	$(run) -m pytest -m proof tests

bench: $(ready)
	$(run) -m benchmarks.pretrain
	@if [ -n "$$MASKWRIGHT_DATA" ]; then $(run) -m benchmarks.shakespeare time; \
	else echo "benchmarks.shakespeare reads the real texts in MASKWRIGHT_DATA, which is not set"; fi

docs: $(ready)
	@test -x $(VENV)/bin/zensical || $(pip) -e '.[docs]' -c constraints.txt
	$(VENV)/bin/zensical build --clean --strict

docs-test: $(ready)
	$(run) -m pytest -m proof tests/laws/test_docs.py

setup: $(ready)

# torch first and without what it needs, so that TORCH_INDEX is asked for torch alone; the second
# line completes it.
$(ready): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Maskwright needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Choose another with: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV) (once; a few minutes on a slow line)"
	@test -x $(run) || $(PYTHON) -m venv $(VENV)
	@$(pip) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) --no-deps $(TORCH)
	@$(pip) -e '.[data,curate,vision,serve,export,gguf,hf,clients,dev]' -c constraints.txt
	@touch $@

clean:
	rm -rf $(VENV)
