# A fresh machine needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-for-demo
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# How many processes share the tests: one more than cores, as tests of daemons wait now and then.
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/python -m pytest -n $(PROCESSES)
# Rewritten assertions and compiled modules are kept between runs.
unexport PYTHONDONTWRITEBYTECODE

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header $(if $(UPGRADE),--upgrade)

.PHONY: install lock release demo test test-all containers check bench docs site proto fmt lint types generated faults fuzz soak clean

$(DEMO_READY): pyproject.toml requirements-demo.lock
	@command -v $(PYTHON) >/dev/null \
	  || { echo "there is no $(PYTHON); set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "fedboost needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	@echo "installing fedboost into $(VENV); this takes about half a minute" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --no-compile --only-binary :all: -r requirements-demo.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $(DEMO_READY)

$(READY): $(DEMO_READY) requirements-dev.lock
	@echo "installing tests and tools into $(VENV); this takes about a minute" >&2
	@$(PIP) install --only-binary :all: -r requirements-dev.lock
	@touch $(READY)

install: $(READY)  ## everything into .venv; make demo installs what the demo needs

lock: $(READY)  ## pins with hashes, for every platform; UPGRADE=1 takes newer versions
	$(LOCK) --extra demo --extra dev --extra tensorboard --extra sql --extra delta --extra dask --extra oidc --extra otel --extra pkcs11 --output-file requirements-dev.lock pyproject.toml
	$(LOCK) --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml
	$(LOCK) --extra demo --group checkout --constraint requirements-dev.lock --output-file requirements-demo.lock pyproject.toml

release: $(READY)  ## wheel, sdist, bill of materials and hashes in dist/: the same bytes from the same commit
	@git diff --quiet HEAD || { echo "commit first: a release is what a commit holds" >&2; exit 2; }
	rm -rf dist
	HATCH_BUILD_NO_HOOKS=true SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/hatchling build --directory dist
	sed "s/^dynamic = .*/version = \"$$($(BIN)/hatchling version)\"/" pyproject.toml > dist/named.toml
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject dist/named.toml \
	  --mc-type application --output-reproducible --output-file dist/fedboost.cdx.json
	rm dist/named.toml
	cd dist && sha256sum -- * > SHA256SUMS

demo: $(DEMO_READY)  ## trains on real data with daemons on this machine, in about a minute
	$(BIN)/fedboost demo

test: $(READY)  ## what a change has to pass, on all cores; PROCESSES=1 on one
	$(PYTEST)

test-all: $(READY)  ## every product of parameters, in random order
	$(PYTEST) --all -p randomly

check: lint types generated test  ## what CI runs, part by part in .ci/run

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

generated: $(READY)  ## the committed stubs are what protos/ says
	$(BIN)/python protos/generate.py
	@git diff --exit-code --stat -- fedboost/messages \
	  || { echo "fedboost/messages is stale: commit what 'make proto' wrote" >&2; exit 1; }

proto: $(READY)
	$(BIN)/python protos/generate.py

docs: $(READY)  ## what documents quote: disclosure, listings, reference, measured claims, cases of tests
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python -c 'from benchmarks import pages; pages.write()'
	$(BIN)/python -m tests.families

site: $(READY)  ## the documents as pages, in site/; nothing is fetched
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

fmt: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

containers: $(READY)  ## the walk of deploy/README.md in podman or docker, with kills; minutes
	$(BIN)/python -m pytest --long -o faulthandler_timeout=3600 tests/e2e/test_containers.py

bench: $(READY)  ## measures one question, NAME=scale, or all; QUICK=1 on few rows, in half a minute each
	$(BIN)/python -m benchmarks $(or $(NAME),all) $(if $(QUICK),--quick)

faults: $(READY)  ## the long families of faults, a line for each; SHARD=1/4 runs a fourth of them
	$(BIN)/python -m tests.faults $(if $(SHARD),--shard $(SHARD)) $(if $(FAMILY),--family $(FAMILY))

fuzz: $(READY)  ## every decoder, ten minutes each, guided by coverage (Linux; Python 3.11 to 3.13)
	@$(PIP) install --no-build-isolation -e '.[fuzz]'
	$(BIN)/python -m tests.faults.fuzz --minutes $(or $(MINUTES),10) $(if $(SHARD),--shard $(SHARD))

soak: $(READY)  ## two hours of jobs on real daemons with a fault each minute
	$(BIN)/python -m tests.faults.crowd
	$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),120)

clean:
	rm -rf $(VENV) build dist *.egg-info
