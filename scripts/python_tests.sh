#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Python tests, on the wheel that scripts/python_env.sh built. Where no environment can be made (no pip, no network)
# it says so and passes; under CI=true it fails instead.
#
#   scripts/python_tests.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."

if ! scripts/python_env.sh; then
    echo "python_tests: no .venv, the Python tests were not run" >&2
    [[ ${CI:-} != true ]]
    exit
fi
if [[ ${CI:-} == true ]]; then
    .venv/bin/python -c 'import torch' || {
        echo "python_tests: no PyTorch in .venv, CI needs it" >&2
        exit 1
    }
fi
wheels=("$PWD"/build/python/dist/fascore-*.whl)
FASCORE_WHEEL=${wheels[0]} .venv/bin/python -m pytest tests/python "$@"
