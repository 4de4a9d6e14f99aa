#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the program on an emulated x86-64 CPU and asserts what it chooses there.
#
#   scripts/check_emulated.sh CPU ISA PROGRAM      CPU: a name of qemu-x86_64, ISA: the table that must be chosen
#
# The first level must pass with that table (an instruction the CPU does not have kills the run: that is the point), and
# a table the CPU cannot run must be refused by name when FASCORE_ISA asks for it.
set -euo pipefail
unset FASCORE_ISA FASCORE_NUM_THREADS

cpu=$1
isa=$2
program=$3
emulate=(qemu-x86_64 -cpu "$cpu")

info=$("${emulate[@]}" "$program" info)
if ! grep -Eq "^isa +$isa:" <<<"$info"; then
    echo "$cpu: must choose $isa, fascore info says:" >&2
    echo "$info" >&2
    exit 1
fi
"${emulate[@]}" "$program" check 0

if message=$(FASCORE_ISA=avx512 "${emulate[@]}" "$program" check 0 2>&1) || [[ $message != *"avx512, this CPU lacks"* ]]; then
    echo "$cpu: FASCORE_ISA=avx512 must be refused, it says:" >&2
    echo "$message" >&2
    exit 1
fi
echo "$cpu: chooses $isa, refuses avx512"
