#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/format.sh [--check]: every C++ file of the tree through clang-format; --check changes nothing and fails on
# a difference.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run --Werror)
find include src bindings tools examples tests \( -name '*.cpp' -o -name '*.h' \) -print0 | sort -z |
    xargs -0 --no-run-if-empty clang-format "${mode[@]}"
