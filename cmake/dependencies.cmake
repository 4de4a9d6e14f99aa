# SPDX-License-Identifier: Apache-2.0
#
# What tools, tests and examples use beside fascore, and developer-only helpers. The library itself needs none of it.
#
# Cross compiling, the system's packages are of the wrong architecture: header-only ones are taken by links from
# /usr/include (not the folder itself: it holds the host's libc too), googletest is compiled from its Debian sources,
# and the property tests are left out.

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(CMAKE_CROSSCOMPILING)
    set(headers ${PROJECT_BINARY_DIR}/host-headers)
    file(MAKE_DIRECTORY ${headers})
    foreach(folder IN ITEMS CLI fmt nlohmann)
        if(NOT EXISTS /usr/include/${folder})
            message(FATAL_ERROR "/usr/include/${folder} is missing: run scripts/install_deps.sh")
        endif()
        file(CREATE_LINK /usr/include/${folder} ${headers}/${folder} SYMBOLIC)
    endforeach()
    foreach(library IN ITEMS CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json)
        string(REGEX REPLACE "::.*" "_host_headers" target ${library})
        add_library(${target} INTERFACE)
        target_include_directories(${target} SYSTEM INTERFACE ${headers})
        add_library(${library} ALIAS ${target})
    endforeach()
    target_compile_definitions(fmt_host_headers INTERFACE FMT_HEADER_ONLY)
else()
    find_package(CLI11 REQUIRED)
    find_package(fmt REQUIRED)
    find_package(nlohmann_json REQUIRED)
endif()

if(BUILD_TESTING)
    if(CMAKE_CROSSCOMPILING)
        set(INSTALL_GTEST OFF)
        add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
    else()
        find_package(GTest REQUIRED)
        find_package(rapidcheck REQUIRED)
    endif()
endif()

set(FASCORE_TEST_LAUNCHER "" CACHE STRING "Command every test program is run by (setarch, an emulator)")
if(CMAKE_CROSSCOMPILING AND NOT FASCORE_TEST_LAUNCHER)
    set(FASCORE_TEST_LAUNCHER ${CMAKE_CROSSCOMPILING_EMULATOR})
endif()

# What a user runs, without tests: the target of `make build`.
add_custom_target(fascore_programs)

# fascore_program(target sources... [LINKS ...]): an executable that sees the public API alone.
function(fascore_program target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINKS")
    add_executable(${target} ${arg_UNPARSED_ARGUMENTS})
    fascore_common(${target})
    target_link_libraries(${target} PRIVATE fascore::fascore ${arg_LINKS} fascore_warnings)
    add_dependencies(fascore_programs ${target})
endfunction()
