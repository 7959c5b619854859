#!/usr/bin/env bash
# Installs what was built into a scratch prefix and builds against it with find_package(kvtide), as projects of their own:
# examples/c, which is then run, and one example in C++.
#
#   tools/test_installed.sh BUILD_DIR SCRATCH_DIR
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: tools/test_installed.sh BUILD_DIR SCRATCH_DIR" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$2"
mkdir -p "$2"
scratch=$(cd "$2" && pwd)
cmake --install "$1" --prefix "$scratch/prefix" --component library >/dev/null
cmake -S "$root/examples/c" -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_C_FLAGS="-Wall -Wextra -Wpedantic -Wconversion -Werror" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/resize" "$root/tests/goldens/models/llama-mha-untied.gguf" "the tide came in and the sand was dark" \
  "$scratch/text.kv"

# In C++, by a project that says nothing of its standard: kvtide::kvtide brings it along.
mkdir "$scratch/cpp"
cat >"$scratch/cpp/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(resize LANGUAGES CXX)
find_package(kvtide REQUIRED)
add_executable(resize $root/examples/cpp/02_resize.cpp)
target_link_libraries(resize PRIVATE kvtide::kvtide)
END
cmake -S "$scratch/cpp" -B "$scratch/cpp/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$scratch/prefix" >/dev/null
cmake --build "$scratch/cpp/build" >/dev/null
