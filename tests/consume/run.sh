#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs an outside project that uses fascore.
#
#   run.sh WAY SOURCE BUILD SCRATCH CMAKE CXX      WAY: install, find_package, pkg_config, add_subdirectory
#
# `install` puts the library of BUILD under SCRATCH/prefix for the next two; each way works in a folder of its own,
# which is emptied first.
set -euo pipefail

way=$1
source=$2
build=$3
scratch=$4
cmake=$5
cxx=$6
here=$(cd "$(dirname "$0")" && pwd)
prefix=$scratch/prefix
work=$scratch/$way
rm -rf "$work"
mkdir -p "$work"

case $way in
    install)
        rm -rf "$prefix"
        "$cmake" --install "$build" --prefix "$prefix"
        ;;
    find_package)
        "$cmake" -S "$here/find_package" -B "$work" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix"
        "$cmake" --build "$work"
        "$work/consumer"
        ;;
    pkg_config)
        pc=$(find "$prefix" -name fascore.pc -printf '%h')
        export PKG_CONFIG_PATH=$pc
        # shellcheck disable=SC2046  # flags are words
        "$cxx" -std=c++20 $(pkg-config --cflags fascore) "$here/main.cpp" $(pkg-config --libs fascore) -o "$work/consumer"
        "$work/consumer"
        ;;
    add_subdirectory)
        "$cmake" -S "$here/add_subdirectory" -B "$work" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" \
            -DCMAKE_BUILD_TYPE=Release -DFASCORE_SOURCE="$source"
        "$cmake" --build "$work"
        "$work/consumer"
        ;;
    *)
        echo "unknown way '$way'" >&2
        exit 2
        ;;
esac
