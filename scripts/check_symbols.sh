#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves kernel objects clean: each defines one external symbol, its table fascore::kernels_<isa>, and no constructor.
#
#   scripts/check_symbols.sh NM OBJDUMP ISA=OBJECT...
#
# Why: an inline function with external linkage, emitted in an AVX-512 object, may be the copy the linker keeps for
# everybody, and a global vector constant runs AVX-512 when the library is loaded. Both die on a CPU without it, and
# neither shows on ours.
set -euo pipefail

nm=$1
objdump=$2
shift 2
failures=0
for pair in "$@"; do
    isa=${pair%%=*}
    object=${pair#*=}
    table=kernels_$isa
    label=${object##*CMakeFiles/}
    label=${label%%.dir*}
    symbols=$("$nm" --defined-only --extern-only --format=posix "$object" | cut -d ' ' -f 1)
    # Itanium mangling: <length><name> as the last component of a nested name.
    if [[ $(wc -l <<<"$symbols") -ne 1 || ! $symbols =~ ^_ZN.*${#table}${table}E$ ]]; then
        echo "$label: the object must define ${table} and nothing else, it defines:" >&2
        "$nm" --defined-only --extern-only --demangle "$object" | head -n 20 | sed 's/^/    /' >&2
        failures=$((failures + 1))
    elif constructors=$("$objdump" -h "$object" | grep -E '\.(init_array|ctors|preinit_array)'); then
        echo "$label: the object runs code when it is loaded:" >&2
        echo "$constructors" >&2
        failures=$((failures + 1))
    else
        echo "$isa: only $table ($label)"
    fi
done
[[ $# -gt 0 && $failures -eq 0 ]]
