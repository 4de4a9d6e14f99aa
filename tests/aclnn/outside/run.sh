#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs outside programs written for the accelerator's C API, against an installed fascore.
#
#   run.sh WAY SOURCE BUILD SCRATCH CMAKE CC CXX
#
#   install   the library of BUILD into SCRATCH/prefix, for the others
#   cmake     the samples as a CMake project with fascore::aclnn, as C11 and C++11
#   bare      the samples by a bare compiler line with the usual libraries, as C11 and C++11
#   vendor    every version in one C++11 program in the style of the vendor's samples, by a bare compiler line
set -euo pipefail

way=$1
source=$2
build=$3
scratch=$4
cmake=$5
cc=$6
cxx=$7
here=$(cd "$(dirname "$0")" && pwd)
samples=$source/examples/aclnn
prefix=$scratch/prefix
work=$scratch/$way
rm -rf "$work"
mkdir -p "$work"

# What a program for the accelerator is compiled and linked with; its toolkit's path replaced by ours.
usual_includes=(-I"$prefix/include" -I"$prefix/include/aclnn" -I"$prefix/include/aclnnop")
usual_libraries=(-L"$prefix/lib64" -lascendcl -lnnopbase -lopapi)
strict=(-Wall -Wextra -Wpedantic -Werror)
export LD_LIBRARY_PATH=$prefix/lib64

case $way in
    install)
        rm -rf "$prefix"
        "$cmake" --install "$build" --prefix "$prefix"
        ;;
    cmake)
        "$cmake" -S "$samples" -B "$work" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
            -DCMAKE_PREFIX_PATH="$prefix"
        "$cmake" --build "$work"
        unset LD_LIBRARY_PATH # the build's own run path must do
        for program in gradient_sbh gradient_packed pair; do
            "$work/${program}_c11"
            "$work/${program}_cxx11"
        done
        ;;
    bare)
        for program in gradient_sbh gradient_packed pair; do
            "$cc" -std=c11 "${strict[@]}" "${usual_includes[@]}" "$samples/$program.c" "${usual_libraries[@]}" -lm \
                -o "$work/$program.c11"
            "$cxx" -std=c++11 "${strict[@]}" "${usual_includes[@]}" -x c++ "$samples/$program.c" -x none \
                "${usual_libraries[@]}" -o "$work/$program.cxx11"
            "$work/$program.c11"
            "$work/$program.cxx11"
        done
        ;;
    vendor)
        "$cxx" -std=c++11 "${strict[@]}" "${usual_includes[@]}" "$here/vendor_style.cpp" "${usual_libraries[@]}" \
            -lopapi_transformer -o "$work/vendor_style"
        "$work/vendor_style"
        ;;
    *)
        echo "unknown way '$way'" >&2
        exit 2
        ;;
esac
