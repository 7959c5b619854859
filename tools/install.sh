#!/usr/bin/env bash
# Installs the Debian packages that a part of the project needs. Silent when everything is there.
#
#   tools/install.sh GROUP...     groups: small build test fuzz check python demo texts references peers package test-packages page aarch64
#
# Needs no network and no rights when nothing is missing. Otherwise it uses apt-get, through sudo for anyone but root,
# and says in one line what it could not get.
set -euo pipefail

packages_of() {
  case "$1" in
    small) echo g++ cmake ninja-build make nlohmann-json3-dev libpcre2-dev libutf8proc-dev libedit-dev python3 ;;
    build) echo "$(packages_of small) libprotozero-dev libboost1.81-dev" ;;
    test) echo libgtest-dev ;;
    fuzz) echo clang-14 libclang-rt-14-dev ;;
    check) echo clang-14 clang-format-14 binutils pyflakes3 ;;
    python) echo python3-venv python3-dev ;;
    demo) echo python3-venv ;;
    texts) echo bible-kjv ;;
    references) echo python3-venv ;;
    peers) echo clang-14 libomp-14-dev ;;
    package) echo dpkg-dev file ;;
    test-packages) echo debootstrap python3-venv python3-pip ;;
    page) echo chromium python3-venv ;;
    aarch64) echo g++-aarch64-linux-gnu qemu-user googletest ;;
    *)
      echo "install.sh: unknown group '$1'; the groups are: small build test fuzz check python demo texts references peers package test-packages page aarch64" >&2
      exit 2
      ;;
  esac
}

if [ $# -eq 0 ]; then
  echo "usage: tools/install.sh GROUP...   (small build test fuzz check python demo texts references peers package test-packages page aarch64)" >&2
  exit 2
fi
wanted=()
for group in "$@"; do
  list=$(packages_of "$group")
  # shellcheck disable=SC2206  # one package a word, by design
  wanted+=($list)
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  # Not a Debian family system: the names are a hint, the build says what it does not find.
  echo "install.sh: no apt-get here; if the build fails, install your system's equivalents of: ${wanted[*]}" >&2
  exit 0
fi

list_missing() {
  local installed
  # dpkg-query fails as soon as one name is unknown to it; what it prints is what counts.
  installed=$(dpkg-query -W -f '${db:Status-Status} ${binary:Package}\n' "${wanted[@]}" 2>/dev/null || true)
  installed=$(sed -n -E 's/^installed ([^:]+)(:.*)?$/\1/p' <<<"$installed")
  for package in "${wanted[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || echo "$package"
  done | sort -u
}

mapfile -t missing < <(list_missing)
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install.sh: missing packages; as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing ${missing[*]}" >&2
apt() {
  # No terminal questions, and a dead network is given up after a minute, not after ten.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
    -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o DPkg::Lock::Timeout=120 \
    "$@" >>"$log" 2>&1 </dev/null
}
# A stale package list can still be good enough: only the install itself decides.
apt update || true
if ! apt install "${missing[@]}"; then
  grep -E '^E: ' "$log" >&2 || tail -n 15 "$log" >&2
  echo "install.sh: could not get the packages: ${missing[*]}" >&2
  echo "install.sh: check the network, or install them by hand and run the command again" >&2
  exit 1
fi
