# `make demo` shows the main job on bundled data, `make test` checks everything but what takes long
# (tests marked slow), and `make test-all` that too.  `make docs` builds the documentation into site/.
# All set up .venv first if it is missing or out of date, and install nothing when it is not.
# `make test-all` also installs Debian's chromium, for the tests of the page, where it may.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs

# Tests compute with one thread: their arrays are small, and threads that wait cost more.  Instead
# as many processes as there are cores, up to four, share the tests; one that is done early takes
# over half of what another has left.
TESTS := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses=auto --maxprocesses=4 --dist=worksteal

.PHONY: demo test test-all quick-tests all-tests chromium lint format docs bench clean

demo: $(RUNS)
	$(BIN)/unsplit demo --out demo-output --report

# The types are checked while tests run, because tests often wait.
test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 lint quick-tests

test-all: $(READY) chromium
	@$(MAKE) --no-print-directory --jobs=2 lint all-tests

quick-tests: $(READY)
	$(TESTS) -m "not slow"

all-tests: $(READY)
	$(TESTS)

chromium:
	@tests/browser/install_chromium

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)
	for name in known_truth digits speed heads scale statistics strategies confusion_loop one_and_ten batches tiny_clusters neighbour_search scaling; do $(BIN)/python -m benchmarks.$$name || exit 1; done

define environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Unsplit needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
$(PYTHON) -m venv $(VENV)
$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
endef

# What the demo and the command that it prints at its end need: 1.3 GB, of which torch is 0.75.
$(RUNS): pyproject.toml constraints.txt Makefile
	$(environment) . pandas
	@touch $@

# With the methods that Unsplit is compared with ("peers"), so that no test of them is skipped.
$(READY): pyproject.toml constraints.txt Makefile
	$(environment) ".[dev,peers]"
	@touch $(RUNS) $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis site
