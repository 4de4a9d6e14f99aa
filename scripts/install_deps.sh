#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that a goal needs, and only those that are missing.
#
#   scripts/install_deps.sh [build|python|test|ci]
#                                                build: tools and examples too      test: and the tests, proofs, emulation
#                                                python: what compiles the Python extension
#                                                ci: and the cross compiler, clang-format, clang-tidy
#
# As root or with passwordless sudo it runs apt-get; otherwise it prints the command for somebody who may, and fails.
set -euo pipefail

goal=${1:-test}
packages=(g++ make cmake ninja-build pkg-config libcli11-dev libfmt-dev nlohmann-json3-dev)
case $goal in
    build) ;;
    python) packages=(g++ make cmake ninja-build) ;;
    test) packages+=(python3 binutils libgtest-dev librapidcheck-dev qemu-user) ;;
    ci)
        packages+=(python3 binutils libgtest-dev librapidcheck-dev qemu-user
                   googletest g++-aarch64-linux-gnu clang-format clang-tidy util-linux)
        ;;
    *)
        echo "install_deps: unknown goal '$goal', must be build, python, test or ci" >&2
        exit 2
        ;;
esac
# Python's headers and venv come with it, except where Debian splits them off.
if [[ $goal != build ]] && ! python3 -c 'import ensurepip, os, sysconfig, venv, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' 2>/dev/null; then
    packages+=(python3 python3-venv python3-dev)
fi
if [[ $(dpkg --print-architecture 2>/dev/null) == arm64 ]]; then  # native there: no cross compiler, no x86 emulation
    kept=()
    for package in "${packages[@]}"; do [[ $package == g++-aarch64-linux-gnu ]] || kept+=("$package"); done
    packages=("${kept[@]}")
fi

if ! command -v dpkg-query >/dev/null; then
    echo "install_deps: no dpkg here; please install what these Debian packages hold: ${packages[*]}" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

command_line="apt-get install -y --no-install-recommends ${missing[*]}"
if [[ $(id -u) -eq 0 ]]; then
    prefix=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    prefix=(sudo -n)
else
    echo "install_deps: missing packages, and neither root nor passwordless sudo to install them. Please run:" >&2
    echo "    sudo apt-get update && sudo $command_line" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "== installing: ${missing[*]}"
if ! { "${prefix[@]}" apt-get update && "${prefix[@]}" env DEBIAN_FRONTEND=noninteractive $command_line; } \
    >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    echo "install_deps: apt-get failed; the command was: $command_line" >&2
    exit 1
fi
