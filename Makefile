# omq: `make run` shows the whole at work, `make test` proves it. See README.md.
#
#   make setup              the environment in .venv, at the versions of constraints.txt
#   make run                real mail through an instance of its own; MAIL=path N=2000 CRASH=1
#   make test               all tests; ARGS="tests/unit -k names" to choose
#   make check              ruff, mypy strict, the tidy tests
#   make bench              speed and memory, as a table and JSON
#   make clean              takes away what these made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
TYPED := lib/omq $(wildcard tools/omqdemo tools/omqdump recovery/omqrecover) tests

.PHONY: setup run test check bench clean

setup: $(STAMP)

# A package folder that appears later must be made known, hence the __init__ files.
# setuptools comes first and builds without isolation: then its version is pinned like all others.
$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard tools/*/__init__.py recovery/*/__init__.py)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "omq needs Python 3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--no-build-isolation --editable '.[dev]'
	$(BIN)/python -W error -c 'import omq.base.checksum'
	touch $@

run: setup
	$(BIN)/python -m omqdemo

test: setup
	$(BIN)/python -m pytest $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/python -m pytest --quiet tests/tidy

bench: setup
	$(BIN)/python tests/bench/bench.py $(ARGS)

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis lib/omq.egg-info *.egg-info
	find lib tools tests recovery -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
