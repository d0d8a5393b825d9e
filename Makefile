# The one place where commands are written. `make` alone lists them.
# Needs Python 3.11 or newer with pip, and make; everything else goes into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# What a demo needs, and what the tests need beyond it. A stamp says which of them is installed.
DEMO   := $(VENV)/.installed-demo
TESTS  := $(VENV)/.installed-tests
DEMO_EXTRAS  := worker,client,demo
TESTS_EXTRAS := $(DEMO_EXTRAS),privacy,postgres,redis,s3,tracking,otel,frameworks,docs,dev
ARGS   ?=
# More than the two cores of a small machine: many tests wait for a server.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test fmt lint rules types pytest wheels chaos fuzz fuzzapi load bench evidence migrate digests house pages site clean test-distributed

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "potstill needs Python 3.11 or newer; try: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing into $(VENV): PyTorch and the rest, once; a few minutes'
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[$(1)]'
endef

$(DEMO): pyproject.toml constraints.txt
	$(call install,$(DEMO_EXTRAS))
	touch $(DEMO)

$(TESTS): pyproject.toml constraints.txt
	$(call install,$(TESTS_EXTRAS))
	touch $(DEMO) $(TESTS)

demo: $(DEMO) ## ten devices, four methods, real images: table and plot in demo-report/ (ARGS='--keep')
	$(BIN)/python -m potstill demo $(ARGS)

test: lint rules types pytest ## everything that must pass: lint, format, import rules, types, tests

fmt: $(TESTS) ## format the code and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(TESTS) ## lint and format check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

rules: $(TESTS) ## the doors between packages
	$(BIN)/lint-imports

types: $(TESTS) ## static types
	$(BIN)/mypy

pytest: $(TESTS) ## the tests alone (ARGS='tests/house -k cli')
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

wheels: ## dist/: the whole distribution, and a device's without the server's packages
	rm -rf build deploy/device/build
	$(PYTHON) -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist . ./deploy/device

chaos: $(TESTS) ## kill every part of running installations at random moments, 268 times (ARGS='--seed 1 --kills 40')
	$(BIN)/python -m pytest -m chaos tests/chaos tests/e2e tests/contract tests/service tests/simulate tests/house tests/examples
	$(BIN)/python -m tools.chaos $(ARGS)

fuzz: $(TESTS) ## bent files against the safetensors reader (ARGS='--seconds 600 --seed 7')
	$(BIN)/python -m tools.fuzz.reader $(ARGS)

fuzzapi: $(TESTS) ## generated requests against every operation of the API (ARGS='--examples 200 --seed 7')
	$(BIN)/python -m tools.fuzz.api $(ARGS)

load: $(TESTS) ## 300 long polls and 50 uploads, 1,000 devices, a 24-round soak (ARGS='polls')
	$(BIN)/python -m tools.load $(ARGS)

pages: $(TESTS) ## make the tables of docs/ anew from the code (ARGS=--check)
	$(BIN)/python -m tools.pages $(ARGS)

site: $(TESTS) ## the documents as a site of plain files, site/index.html (ARGS='--output FOLDER')
	$(BIN)/python -m tools.site $(ARGS)

digests: $(TESTS) ## digests of all that every recipe and choice makes (ARGS='--output before.json', '--compare before.json')
	$(BIN)/python -m tools.digests $(ARGS)

house: $(TESTS) ## measures of the code: what only tests reach, what a rule touches, arrows, sizes (ARGS='--check')
	$(BIN)/python -m tools.house $(ARGS)

test-distributed: $(TESTS) ## the service's tests on PostgreSQL, Redis and S3, found or started; the compose file over TLS
	$(BIN)/python -m tools.distributed $(ARGS)

bench: $(TESTS) ## every part beside the least that does the same work; ratios (ARGS='--quick', '--only average')
	$(BIN)/python -m experiments.bench $(ARGS)

evidence: $(TESTS) ## every experiment with its bars; rewrites docs/evidence.md (ARGS='--only t1')
	$(BIN)/python -m experiments.evidence $(ARGS)

migrate: $(TESTS) ## bring the database of .potstill/ (or POTSTILL_DATABASE_URL) to the newest schema
	$(BIN)/python -m potstill migrate

clean: ## remove what was made here: .venv, caches, reports (never .potstill/)
	rm -rf $(VENV) build dist *.egg-info deploy/device/build deploy/device/*.egg-info demo-report evidence-report site \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
