# Needs make, Python 3.11 to 3.13 and its venv module; everything else goes into .venv.
# Another Python: make PYTHON=python3.12 test
PYTHON ?= python3
BIN := .venv/bin

# The stamp bears the Python's version: asked for another one, make builds .venv anew.
VERSION := $(shell $(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null)
STAMP := .venv/installed-$(VERSION)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt

.PHONY: test demo lint wheel clean

test: lint
	@$(BIN)/python -m pytest --numprocesses auto --dist worksteal

demo: $(STAMP)
	@$(BIN)/gpuwarden demo

lint: $(STAMP)
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m mypy

wheel: $(STAMP)
	@$(BIN)/python -m build --wheel --no-isolation

clean:
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -r {} +

$(STAMP): pyproject.toml .ci/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null || { \
	  echo 'gpuwarden needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $(or $(VERSION),not there). Name another: make PYTHON=python3.12 test'; \
	  exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make virtual environments: apt-get install $(notdir $(PYTHON))-venv'; exit 1; } >&2
	@[ "$$($(BIN)/python -V 2>/dev/null)" = 'Python $(VERSION)' ] || $(PYTHON) -m venv --clear .venv
	@echo 'Installing gpuwarden and what its tests need into .venv; the first time takes a minute or two.'
	@$(PIP) hatchling
	@$(PIP) --no-build-isolation --editable '.[test]'
	@touch $@
