# SPDX-License-Identifier: Apache-2.0
#
# How every target of ours is compiled, and fascore_component(): one static library a folder of src/. Linking is the
# check: a component that calls what it may not see fails to link in its own folder's test.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

set(FASCORE_SANITIZE "" CACHE STRING "-fsanitize= list for everything we compile (developers; presets asan-ubsan, tsan)")
option(FASCORE_COVERAGE "Count executed lines (developers; preset coverage)" OFF)

# Flags of this build, not of the product: never exported.
add_library(fascore_build INTERFACE)
target_compile_features(fascore_build INTERFACE cxx_std_20)
# A product and a sum are fused where the source says so, never by the compiler's choice: results must not depend on it.
target_compile_options(fascore_build INTERFACE -ffp-contract=off)
if(FASCORE_SANITIZE)
    target_compile_options(fascore_build INTERFACE -fsanitize=${FASCORE_SANITIZE} -fno-sanitize-recover=all
                                                   -fno-omit-frame-pointer)
    target_link_options(fascore_build INTERFACE -fsanitize=${FASCORE_SANITIZE})
endif()
if(FASCORE_COVERAGE)
    target_compile_options(fascore_build INTERFACE --coverage)
    target_link_options(fascore_build INTERFACE --coverage)
endif()

if(FASCORE_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    set(FASCORE_THREADS OpenMP::OpenMP_CXX)
else()
    find_package(Threads REQUIRED)
    set(FASCORE_THREADS Threads::Threads)
endif()

# Warnings. Kernel bodies convert by design of their intrinsics and take the shorter list. GCC 12 reports the intrinsics
# headers' own _mm512_undefined_* as uninitialized wherever they are inlined, under either name.
set(warnings -Wall -Wextra -Wshadow)
if(FASCORE_DEVELOPER)
    list(APPEND warnings -Werror)
endif()
add_library(fascore_warnings INTERFACE)
target_compile_options(fascore_warnings INTERFACE
    ${warnings} -Wpedantic -Wconversion -Wsign-conversion -Wold-style-cast)
add_library(fascore_kernel_warnings INTERFACE)
target_compile_options(fascore_kernel_warnings INTERFACE
    ${warnings} $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized -Wno-maybe-uninitialized>)

# What any target of ours has in common. Both visibility settings are needed: with hidden symbols alone, inline
# functions of the standard library would still be exported.
function(fascore_common target)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:fascore_build>)
    set_target_properties(${target} PROPERTIES
        CXX_EXTENSIONS OFF
        CXX_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON
        POSITION_INDEPENDENT_CODE ON)
endfunction()

# fascore_glue(target headers...): a target that computes nothing, and is most of the compile time where every line is
# instrumented or a cross build repeats it: there it is compiled without optimisation and with its large headers
# precompiled. What ships, and the include of every name, are checked by the other builds.
function(fascore_glue target)
    if(FASCORE_SANITIZE OR CMAKE_CROSSCOMPILING)
        target_compile_options(${target} PRIVATE -O0)
        target_precompile_headers(${target} PRIVATE ${ARGN})
    endif()
endfunction()

# fascore_component(base SOURCES a.cpp ... [LINKS fascore_x ...]): the static library fascore_<name> of one folder.
function(fascore_component name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
    set(target fascore_${name})
    add_library(${target} STATIC EXCLUDE_FROM_ALL ${arg_SOURCES})
    fascore_common(${target})
    target_link_libraries(${target} PUBLIC ${arg_LINKS} PRIVATE $<BUILD_INTERFACE:fascore_warnings>)
    target_include_directories(${target} PUBLIC
        ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
    set_property(GLOBAL APPEND PROPERTY FASCORE_COMPONENTS ${target})
endfunction()
