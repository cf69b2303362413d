#!/usr/bin/env bash
# Runs a command with what the composition needs: a Docker Engine, Compose, buildx, and the images that it is made of.
#   tests/docker/engine.sh .venv/bin/python -m pytest tests/docker -m docker
# An engine that answers is used as it is. Else one is started (as root, from Debian's packages) and ended with the
# command. An image that cannot be pulled is made of Debian's packages. All that is fetched or made stays in
# DOCKER_CACHE; removing that folder starts anew.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${DOCKER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/eigencal-docker}
mkdir -p "$cache"

installed() { # COMMAND PACKAGE
  command -v "$1" >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$2" >/dev/null; } ||
    { echo "$1 is needed: install your system's package $2, or name an engine by DOCKER_HOST" >&2; exit 1; }
}

start_engine() {
  local run=$1
  export DOCKER_HOST=unix://$run/socket
  echo '{"builder": {"gc": {"enabled": true, "defaultKeepStorage": "6GB"}}}' >"$run/config" # else a tenth of the disk
  dockerd --config-file "$run/config" --data-root "$cache/data" --exec-root "$run/exec" --pidfile "$run/pid" \
    -H "$DOCKER_HOST" >"$run/log" 2>&1 &
  engine=$!
  until docker info >/dev/null 2>&1; do
    kill -0 "$engine" 2>/dev/null || { tail -20 "$run/log" >&2; exit 1; }
    sleep 0.2
  done
}

# Compose and buildx are single programs, which Debian's current release is too old for. They are taken out of the
# packages of its next one; nothing of that is installed.
fetch_plugins() {
  local apt=$cache/apt site
  apt-get update -qq
  site=$(apt-get indextargets --format '$(SITE)' 'Label: Debian' | sort -u | head -1)
  mkdir -p "$apt/lists/partial" "$DOCKER_CONFIG/cli-plugins"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site sid main" >"$apt/sources"
  local options=(-o "Dir::Etc::SourceList=$apt/sources" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$apt/lists"
    -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false -qq)
  (cd "$apt" && apt-get "${options[@]}" update && apt-get "${options[@]}" download docker-compose docker-buildx)
  for package in "$apt"/*.deb; do dpkg -x "$package" "$apt/unpacked"; done
  cp "$apt"/unpacked/usr/libexec/docker/cli-plugins/* "$DOCKER_CONFIG/cli-plugins"
  rm -r "$apt"
}

# Debian SUITE with some packages, as an image.
debian() { # IMAGE SUITE PACKAGES CHANGE OPTION...
  local image=$1 suite=$2 packages=$3 change=$4
  shift 4
  local tree=$cache/$suite-${packages%%,*}.tar # not a pipe: half a tree would be an image, too
  mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
    --include="$packages" "$@" "$suite" "$tree"
  docker import --change "$change" "$tree" "$image" >/dev/null
  rm "$tree"
  echo "made of Debian's packages: $image"
}

# What pip finds in a folder of this machine, and the authorities that it trusts here, it has in the image, too.
pip_of_this_machine() {
  mkdir -p "$cache/wheels"
  "$root/.venv/bin/python" -m pip config list | sed -n "s/^[^=]*find-links='\(.*\)'/\1/p" | tr ' ' '\n' | sort -u |
    while read -r folder; do [ ! -d "$folder" ] || cp -u "$folder"/*.whl "$cache/wheels"; done
  printf '[global]\nfind-links = /wheels\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$cache/pip.conf"
}

make_image() { # IMAGE
  case $1 in
    python:*)
      pip_of_this_machine
      debian "$1" bookworm python3-venv,ca-certificates 'CMD ["python"]' --customize-hook='ln -s python3 "$1/usr/bin/python"' \
        --customize-hook="copy-in $cache/wheels /" --customize-hook="copy-in $cache/pip.conf /etc" \
        --customize-hook='copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs' ;;
    caddy:*)
      debian "$1" sid caddy,ca-certificates \
        'CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]' ;;
    postgres:*)
      debian "$1" trixie postgresql 'ENTRYPOINT ["postgres-entrypoint.sh"]' \
        --customize-hook="copy-in $root/tests/docker/postgres-entrypoint.sh /usr/local/bin" ;;
    *) echo "no such image: $1" >&2; return 1 ;;
  esac
}

if ! docker info >/dev/null 2>&1; then
  installed dockerd docker.io
  run=$(mktemp -d)
  trap 'docker image prune --force >/dev/null || true; kill "$engine" && wait "$engine" || true; rm -rf "$run"' EXIT
  start_engine "$run"
fi
if ! docker compose version >/dev/null 2>&1 || ! docker buildx version >/dev/null 2>&1; then
  export DOCKER_CONFIG=$cache/config
  docker compose version >/dev/null 2>&1 || fetch_plugins
fi
named=$(COMPOSE_PROFILES=external,postgres docker compose --project-directory "$root" config --images)
making=()
for image in $(sed -n 's/^ARG PYTHON_IMAGE=//p' "$root/Dockerfile") $(grep -v '^eigencal-service' <<<"$named" | sort -u); do
  docker image inspect "$image" >/dev/null 2>&1 || docker pull --quiet "$image" 2>/dev/null && continue
  installed mmdebstrap mmdebstrap
  make_image "$image" &
  making+=($!)
done
for one in "${making[@]}"; do wait "$one"; done
"$@"
