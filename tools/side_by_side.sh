#!/usr/bin/env bash
# Makes targets of the Makefile at the same time, and shows what each of them printed, one after another.
#
#   tools/side_by_side.sh TARGET TARGET...
#
# Fails when one of them fails, after all have ended.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
  echo "usage: tools/side_by_side.sh TARGET TARGET..." >&2
  exit 2
fi
pids=()
trap '[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true' EXIT
for target in "$@"; do
  "${MAKE:-make}" --no-print-directory "$target" >"build/$target.log" 2>&1 </dev/null &
  pids+=($!)
done
failed=0
i=0
for target in "$@"; do
  if ! wait "${pids[$i]}"; then
    failed=1
    cat "build/$target.log" >&2
    echo "side_by_side.sh: $target failed" >&2
  else
    cat "build/$target.log"
  fi
  i=$((i + 1))
done
pids=()
exit $failed
