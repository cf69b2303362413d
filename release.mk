# What is released, from clean sources into dist/ (see CONTRIBUTING.md):
#   make dist         wheels and source distributions of the service and the Python client, the TypeScript client's package
#   make test-dist    what is in them, and each installed alone, away from this checkout

PYTHON_PROJECTS := . $(patsubst %/,%,$(dir $(wildcard clients/*/pyproject.toml)))
NODE_PROJECTS := $(patsubst %/,%,$(dir $(wildcard clients/*/package.json)))

# Not for `make test`: it takes what `make dist` has built.
HEAVY += or dist

.PHONY: dist test-dist

# setuptools packs whatever an earlier build has listed in its egg-info: without it the files that are here decide.
# The wheel is built from the source distribution, and both by the pinned version of what the project names.
dist: $(VENV)/.installed-dev
	rm -rf dist $(foreach p,$(PYTHON_PROJECTS),$(p)/*.egg-info $(p)/src/*.egg-info)
	for project in $(PYTHON_PROJECTS); do \
	  PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PY) -m build --outdir dist $$project || exit 1; done
	$(PY) -m twine check --strict dist/*.whl dist/*.tar.gz
	@command -v npm >/dev/null || { echo "No npm: not packed: $(NODE_PROJECTS)"; exit 0; }; \
	for project in $(NODE_PROJECTS); do \
	  npm ci --prefix $$project --ignore-scripts --no-audit --no-fund && \
	  npm pack ./$$project --pack-destination dist || exit 1; done

test-dist: dist $(WEIGHTS)/.small
	$(PY) -m pytest -m dist -v $(ARGS)
