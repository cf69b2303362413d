# Functions of .ci/run and .ci/release.
set -euo pipefail
cd "$(dirname "$0")/.."

# Run targets of make one after the other; print the seconds of each.
in_turn() {
  local target
  for target; do
    echo "== make $target"
    SECONDS=0
    make --no-print-directory "$target"
    echo "== make $target: ${SECONDS} s"
  done
}

# Run the first target while the others run in turn; print its output at the end.
beside() {
  local log failed=0
  log=$(mktemp)
  set -m # its own process group, so that a failure of the others ends it
  in_turn "$1" >"$log" 2>&1 </dev/null &
  set +m
  trap "kill -- -$! 2>/dev/null || true" EXIT
  in_turn "${@:2}"
  wait $! || failed=$?
  trap - EXIT
  cat "$log"
  return $failed
}
