#!/usr/bin/env bash
# Runs the tests of an aarch64 build under qemu, as processors with and without what the kernel tables want.
#
#   tools/test_aarch64.sh BUILD      a build folder of the preset aarch64
#
# Once as the processor that has all tables; what compares the tables of matrix products runs as the others, too. Left out is
# what compares attention with arithmetic in double: that all tables give the bits of the scalar one is tested here, that
# those are good ones elsewhere.
set -euo pipefail

if [ $# -ne 1 ] || [ ! -x "$1/tests/kernels_tests" ]; then
  echo "usage: tools/test_aarch64.sh BUILD      (a folder that holds a build of the preset aarch64)" >&2
  exit 2
fi
build=$1
bits='Kernels.*:Probe.*:MatmulDot.Gives*:Elementwise.Gives*:Quantize.Gives*:Hadamard.*:AttendInts.Meet*'
# qemu says that it clears a page in children (MADV_WIPEONFORK), and does not.
forkless='*-ThreadPool.WhoseProcessForked*'
everything='*-AttendInts.ComeWithin*:AttendSpread.Equals*:Attend.Equals*:AttendViews.Equal*:Attend.WithBf16Comes*'

# as CPU TABLES PROGRAM [FILTER]
as() {
  local log=$build/$3-$1.log
  echo "$3 as $1: $2"
  if ! QEMU_CPU=$1 KVTIDE_TABLES=$2 qemu-aarch64 -L /usr/aarch64-linux-gnu "$build/tests/$3" "--gtest_filter=${4:-*}" \
    --gtest_brief=1 >"$log" 2>&1; then
    cat "$log" >&2
    echo "test_aarch64.sh: $3 failed as $1; its output is $log" >&2
    exit 1
  fi
  tail -n 1 "$log"
}

as cortex-a53 "neon scalar" kernels_tests "$bits"
as cortex-a76 "dotprod neon scalar" kernels_tests "$bits"
all="i8mm_bf16 i8mm dotprod neon scalar"
as max "$all" tensor_tests
as max "$all" kernels_tests "$everything"
as max "$all" engine_tests 'Goldens.Logits*Reference:SameBits.ForEveryKernelTable'
as max "$all" base_tests "$forkless"
