# From a fresh clone: `make run` (compile, run, verify) or `make test`; each sets itself up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
OUT    ?= out

.PHONY: run test test-slow lint format tables docs bench clean browser pictures site site-test interop-test

run: $(STAMP)
	@rm -rf $(OUT) && mkdir -p $(OUT)
	$(BIN)/weftc compile lloyd -D d=2 -D k=5 --layers 10 -o $(OUT)/lloyd.safetensors
	$(BIN)/weftc run $(OUT)/lloyd.safetensors --data examples/points.csv --seed 1 --until-stable -o $(OUT)/result
	$(BIN)/weftc verify $(OUT)/lloyd.safetensors --data examples/points.csv
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
	$(BIN)/python -m weftc.language.parse.build_parse_tables

# The tables in docs/styles.md and docs/costs.md and the quoted output in docs/papers.md come from the compiler; tests fail when they are out of date.
docs: $(STAMP)
	$(BIN)/python -m pytest -q tests/emit/test_costs.py tests/project/test_docs.py tests/experiments/test_papers.py --update-golden

# Reports in a real browser. Installs what it needs where it can: the driver's library always, and the browser where this
# is root on a system with apt-get; otherwise it says what is missing.
browser: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[browser]"
	@if ! command -v chromedriver >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update --quiet && apt-get install --quiet --yes chromium chromium-driver; fi; true
	@if command -v chromedriver >/dev/null; then \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m browser tests/browser $(ARGS); \
	else \
	  echo "the browser tests did not run: there is no chromedriver, and it can be installed here only by hand"; \
	  echo "install Chromium and its driver (Debian: apt install chromium chromium-driver), then: make browser"; \
	fi

# TransformerLens, nnsight, accelerate and the hub on compiled models.
interop-test: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[interop]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m interop tests/interop $(ARGS)

# The site with its playground, into out/site: pages of the project, the gallery, the API. Needs npm, for Pyodide and its NumPy.
site: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	OMP_NUM_THREADS=2 $(BIN)/python website/build.py

# The built site in Chromium; as `browser`, it says what is missing where it cannot install it.
site-test: site
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[browser]"
	@if ! command -v chromedriver >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update --quiet && apt-get install --quiet --yes chromium chromium-driver; fi; true
	@if command -v chromedriver >/dev/null; then \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m site tests/browser $(ARGS); \
	else \
	  echo "the site was built but not tried: there is no chromedriver, and it can be installed here only by hand"; \
	  echo "install Chromium and its driver (Debian: apt install chromium chromium-driver), then: make site-test"; \
	fi

# Beside scikit-learn, faiss and POT, at full size, about 20 minutes: on a quiet machine. Writes the result into docs/bench.md.
bench: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[bench]"
	$(BIN)/weftc bench --markdown docs/bench.md $(ARGS)

# The figures in README.md and docs/pictures.md; the drawing of the graph is compared by a test, the others depend on matplotlib's version.
pictures: $(STAMP)
	$(BIN)/python website/overview.py docs/pictures/overview.png
	$(BIN)/weftc inspect lloyd --stage graph --force -o docs/pictures/graph.svg
	$(BIN)/weftc plot lloyd --what weights --force -D d=2 -D k=3 -o docs/pictures/weights.svg
	$(BIN)/weftc plot lloyd --what tokens --force --data examples/points.csv -D k=5 -o docs/pictures/tokens.svg

# torch first, pinned: see constraints.txt. TORCH_INDEX=<url> picks another build of it (PyTorch's CPU-only index, say).
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) build dist *.egg-info
