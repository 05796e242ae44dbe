# Everything a newcomer needs: `make train` and `make test` create the environment themselves.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ARGS ?=
CODE = src tests benchmarks scripts

.PHONY: install train test lint benchmark wheel clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[trl,geometry,dev]"
	touch $@

train: install  ## watch a small vision-language model learn geometry (about five minutes)
	$(BIN)/fastrl train toy_geometry $(ARGS)

test: install lint  ## every check and every test, slow ones included, two files at a time
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: install
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

benchmark: install
	$(BIN)/python benchmarks/selection.py

wheel: install
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) build dist
