# Horarium. `make` lists what there is.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup dev test bench check format record-history frozen release-files clean chaos

help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Prepare .venv with everything pinned in constraints.txt

$(READY): pyproject.toml activities/sdk/pyproject.toml constraints.txt
	@echo "Preparing .venv with $(PYTHON) (a minute or two, once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; say which: make setup PYTHON=...")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable activities/sdk --editable '.[dev]'
	@touch $(READY)

dev: $(READY) ## Start everything on this machine: Temporal, workers, API and example jobs (Ctrl-C stops it)
	@# With job control, Ctrl-C is for the stack alone, and not for make, which would end with 130.
	@if [ -t 0 ]; then set -m; fi; $(BIN)/horarium dev

# The tests start a hundred processes of ours, which would compile everything anew where the environment forbids to keep that.
test chaos: export PYTHONDONTWRITEBYTECODE =

test: $(READY) ## Run the tests, five at a time; they start the servers that they need
	@$(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder -m "not slow"

chaos: $(READY) ## Run the slow tests: kill everything, stop databases, a year of fires (HORARIUM_CHAOS=long: longer)
	@$(BIN)/python -m pytest -m slow -s

check: $(READY) ## Lint, check the types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY) ## Bring the code into its form
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench: $(READY) ## Measure beside native Schedules, in thirty minutes (ONLY=burst, CONTENDERS=timers,native, RUNS=1, QUICK=1, BUDGET=30; OTHERS=1)
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	@$(BIN)/python -m tests.bench $(if $(ONLY),--only $(ONLY)) $(if $(CONTENDERS),--columns $(CONTENDERS)) $(if $(RUNS),--runs $(RUNS)) $(if $(QUICK),--quick) $(if $(OTHERS),--others) $(if $(BUDGET),--budget $(BUDGET))

record-history: $(READY) ## Record the histories of this version's workflows, for the replay tests
	@$(BIN)/python -m tests.replay.record

frozen: $(READY) ## See that nothing was edited that a release has recorded
	@$(BIN)/python -m tests.release.frozen

release-files: $(READY) ## Make this version's wheels, and freeze its histories, before it is tagged
	@$(BIN)/python -m tests.release

clean: ## Remove what setup and dev have made
	@rm -rf .venv .data .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
