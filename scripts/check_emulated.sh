#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs programs on an emulated x86-64 CPU and asserts which kernel table they choose there.
#
#   scripts/check_emulated.sh CPU ISA PROGRAM TEST...
#
# CPU is a name of qemu-x86_64, ISA the table that must be chosen on it, PROGRAM the fascore program, each TEST a test
# program, optionally with a gtest filter after a colon. An instruction the CPU does not have kills the run: that is the
# point. It is also shown to be able to: on a CPU without AVX a table that needs it must be refused, not run.
set -euo pipefail
unset FASCORE_ISA FASCORE_NUM_THREADS

cpu=$1
isa=$2
program=$3
shift 3
emulate=(qemu-x86_64 -cpu "$cpu")

info=$("${emulate[@]}" "$program" info)
if ! grep -Eq "^isa +$isa:" <<<"$info"; then
    echo "$cpu: expected $isa to be chosen, fascore info says:" >&2
    echo "$info" >&2
    exit 1
fi
echo "$cpu: chooses $isa"

if FASCORE_ISA=avx512 "${emulate[@]}" "$program" check 0 >/dev/null 2>/tmp/fascore_emulated.$$; then
    echo "$cpu: FASCORE_ISA=avx512 was not refused" >&2
    exit 1
fi
grep -q avx512 /tmp/fascore_emulated.$$ || {
    cat /tmp/fascore_emulated.$$ >&2
    exit 1
}
rm -f /tmp/fascore_emulated.$$

for entry in "$@"; do
    test=${entry%%:*}
    filter='*'
    [[ $entry == *:* ]] && filter=${entry#*:}
    echo "$cpu: $(basename "$test") --gtest_filter=$filter"
    "${emulate[@]}" "$test" --gtest_brief=1 --gtest_filter="$filter"
done
