#!/usr/bin/env bash
# Fetches Debian's arm64 builds of the libraries that the floors above the kernels need: headers and static libraries.
#
#   tools/aarch64_libraries.sh FOLDER      silent when they are there
#
# apt works with lists of its own below FOLDER: it needs no rights and changes nothing of the system. DEBIAN_MIRROR names
# another mirror than deb.debian.org.
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: tools/aarch64_libraries.sh FOLDER" >&2
  exit 2
fi
packages=(libpcre2-dev libutf8proc-dev nlohmann-json3-dev libprotozero-dev)
[ -e "$1/complete" ] && exit 0
rm -rf "$1"
mkdir -p "$1/apt/lists/partial" "$1/apt/cache/archives/partial" "$1/packages"
folder=$(cd "$1" && pwd)

# shellcheck disable=SC1091
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
  "${DEBIAN_MIRROR:-http://deb.debian.org/debian} ${release:-bookworm} main" >"$folder/apt/sources.list"
cat >"$folder/apt/apt.conf" <<EOF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State::status "/dev/null";
Dir::State::lists "$folder/apt/lists";
Dir::Cache "$folder/apt/cache";
Dir::Etc::sourcelist "$folder/apt/sources.list";
Dir::Etc::sourceparts "-";
Acquire::Retries "2";
Acquire::http::Timeout "30";
EOF
export APT_CONFIG=$folder/apt/apt.conf
if ! { apt-get -q update && (cd "$folder/packages" && apt-get -q download "${packages[@]}"); } >"$folder/apt/log" 2>&1; then
  tail -n 5 "$folder/apt/log" >&2
  echo "aarch64_libraries.sh: could not get ${packages[*]}; check the network and run the command again" >&2
  exit 1
fi
for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder"; done
# What is linked statically needs no loader's path under qemu.
find "$folder/usr/lib" -name '*.so' -delete
rm -rf "$folder/apt/lists" "$folder/apt/cache"
touch "$folder/complete"
