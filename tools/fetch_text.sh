#!/usr/bin/env bash
# Writes a text of the King James version of the Bible as plain prose, a paragraph per chapter.
#
#   tools/fetch_text.sh ruth FILE       the Book of Ruth, 12 kB, some 3,000 tokens: a short text. Breaks off
#                                       shortly before the end, so that a model has something to go on with.
#   tools/fetch_text.sh ezekiel FILE    Ezekiel 1-24, 97 kB: what perplexities are compared on. Small models know Genesis
#                                       by heart (perplexity 4.7), where rounding shows three times as much as in prose.
#   tools/fetch_text.sh prophets FILE   Isaiah to Malachi, some 200,000 tokens: for what needs a text of great length.
#
# The words come from Debian's package bible-kjv (the text itself is in the public domain). Does nothing when FILE is
# there; FILE appears only when it is complete.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-} $#" in
  "ruth 2") verses=ruth1:1-4:12 least=11000 most=13000 ;;
  "ezekiel 2") verses=eze1:1-24:27 least=85000 most=110000 ;;
  "prophets 2") verses=isa1:1-mal4:6 least=800000 most=1100000 ;;
  *)
    echo "usage: tools/fetch_text.sh ruth|ezekiel|prophets FILE" >&2
    exit 2
    ;;
esac
file=$2
[ -s "$file" ] && exit 0
tools/install.sh texts
if ! command -v bible >/dev/null; then
  echo "fetch_text.sh: the command 'bible' is missing; install your system's equivalent of the package bible-kjv" >&2
  exit 1
fi
mkdir -p "$(dirname "$file")"
part=$(mktemp "$file.XXXXXX")
trap 'rm -f "$part"' EXIT
# Without pretty-printing the program gives one verse a line, "Ruth1:1 Now it came to pass ...": a chapter becomes a
# paragraph, and the references go.
bible -f "$verses" </dev/null | awk '
  match($0, /^[A-Z][a-z]+[0-9]+:[0-9]+ /) {
    split($0, at, ":")
    if (at[1] != chapter) printf "%s", chapter ? "\n\n" : ""; else printf " "
    chapter = at[1]
    printf "%s", substr($0, RLENGTH + 1)
    next
  }
  { exit 1 }' >"$part"
size=$(wc -c <"$part")
if [ "$size" -lt "$least" ] || [ "$size" -gt "$most" ]; then
  echo "fetch_text.sh: the package bible-kjv gave $size bytes for $verses; expected $least to $most" >&2
  exit 1
fi
chmod 644 "$part"
mv "$part" "$file"
