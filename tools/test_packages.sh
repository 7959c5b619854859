#!/usr/bin/env bash
# Tries the packages where nothing of ours is and no compiler: in a folder that holds a bare Debian 12 (debootstrap). The .deb files
# are installed, used and removed without a trace, the wheel is installed in a venv and used. Needs root.
#
#   tools/test_packages.sh SCRATCH MODEL.gguf WHEEL DEB...
set -euo pipefail

if [ $# -lt 4 ]; then
  echo "usage: tools/test_packages.sh SCRATCH MODEL.gguf WHEEL DEB..." >&2
  exit 2
fi
scratch=$1 model=$2 wheel=$3
shift 3
if [ "$(id -u)" -ne 0 ]; then
  echo "test_packages.sh: only root can make the folder of a Debian system and run programs in it" >&2
  exit 1
fi
bare=$scratch/debian
if [ ! -f "$bare/.complete" ]; then
  rm -rf "$bare"
  mkdir -p "$bare"
  # From where this system has its own packages, of which other sources may stand beside.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' |
    head -n 1 || true)
  # debootstrap does not find who provides libc-dev, which libpcre2-dev asks for.
  debootstrap --variant=minbase \
    --include=python3-venv,libutf8proc2,libpcre2-8-0,libedit2,libc6-dev,libpcre2-dev,libutf8proc-dev \
    bookworm "$bare" ${mirror:+"$mirror"} >"$scratch/debootstrap.log" 2>&1 ||
    { tail -n 5 "$scratch/debootstrap.log" >&2; exit 1; }
  touch "$bare/.complete"
fi
if chroot "$bare" sh -c 'command -v cc || command -v g++'; then
  echo "test_packages.sh: there is a compiler in $bare, so nothing would be shown" >&2
  exit 1
fi
rm -rf "$bare/try"
mkdir "$bare/try"
cp "$model" "$bare/try/model.gguf"
cp "$@" "$bare/try/"

files_of() { (cd "$bare" && find usr etc opt var/lib -path var/lib/dpkg -prune -o -print | sort); }
chroot "$bare" dpkg -P kvtide libkvtide-dev >"$scratch/dpkg.log" 2>&1 || true  # what a run left that was stopped
files_of >"$scratch/before"
chroot "$bare" sh -c 'dpkg -i /try/*.deb' >"$scratch/dpkg.log" 2>&1 || { cat "$scratch/dpkg.log" >&2; exit 1; }
chroot "$bare" kvtide run -m /try/model.gguf -p "The tide comes in" -n 8
chroot "$bare" sh -c 'dpkg -P kvtide libkvtide-dev' >>"$scratch/dpkg.log" 2>&1
files_of >"$scratch/after"
diff "$scratch/before" "$scratch/after"
echo
echo "packages: the program ran from its .deb, and removing it left nothing"

# NumPy comes from where pip is set up to look; in there is no network.
python3 -m pip download --disable-pip-version-check -q -d "$bare/try/wheels" --only-binary :all: --python-version 3.11 "$wheel"
chroot "$bare" sh -c 'python3 -m venv /try/venv && /try/venv/bin/pip install -q --no-index --find-links /try/wheels kvtide'
chroot "$bare" /try/venv/bin/python -c '
import kvtide
model = kvtide.Model("/try/model.gguf")
print(repr(model.session(context=64).complete("The tide comes in", max_tokens=8)))'
echo "packages: the wheel ran in a venv"
