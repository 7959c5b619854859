#!/usr/bin/env bash
# Configures one preset of CMakePresets.json; shows what CMake says only when it fails.
#
#   tools/configure.sh PRESET [-DNAME=VALUE...]     KVTIDE_WERROR=ON in the environment: warnings are errors
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
  echo "usage: tools/configure.sh PRESET [-DNAME=VALUE...]" >&2
  exit 2
fi
mkdir -p build
log=build/configure-$1.log
if ! cmake --preset "$@" "-DKVTIDE_WERROR=${KVTIDE_WERROR:-OFF}" >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  echo "configure.sh: CMake could not configure the preset $1; its log is $log" >&2
  exit 1
fi
