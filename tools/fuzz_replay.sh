#!/usr/bin/env bash
# Builds the libFuzzer targets of fuzz/ and lets all of them run side by side for a while.
#
#   tools/fuzz_replay.sh [SECONDS]      per target, default 30
#
# Seeds: fuzz/seeds/TARGET/ when it is there. What is found new stays in build/fuzz/corpus/TARGET/ and is used next time;
# an input that fails is kept in build/fuzz/ and named, and the script fails.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}

shopt -s nullglob
names=()
for source in fuzz/*.cpp; do names+=("$(basename "$source" .cpp)"); done
if [ ${#names[@]} -eq 0 ]; then
  echo "fuzz: there are no targets in fuzz/"
  exit 0
fi
tools/configure.sh fuzz
have=$(ninja -C build/fuzz -t targets all | sed -n -E 's/^([A-Za-z0-9_]+): phony$/\1/p')
targets=()
for name in "${names[@]}"; do
  # A target may be called after its source or carry a prefix; its source says which one it is.
  target=$(grep -m1 -xE "(fuzz_)?$name(_fuzz|_fuzzer)?" <<<"$have" || true)
  if [ -z "$target" ]; then
    echo "fuzz: fuzz/$name.cpp has no target in fuzz/CMakeLists.txt" >&2
    exit 1
  fi
  targets+=("$target")
done
cmake --build build/fuzz --target "${targets[@]}"

pids=()
trap '[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true' EXIT
for i in "${!targets[@]}"; do
  program=$(find build/fuzz -type f -perm -u+x -name "${targets[$i]}" -print -quit)
  corpus=build/fuzz/corpus/${names[$i]}
  mkdir -p "$corpus"
  folders=("$corpus")
  [ -d "fuzz/seeds/${names[$i]}" ] && folders+=("fuzz/seeds/${names[$i]}")
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/${names[$i]}-" "${folders[@]}" >"build/fuzz/${names[$i]}.log" 2>&1 </dev/null &
  pids+=($!)
done
failed=0
for i in "${!pids[@]}"; do
  log=build/fuzz/${names[$i]}.log
  if wait "${pids[$i]}"; then
    echo "fuzz: ${names[$i]}: $(sed -n -E 's/^stat::number_of_executed_units: *//p' "$log") inputs in ${seconds} s, none failed"
  else
    tail -n 40 "$log" >&2
    echo "fuzz: ${names[$i]} FAILED; the input is build/fuzz/${names[$i]}-*, the log $log" >&2
    failed=1
  fi
done
pids=()
exit $failed
