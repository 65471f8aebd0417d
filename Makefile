# Everything works in .venv/; a target installs what it needs first. `make help` lists the targets.
PYTHON ?= python3
# The tested version. On x86-64, PyPI's file may be the large CUDA build; a CPU build is enough:
# TORCH_INSTALL_OPTIONS='--index-url <the CPU index that pytorch.org names>'.
TORCH ?= torch==2.13.0
TORCH_INSTALL_OPTIONS ?=
DEMO_SERVE ?= 1
DEMO_PORT ?= 3001
PYTEST_OPTIONS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP := $(VENV)/.stamp
MAKEFLAGS += --no-print-directory
# A half-built device must not break the torch that builds it.
BUILD_ENV := TORCH_DEVICE_BACKEND_AUTOLOAD=0

EXPLORER_SOURCES := explorer/pyproject.toml explorer/hatch_build.py $(wildcard explorer/native/*) $(shell find explorer/web -path '*/node_modules' -prune -o -type f -print 2>/dev/null)
EMULATOR_SOURCES := emulator/pyproject.toml emulator/setup.py $(shell find emulator/csrc emulator/native -type f 2>/dev/null)

.PHONY: help setup demo test test-slow test-properties check bench ui docs wheels format clean
help:
	@echo "make demo    three RMSNorms profiled, explained and shown in the browser (DEMO_SERVE=0: prepare and check only)"
	@echo "make test    all tests      make check   linters, types, import rules"
	@echo "make test-slow  the long tests too      make test-properties  random calls of every lowered op"
	@echo "make bench   benchmarks     make ui      rebuild the web page     make docs   regenerate generated docs"
	@echo "make wheels  both wheels into dist/     make clean   remove .venv and everything built"

$(STAMP)-python: tools/preflight.py
	@$(PYTHON) tools/preflight.py $(VENV) --emulator
	@echo "[1/5] virtual environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

$(STAMP)-torch: | $(STAMP)-python
	@echo "[2/5] PyTorch ($(TORCH)): the largest download, about a minute"
	@$(PIP) $(TORCH_INSTALL_OPTIONS) '$(TORCH)' numpy
	@touch $@

$(STAMP)-tools: requirements-dev.txt | $(STAMP)-torch
	@echo "[3/5] build and test tools"
	@$(PIP) -r requirements-dev.txt
	@touch $@

$(STAMP)-explorer: $(EXPLORER_SOURCES) | $(STAMP)-tools
	@echo "[4/5] the explorer and its web page"
	@$(BUILD_ENV) $(PIP) --no-build-isolation -e explorer
	@$(BIN)/python explorer/hatch_build.py native || true
	@touch $@

$(STAMP)-emulator: $(EMULATOR_SOURCES) | $(STAMP)-explorer
	@echo "[5/5] the emulator (compiles C++, about a minute)"
	@$(BUILD_ENV) $(PIP) --no-build-isolation -e emulator
	@touch $@

setup: $(STAMP)-explorer $(STAMP)-emulator

demo: setup
	@$(BIN)/python examples/rmsnorm/compare.py --out build/demo --json build/demo/compare.json
ifeq ($(DEMO_SERVE),0)
	@$(BIN)/python tools/check_demo.py build/demo
else
	@$(BIN)/python tools/check_demo.py build/demo --serve --port $(DEMO_PORT)
endif

test: setup
	@tools/ensure_chromium.sh
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" explorer/tests emulator/tests docs/tests $(PYTEST_OPTIONS)
	@$(BIN)/python explorer/hatch_build.py test

test-slow: setup
	@$(BIN)/python -m pytest -m slow explorer/tests emulator/tests docs/tests $(PYTEST_OPTIONS)

# Many random calls of every lowered op on the machine, against torch: minutes to hours. PROPERTY_EXAMPLES=n calls per op.
test-properties: setup
	@$(BIN)/python -m pytest -m slow emulator/tests/properties $(PYTEST_OPTIONS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy explorer/src emulator/src
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror emulator/csrc/*/*.cpp emulator/csrc/*/*.h emulator/csrc/*.cpp emulator/native/* explorer/native/*.cpp explorer/native/*.h
	$(BIN)/python explorer/hatch_build.py check

format:
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .
	$(BIN)/clang-format -i emulator/csrc/*/*.cpp emulator/csrc/*/*.h emulator/csrc/*.cpp emulator/native/* explorer/native/*.cpp explorer/native/*.h
	$(BIN)/python explorer/hatch_build.py format

bench: setup
	@$(BIN)/python -m benchmarks

ui: $(STAMP)-tools
	@$(BIN)/python explorer/hatch_build.py build

docs: setup
	@$(BIN)/python -m docs.generate

wheels: $(STAMP)-tools
	@$(BUILD_ENV) $(BIN)/python -m build --quiet --wheel --no-isolation --outdir dist explorer
	@$(BUILD_ENV) $(BIN)/python -m build --quiet --wheel --no-isolation --outdir dist emulator
	@ls -lh dist

clean:
	rm -rf $(VENV) build dist explorer/src/neuronscope/_web explorer/web/node_modules emulator/build
	find . -name '__pycache__' -prune -exec rm -rf {} + ; find emulator -name '*.so' -delete ; rm -f explorer/src/neuronscope/readers/_*.so
