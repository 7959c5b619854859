#!/usr/bin/env bash
# Builds the Python package with the library of build/cmake, installs it in a venv of its own and runs tests/python.
#
#   tools/test_python.sh BUILD_VENV_DIR [MORE_REQUIREMENTS]
#
# PYTHON names the interpreter (default python3). MORE_REQUIREMENTS is a file of further packages, for example one that
# brings PyTorch: the tests that need it are skipped otherwise. Quiet unless something fails. The compiled files stay in
# BUILD_VENV_DIR/build, so that the next run compiles only what changed.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: tools/test_python.sh BUILD_VENV_DIR [MORE_REQUIREMENTS]" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
requirements=$root/tools/requirements-python.txt
all=$(mktemp)
trap 'rm -f "$all"' EXIT
cat "$requirements" ${2:+"$2"} >"$all"
"$root/tools/make_venv.sh" "$folder" "$all"
folder=$(cd "$folder" && pwd)

log=$folder/install.log
if ! "$folder/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall \
  --config-settings=build-dir="$folder/build" --config-settings=cmake.define.kvtide_DIR="$root/build/cmake" "$root" >"$log" 2>&1 </dev/null; then
  tail -n 40 "$log" >&2
  echo "test_python.sh: the package did not build (the whole log: $log)" >&2
  exit 1
fi
# From elsewhere, so that the installed package is tested and not the folder of its sources.
cd "$folder"
"$folder/bin/python" -B -m pytest -q -n 2 --rootdir "$root" -c "$root/pyproject.toml" "$root/tests/python" </dev/null
