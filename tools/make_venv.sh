#!/usr/bin/env bash
# Makes a Python venv with the packages of a requirements file. Does nothing when it was made from the same file.
#
#   tools/make_venv.sh FOLDER REQUIREMENTS [PIP_OPTION...]
#
# PYTHON names the interpreter (default python3). The packages come from wherever pip is set up to look.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: tools/make_venv.sh FOLDER REQUIREMENTS [PIP_OPTION...]" >&2
  exit 2
fi
folder=$1
requirements=$2
shift 2
if [ ! -f "$requirements" ]; then
  echo "make_venv.sh: $requirements: no such file" >&2
  exit 1
fi
if cmp -s "$requirements" "$folder/.made-from"; then exit 0; fi

echo "making $folder from $requirements (this can take some minutes the first time)" >&2
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
if ! "${PYTHON:-python3}" -m venv "$folder"; then
  echo "make_venv.sh: cannot make a venv; install the package python3-venv" >&2
  exit 1
fi
log=$folder/pip.log
for attempt in 1 2; do
  if "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 -r "$requirements" "$@" \
    >"$log" 2>&1 </dev/null; then
    cp "$requirements" "$folder/.made-from"
    exit 0
  fi
  [ "$attempt" -eq 1 ] && echo "make_venv.sh: pip failed, trying once more" >&2
done
grep -E '^ERROR' "$log" >&2 || tail -n 15 "$log" >&2
echo "make_venv.sh: could not get the packages of $requirements; check the network (the whole log: $log)" >&2
exit 1
