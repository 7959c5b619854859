#!/usr/bin/env bash
# Looks at what the compiler made of the floors (docs/architecture.md, "One arithmetic" and the kernel rules):
#
#   1. an object of a *.scalar.cpp, *.avx2.cpp or *.avx512.cpp exports one symbol, a kvtide::k... table, and no weak
#      ones: an inline function shared with a baseline file could put its AVX code on every machine's path;
#   2. AVX registers and instructions appear in no other object, and 512-bit ones only in *.avx512.cpp;
#   3. no floor below cli owns memory that changes and that no caller passed in (globals, statics, thread_local).
#
#   tools/check_isa.sh BUILD      a build folder with the compiled floors; x86-64 only
set -euo pipefail

if [ $# -ne 1 ] || [ ! -d "$1" ]; then
  echo "usage: tools/check_isa.sh BUILD      (a folder that holds a build of kvtide)" >&2
  exit 2
fi
build=$1
problems=0
problem() {
  echo "$1"
  problems=$((problems + 1))
}

# Files that were compiled together are one object; a kernel's file never is among them.
mapfile -t objects < <(find "$build/CMakeFiles" \( -path '*/src/*' -name '*.cpp.o' -o -path '*/Unity/*' -name '*.cxx.o' \) | sort)
if [ ${#objects[@]} -eq 0 ]; then
  echo "check_isa.sh: $build holds no objects of src/; build first" >&2
  exit 2
fi
if ! objdump -f "${objects[0]}" | grep -q 'x86-64'; then
  echo "isa: not an x86-64 build, nothing to check"
  exit 0
fi

isa_files=0
for object in "${objects[@]}"; do
  name=${object##*/src/}
  name=${name%.o}
  case "$object" in
    */kvtide.dir/Unity/*) name=cli/$(basename "$object") ;;
    */Unity/*) name=$(sed -E 's#.*/kvtide_([a-z]+)\.dir/Unity/#\1/#' <<<"$object") ;;
  esac

  case "$name" in
    *.scalar.cpp | *.avx2.cpp | *.avx512.cpp)
      isa_files=$((isa_files + 1))
      # DW.ref.* are weak pointers of the exception tables: data, the same on every machine.
      exported=$(nm --defined-only --extern-only -C "$object" | grep -v ' DW\.ref\.' | sed -E 's/^[0-9a-f]+ //' || true)
      weak=$(grep -E '^[WwVvu] ' <<<"$exported" || true)
      tables=$(grep -cE '^[DRr] kvtide::k[A-Z][A-Za-z0-9]*$' <<<"$exported" || true)
      [ -z "$weak" ] || problem "src/$name: exports weak symbols: $(tr '\n' ';' <<<"$weak")"
      if [ "$tables" -ne 1 ] || [ "$(grep -c . <<<"$exported" || true)" -ne 1 ]; then
        problem "src/$name: exports other than exactly one kvtide::k... table: $(tr '\n' ';' <<<"$exported")"
      fi
      ;;
  esac

  case "$name" in
    *.avx512.cpp) too_new='' ;;
    *.avx2.cpp) too_new='%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2[0-9]|3[01])\b' ;;
    *) too_new='%[yz]mm|\bv[a-z0-9]+ .*%xmm|%k[0-7]\b' ;;
  esac
  if [ -n "$too_new" ]; then
    found=$(objdump -d --no-show-raw-insn "$object" | grep -m1 -E -- "$too_new" || true)
    [ -z "$found" ] || problem "src/$name: holds an instruction that its file name does not promise: ${found#*:}"
  fi

  case "$name" in
    cli/*) ;;
    *)
      # Objects (O) of the writable sections, and anything thread-local. .data.rel.ro is written by the loader only;
      # what is in std:: belongs to the standard library.
      changing=$(objdump -t -C "$object" | grep -E '^[0-9a-f]+ (.{6}O \.(data|bss)|.{7} \.t(data|bss))[.[:space:]]' |
        grep -vE '\.data\.rel\.ro|DW\.ref\.|[[:space:]]std::' | sed -E 's/^.*\t[0-9a-f]+ +(\.hidden +)?//' || true)
      [ -z "$changing" ] || problem "src/$name: owns memory that changes: $(tr '\n' ';' <<<"$changing")"
      ;;
  esac
done

echo "isa: ${#objects[@]} objects, $isa_files kernel files of one instruction set, $problems problem(s)"
[ "$problems" -eq 0 ]
