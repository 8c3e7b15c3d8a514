# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# One more than the two cores of CI: tests of deployments and of files mostly wait, for each other or for the disk.
WORKERS ?= 3

.PHONY: demo test test-full check docs site figures bench clean

demo: $(STAMP) ## the main job: a whole study over 40 simulated hospitals, then six trust models side by side
	$(BIN)/fedassay demo

test: $(STAMP) ## what CI runs: a small dose of everything
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q --durations=15

test-full: $(STAMP) ## the stated numbers of every guarantee, hours; continues where it was ended; writes docs/verification.md
	$(BIN)/python tests/full_run.py --workers 2

check: $(STAMP) ## lint, types, import directions, doctests, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q src
	$(BIN)/python docs/generate.py --check

docs: $(STAMP) ## rewrite the pages that are generated from the code
	$(BIN)/python docs/generate.py

site: $(STAMP) ## the documentation as a site in site/: works offline, every warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d site/.trees docs site

figures: $(STAMP) ## curves and tables of docs/experiments, from real data (FEDASSAY_DATA); an hour and a half
	$(BIN)/python -m experiments.three_privacy_models
	$(BIN)/python -m experiments.distributions
	$(BIN)/python -m experiments.conformal
	$(BIN)/python -m experiments.multiclass
	$(BIN)/python -m experiments.inference

bench: $(STAMP) ## benchmarks against peers; ratios are measured in the same run
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[bench]"
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo-output site
