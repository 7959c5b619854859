#!/usr/bin/env bash
# Runs the tests of tests/engine/real_models.cpp, which make test skips where the models have not been fetched.
#
#   tools/real_models.sh BUILD SMOLLM2.gguf GEMMA3.gguf
#
# Fails when a test did not find its model: whoever names the files wants them tested.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -ne 3 ]; then
  echo "usage: tools/real_models.sh BUILD SMOLLM2.gguf GEMMA3.gguf" >&2
  exit 2
fi
build=$1
smollm2=$(realpath "$2")
gemma3=$(realpath "$3")
tools/install.sh build test
tools/configure.sh release -DKVTIDE_TESTS=ON
cmake --build "$build" --target real_models_tests

# The tests know the models by short names.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$smollm2" "$folder/smollm2.gguf"
ln -s "$gemma3" "$folder/gemma3.gguf"
log=build/real-models.log
program=$(find "$build" -type f -perm -u+x -name real_models_tests -print -quit)
if ! KVTIDE_MODELS=$folder "$program" --gtest_brief=1 2>&1 </dev/null | tee "$log"; then
  echo "real_models.sh: the whole log is $log" >&2
  exit 1
fi
if grep -q 'is not there' "$log"; then
  echo "real_models.sh: a test did not find its model, although both are there" >&2
  exit 1
fi
