# From a fresh clone: `make run` (compile, run, verify) or `make test`; each sets itself up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
OUT    ?= out

.PHONY: run test test-slow lint format tables docs clean

run: $(STAMP)
	@rm -rf $(OUT) && mkdir -p $(OUT)
	$(BIN)/weft compile lloyd -D d=2 -D k=5 --layers 10 -o $(OUT)/lloyd.safetensors
	$(BIN)/weft run $(OUT)/lloyd.safetensors --data examples/points.csv --seed 1 --until-stable -o $(OUT)/result
	$(BIN)/weft verify $(OUT)/lloyd.safetensors --data examples/points.csv
	@echo && echo "the centers ($(OUT)/result/centers.csv):" && cat $(OUT)/result/centers.csv

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The parser's tables are generated from grammar.lark; a test fails when they are out of date.
tables: $(STAMP)
	$(BIN)/python -m weft.language.tables

# The table in docs/styles.md and the quoted output in docs/papers.md come from the compiler; tests fail when they are out of date.
docs: $(STAMP)
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_papers.py --update-golden

# torch first, pinned: see constraints.txt. TORCH_INDEX=<url> picks another build of it (PyTorch's CPU-only index, say).
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) build dist *.egg-info
