#!/usr/bin/env bash
# Looks at what the compiler made of the floors (docs/architecture.md, "One arithmetic" and the kernel rules):
#
#   1. an object of a file named for an instruction set (*.scalar.cpp, *.avx2.cpp, *.neon.cpp ...) exports one symbol, a
#      kvtide::k... table, and no weak ones: an inline function shared with a baseline file could put its code on every
#      machine's path;
#   2. AVX registers and instructions appear in no other object, 512-bit ones only in *.avx512.cpp and *.amx.cpp, and tiles
#      only in *.amx.cpp; of Arm's instructions beyond Armv8.0 those for bytes only in *.dotprod.cpp and *.i8mm.cpp, those
#      for bf16 in *_bf16.neon.cpp;
#   3. no floor below cli owns memory that changes and that no caller passed in (globals, statics, thread_local).
#
#   tools/check_isa.sh BUILD      a build folder with the compiled floors, for x86-64 or aarch64
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
prefix=
known='^architecture: (i386:x86-64|aarch64)'
if ! objdump -f "${objects[0]}" | grep -qE "$known"; then
  prefix=aarch64-linux-gnu-  # the cross compiler's, which comes with it
  if ! command -v ${prefix}objdump >/dev/null || ! ${prefix}objdump -f "${objects[0]}" | grep -qE "$known"; then
    echo "isa: neither x86-64 nor aarch64, nothing to check"
    exit 0
  fi
fi
objdump() { command ${prefix}objdump "$@"; }
nm() { command ${prefix}nm "$@"; }

isa_files=0
arm_bytes='\b(us|su|u|s)(dot|mmla)\b' arm_bf16='\bbf(dot|mmla|mlal[bt]|cvtn?2?)\b'
for object in "${objects[@]}"; do
  name=${object##*/src/}
  name=${name%.o}
  case "$object" in
    */Unity/*) name=$(sed -E 's#.*/kvtide_([a-z]+)(_[a-z]+)?\.dir/Unity/#\1/#' <<<"$object") ;;
  esac

  case "$name" in
    *.scalar.cpp | *.avx2.cpp | *.avx512.cpp | *.amx.cpp | *.neon.cpp | *.dotprod.cpp | *.i8mm.cpp)
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

  wider='%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2[0-9]|3[01])\b'
  case "$name" in
    *.amx.cpp) too_new='' ;;
    *.avx512.cpp) too_new='%tmm|\\btile' ;;
    *_vnni.avx2.cpp) too_new="$wider" ;;
    *.avx2.cpp) too_new="$wider|\\bvpdp" ;;
    *_bf16.neon.cpp) too_new="$arm_bytes" ;;
    *.i8mm.cpp) too_new="$arm_bf16" ;;
    *.dotprod.cpp) too_new="\\b[su]mmla\\b|$arm_bf16" ;;
    *) too_new="%[yzt]mm|\\bv[a-z0-9]+ .*%xmm|%k[0-7]\\b|$arm_bytes|$arm_bf16" ;;
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
