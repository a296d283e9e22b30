# Two commands on a fresh machine: `make demo` and `make test`. Each does all its set-up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
export OMP_WAIT_POLICY = passive

# uv where it is there, else venv and pip (a recent one, for dependency groups).
ifneq ($(shell command -v uv 2>/dev/null),)
  CREATE := uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
  INSTALL := uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
else
  CREATE := $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --constraint constraints.txt pip
  INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
endif

.PHONY: demo test lint types bench docs clean help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/'

$(BIN)/.run: pyproject.toml constraints.txt
	$(CREATE)
	$(INSTALL) --editable '.[train,plot]'
	@touch $@

$(BIN)/.dev: $(BIN)/.run
	$(INSTALL) --editable '.[train,root,plot,search,tune,onnx,dask]' --group dev
	$(INSTALL) --only-binary pythia8mc --only-binary fastjet --editable '.[sim]' || \
	    echo 'could not install Pythia: the tests that need it will be skipped' >&2
	@touch $@

demo: $(BIN)/.run  ## the main job, end to end, on the sample that ships with the package
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh $(DEMO)

test: lint types  ## style, types and tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(BIN)/.dev  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.dev
	$(BIN)/mypy

$(BIN)/.bench: $(BIN)/.dev
	$(INSTALL) --group bench
	@touch $@

bench: $(BIN)/.bench  ## throughput and memory, ratios measured side by side in one run
	$(BIN)/python -m benchmarks

docs: $(BIN)/.dev  ## HTML documentation in docs/_build
	$(BIN)/sphinx-build -W -q -b html docs docs/_build

clean:
	rm -rf $(DEMO) docs/_build .pytest_cache .mypy_cache .ruff_cache
