# Every command sets up what it needs: a virtual environment in .venv, with pinned packages.
# Needed beforehand: make, Python 3.11 or newer, pip.

VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(WORKERS)
# Compiled code is cached per version of the source; tools/numba_cache.py says why.
WITH_CACHE = NUMBA_CACHE_DIR="$$($(BIN)/python tools/numba_cache.py)"
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# A stamp says which extras are installed, and is out of date when the requirements change.
REQUIREMENTS := pyproject.toml constraints.txt
RUNTIME := $(VENV)/.installed-runtime
TEST := $(VENV)/.installed-test
BENCH := $(VENV)/.installed-bench
DOCS := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-all lint format bench bench-bayes bench-deepgp bench-kernel bench-linear bench-multilabel bench-nb bench-onepass bench-svm bench-tables bench-text docs docs-sync constraints clean distclean

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; \
	do printf '  make %-14s %s\n' "$$name" "$$text"; done

demo: $(RUNTIME)  ## fit, judge, save and reload models on small bundled data
	@$(WITH_CACHE) $(BIN)/python examples/demo.py

test: lint  ## lint, types, import direction, all tests but the slow ones
	$(WITH_CACHE) $(PYTEST)

test-slow: $(TEST)  ## the slow tests that `make test` leaves out
	$(WITH_CACHE) $(PYTEST) -m slow --timeout 1200

test-all: test test-slow  ## all tests

lint: $(TEST)  ## lint, formatting, types and import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(TEST)  ## format the code and mend what the linter can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: bench-bayes bench-deepgp bench-kernel bench-linear bench-multilabel bench-nb bench-onepass bench-svm bench-tables bench-text  ## all benchmarks; tables and pictures go to docs/benchmarks

bench-bayes: $(BENCH)  ## Bayesian linear classifier against NUTS and plain Gibbs
	$(WITH_CACHE) $(BIN)/python -m benchmarks.bayes

bench-deepgp: $(BENCH)  ## deep Gaussian processes against GPyTorch and logistic regression
	$(WITH_CACHE) $(BIN)/python -m benchmarks.deepgp

bench-kernel: $(BENCH)  ## kernel machines against a grid-searched SVC and boosted trees
	$(WITH_CACHE) $(BIN)/python -m benchmarks.kernel

bench-linear: $(BENCH)  ## linear models against scikit-learn, LIBLINEAR and Vowpal Wabbit
	$(WITH_CACHE) $(BIN)/python -m benchmarks.linear

bench-multilabel: $(BENCH)  ## multi-label classification against binary relevance, chains, ML-kNN
	$(WITH_CACHE) $(BIN)/python -m benchmarks.multilabel

bench-nb: $(BENCH)  ## naive Bayes against scikit-learn
	$(WITH_CACHE) $(BIN)/python -m benchmarks.nb

bench-onepass: $(BENCH)  ## one-pass learning against a converged logistic regression
	$(WITH_CACHE) $(BIN)/python -m benchmarks.onepass

bench-svm: $(BENCH)  ## SVC and SVR against LIBSVM
	$(WITH_CACHE) $(BIN)/python -m benchmarks.svm

bench-tables: $(BENCH)  ## the command on real tables against a plain pipeline and boosted trees
	$(WITH_CACHE) $(BIN)/python -m benchmarks.tables

bench-text: $(BENCH)  ## text features against scikit-learn
	$(WITH_CACHE) $(BIN)/python -m benchmarks.text

docs: $(DOCS)  ## API reference as HTML, in build/docs
	$(BIN)/python -m pdoc --docformat numpy --math --output-directory build/docs likelier

docs-sync: $(RUNTIME)  ## copy the quoted code in docs/*.md from the source again
	$(BIN)/python tools/docs_sync.py

constraints:  ## pin constraints.txt anew, to the newest versions that install together
	@sh tools/pin.sh

clean:  ## remove caches and build output
	rm -rf .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests tools examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## the same, and .venv
	rm -rf $(VENV)

$(RUNTIME): $(REQUIREMENTS)
	@sh tools/make_venv.sh $(VENV)
	@echo "Installing likelier ..."
	@$(INSTALL) -e .
	@touch $@

$(TEST): $(REQUIREMENTS)
	@sh tools/make_venv.sh $(VENV)
	@echo "Installing likelier and what its tests need ..."
	@$(INSTALL) -e ".[test,jax]"
	@touch $(RUNTIME) $@

$(BENCH): $(REQUIREMENTS)
	@sh tools/make_venv.sh $(VENV)
	@echo "Installing likelier and the peers it is measured against ..."
	@$(INSTALL) -e ".[bench]"
	@touch $(RUNTIME) $@

$(DOCS): $(REQUIREMENTS)
	@sh tools/make_venv.sh $(VENV)
	@$(INSTALL) -e ".[docs]"
	@touch $(RUNTIME) $@
