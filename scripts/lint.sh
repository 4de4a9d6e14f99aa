#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What can be judged without building: formatting, who includes whom, shell and python syntax.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== clang-format"
scripts/format.sh --check
echo "== includes"
python3 scripts/check_includes.py
echo "== shell"
find scripts tests .ci -type f \( -name '*.sh' -o -path .ci/run \) -print0 | xargs -0 -n 1 bash -n
if [[ -n $(find scripts tests tools examples bindings -name '*.py' -print -quit) ]]; then
    echo "== python"
    find scripts tests tools examples bindings -name '*.py' -print0 | xargs -0 python3 -m py_compile
    if command -v ruff >/dev/null; then ruff check scripts tests tools examples bindings; fi
fi
