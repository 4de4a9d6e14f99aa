#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the shared library exports must be the public API, exactly: the list is kept in tests/proofs/exports.txt.
#
#   scripts/check_exports.sh [--update] NM LIBRARY LIST      --update rewrites the list
set -euo pipefail
export LC_ALL=C

update=no
if [[ $1 == --update ]]; then
    update=yes
    shift
fi
nm=$1
library=$2
list=$3
found=$("$nm" --dynamic --defined-only --demangle --format=posix "$library" | sed -E 's/ [A-Za-z] [0-9a-f]+.*$//' | sort -u)
if [[ $update == yes ]]; then
    echo "$found" >"$list"
    exit 0
fi
if ! diff -u --label "$list" --label "exported by $library" "$list" <(echo "$found"); then
    echo "the exports differ from the list; if that is meant, repeat with --update" >&2
    exit 1
fi
echo "$(wc -l <<<"$found") exported symbols, all of them on the list"
