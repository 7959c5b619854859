#!/usr/bin/env bash
# Writes the text that the demo reads: the Book of Ruth, in the King James version, as plain prose (about 12 kB, some
# 3,000 tokens). It breaks off shortly before the end, so that a model has something to go on with.
#
#   tools/fetch_text.sh FILE
#
# The words come from Debian's package bible-kjv (the text itself is in the public domain). Does nothing when FILE is
# there; FILE appears only when it is complete.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -ne 1 ]; then
  echo "usage: tools/fetch_text.sh FILE" >&2
  exit 2
fi
[ -s "$1" ] && exit 0
tools/install.sh demo
if ! command -v bible >/dev/null; then
  echo "fetch_text.sh: the command 'bible' is missing; install your system's equivalent of the package bible-kjv" >&2
  exit 1
fi
mkdir -p "$(dirname "$1")"
part=$(mktemp "$1.XXXXXX")
trap 'rm -f "$part"' EXIT
# Without pretty-printing the program gives one verse a line, "Ruth1:1 Now it came to pass ...": a chapter becomes a
# paragraph, and the references go.
bible -f ruth1:1-4:12 </dev/null | awk '
  match($0, /^Ruth[0-9]+:[0-9]+ /) {
    split(substr($1, 5), at, ":")
    if (at[1] != chapter) printf "%s", chapter ? "\n\n" : ""; else printf " "
    chapter = at[1]
    printf "%s", substr($0, RLENGTH + 1)
    next
  }
  { exit 1 }' >"$part"
size=$(wc -c <"$part")
if [ "$size" -lt 10000 ] || [ "$size" -gt 16000 ]; then
  echo "fetch_text.sh: the package bible-kjv gave $size bytes for the Book of Ruth; expected 10,000 to 16,000" >&2
  exit 1
fi
chmod 644 "$part"
mv "$part" "$1"
