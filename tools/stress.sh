#!/usr/bin/env bash
# Runs several copies of a program beside one another, round after round; all have to end by themselves.
#
#   tools/stress.sh ROUNDS COPIES SECONDS PROGRAM [ARGUMENT...]    SECONDS: the limit of a round
set -euo pipefail

if [ $# -lt 4 ]; then
  echo "usage: tools/stress.sh ROUNDS COPIES SECONDS PROGRAM [ARGUMENT...]" >&2
  exit 2
fi
rounds=$1 copies=$2 limit=$3
shift 3
for ((round = 1; round <= rounds; ++round)); do
  started=$SECONDS
  copy=() failed=0
  for ((i = 0; i < copies; ++i)); do
    timeout --kill-after=5 "$limit" "$@" &
    copy+=($!)
  done
  for pid in "${copy[@]}"; do
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 0 ] && continue
    failed=$((failed + 1))
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
      echo "stress: round $round: one of $copies waited longer than $limit s: $*" >&2
    else
      echo "stress: round $round: one of $copies ended with status $status: $*" >&2
    fi
  done
  [ "$failed" -eq 0 ] || exit 1
  echo "stress: round $round of $rounds: $copies of $copies ended, after $((SECONDS - started)) s"
done
