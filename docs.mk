# The documentation as a site:
#   make docs        builds it into site/, strictly; open site/index.html
#   make test-docs   its pages, links, hosts, API reference and figures (in Chromium: make test-browser)
#   make figures     its figures, anew, from the service that `make run` has left

.PHONY: docs test-docs figures

# Material for MkDocs says at each start when its support ends (docs/decisions/0031); this is its own switch for that.
export NO_MKDOCS_2_WARNING := 1

docs: $(VENV)/.installed-dev
	$(PY) -m mkdocs build --strict
	@echo "The site is in site/: open site/index.html"

test-docs: $(VENV)/.installed-dev
	$(PY) -m pytest -m "site and not browser" -v $(ARGS)

figures: $(VENV)/.installed-dev
	$(PY) -m tools.site.figures http://127.0.0.1:8000
