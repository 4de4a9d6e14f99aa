#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Leaves .venv with fascore, NumPy, ml_dtypes, safetensors, pytest, tqdm, matplotlib and, where a CPU build of it can be
# had, PyTorch. Does nothing twice: packages are installed once, the wheel is built again only when a source is newer.
#
#   scripts/python_env.sh            everything; prints what it does
#   PYTHON=python3.12 ...            the interpreter .venv is made of (CPython 3.10 or newer)
#   FASCORE_TORCH='' ...             no PyTorch; or another requirement than the default
#   FASCORE_TORCH_INDEX=URL ...      where pip finds it
#
# The wheel stays in build/python/dist. PyTorch is asked for by the local label +cpu, which only CPU builds carry, so that
# no CUDA build of several GB can come; other machines than x86-64 have CPU builds under the plain name.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "python_env: $python is older than 3.10" >&2
    exit 1
}
if [[ ! -x .venv/bin/python ]]; then
    echo "== .venv of $("$python" --version)"
    "$python" -m venv .venv || {
        echo "python_env: no venv; on Debian: apt-get install python3-venv python3-dev" >&2
        exit 1
    }
fi
pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)

packages=('scikit-build-core>=0.10' 'nanobind>=2.2' numpy ml_dtypes safetensors pytest tqdm matplotlib)
stamp=.venv/.packages
if [[ $(cat "$stamp" 2>/dev/null) != "${packages[*]}" ]]; then
    echo "== pip install ${packages[*]}"
    "${pip[@]}" install "${packages[@]}"
    echo "${packages[*]}" >"$stamp"
fi

default_torch='torch==2.13.0+cpu'
[[ $(uname -m) == x86_64 ]] || default_torch='torch>=2.9,<2.15'
torch=${FASCORE_TORCH-$default_torch}
if [[ -n $torch ]] && ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    echo "== pip install $torch"
    "${pip[@]}" install ${FASCORE_TORCH_INDEX:+--extra-index-url "$FASCORE_TORCH_INDEX"} "$torch" ||
        echo "python_env: no CPU build of PyTorch was found, going on without it (FASCORE_TORCH_INDEX=URL names a place)" >&2
fi

dist=build/python/dist
installed=.venv/.fascore
newer=$(find src include cmake bindings/python CMakeLists.txt pyproject.toml -type f -not -path '*/__pycache__/*' \
    -newer "$installed" -print -quit 2>/dev/null || echo all)
if [[ -n $newer ]] || ! .venv/bin/python -c 'import fascore' 2>/dev/null; then
    echo "== wheel of fascore"
    rm -rf "$dist"
    started=$(mktemp)
    "${pip[@]}" wheel . --no-deps --no-build-isolation --wheel-dir "$dist"
    "${pip[@]}" install --no-deps --force-reinstall "$dist"/fascore-*.whl
    touch -r "$started" "$installed"
    rm -f "$started"
fi
.venv/bin/python -c 'import fascore; print("fascore", fascore.__version__, "in .venv,", fascore.info()["isa"])'
