#!/usr/bin/env bash
# Builds a wheel that runs where no compiler is: the libraries that it needs beside libc and libstdc++ are in it, and auditwheel
# has accepted it. Prints the wheel's path.
#
#   tools/make_wheel.sh FOLDER      PYTHON names the interpreter whose wheel is built (default python3)
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: tools/make_wheel.sh FOLDER" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
"$root/tools/make_venv.sh" "$folder/venv" "$root/tools/requirements-wheel.txt"

rm -f "$folder"/plain/*.whl "$folder"/*.whl
echo "building the wheel (two minutes or so)" >&2
if ! "$folder/venv/bin/python" -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation \
  --config-settings=build-dir="$folder/build" -w "$folder/plain" "$root" >"$folder/build.log" 2>&1 </dev/null; then
  tail -n 40 "$folder/build.log" >&2
  echo "make_wheel.sh: the package did not build (the whole log: $folder/build.log)" >&2
  exit 1
fi
if ! PATH="$folder/venv/bin:$PATH" "$folder/venv/bin/auditwheel" repair -w "$folder" "$folder"/plain/*.whl >"$folder/repair.log" 2>&1; then
  tail -n 20 "$folder/repair.log" >&2
  echo "make_wheel.sh: auditwheel does not accept the wheel (the whole log: $folder/repair.log)" >&2
  exit 1
fi
ls "$folder"/*.whl
