# Everything a newcomer needs: `make train` and `make test` create the environment themselves.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# verl and TRL cannot share an environment.
VERL_VENV ?= .venv-verl
VERL_BIN = $(VERL_VENV)/bin
ARGS ?=
CODE = src tests benchmarks scripts

.PHONY: install install-verl train test test-trl test-verl lint benchmark wheel clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[trl,geometry,dev]"
	touch $@

install-verl: $(VERL_VENV)/.installed

$(VERL_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VERL_VENV)
	$(VERL_BIN)/python -m pip install --quiet --upgrade pip
	$(VERL_BIN)/python -m pip install --quiet --editable ".[verl,geometry-verl]" pytest hypothesis torchvision
	touch $@

train: install  ## watch a small vision-language model learn geometry (about five minutes)
	$(BIN)/fastrl train toy_geometry $(ARGS)

test: install lint  ## every check and every test; verl is installed while TRL's tests run
	$(MAKE) install-verl & \
	$(MAKE) test-trl && wait $$! && $(MAKE) test-verl

test-trl: install lint  ## all but the verl host, slow ones included, two files at a time
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-verl: install-verl  ## the verl host: real trainings with Ray and FSDP on the CPU
	OMP_NUM_THREADS=1 $(VERL_BIN)/python -m pytest tests/verl $(ARGS)

lint: install
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

benchmark: install
	$(BIN)/python benchmarks/selection.py

wheel: install
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) $(VERL_VENV) build dist
