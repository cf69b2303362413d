#!/bin/sh
# What the composition asks of the official image, for one made of Debian's package: a cluster in UTF-8 with the user
# (a superuser) and the database that the environment names, and a password for whoever comes over the network.
set -eu
: "${POSTGRES_PASSWORD:?}"
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
data=/var/lib/postgresql/data
run() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
  install -d -o postgres -g postgres -m 0700 "$data"
  install -d -o postgres -g postgres /var/run/postgresql
  password=$(mktemp)
  echo "$POSTGRES_PASSWORD" >"$password"
  chown postgres "$password"
  run initdb -D "$data" --username="$POSTGRES_USER" --pwfile="$password" --encoding=UTF8 --locale=C.UTF-8 \
    --auth-local=trust --auth-host=scram-sha-256
  rm "$password"
  echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
  run pg_ctl -D "$data" -o '-c listen_addresses=' -w start
  run createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
  run pg_ctl -D "$data" -m fast -w stop
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -D "$data" -c 'listen_addresses=*'
