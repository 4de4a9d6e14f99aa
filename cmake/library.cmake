# SPDX-License-Identifier: Apache-2.0
#
# The components joined into one library. A static one is a single archive, so that a consumer's link line is
# -lfascore; a shared one exports what include/fascore marks and nothing else.

configure_file(cmake/version.h.in include/fascore/version.h @ONLY)

# fascore_join(target): sources, link libraries and properties of a library made of all components.
function(fascore_join target)
    get_property(components GLOBAL PROPERTY FASCORE_COMPONENTS)
    get_property(kernel_objects GLOBAL PROPERTY FASCORE_KERNEL_OBJECTS)
    foreach(part IN LISTS components kernel_objects)
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:${part}>)
    endforeach()
    fascore_common(${target})
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_link_libraries(${target} PRIVATE ${FASCORE_THREADS})
    set_target_properties(${target} PROPERTIES
        LINKER_LANGUAGE CXX
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "SHARED_LIBRARY" AND UNIX AND NOT APPLE)
        # Templates of namespace std carry default visibility of their own; the script keeps them in.
        target_link_options(${target} PRIVATE
            -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map -Wl,--no-undefined)
        set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
    endif()
endfunction()

add_library(fascore)
add_library(fascore::fascore ALIAS fascore)
target_sources(fascore PUBLIC FILE_SET HEADERS
    BASE_DIRS include ${PROJECT_BINARY_DIR}/include
    FILES
        include/fascore/attention.h
        include/fascore/dropout.h
        include/fascore/export.h
        include/fascore/fascore.h
        include/fascore/info.h
        include/fascore/plan.h
        include/fascore/reference.h
        include/fascore/status.h
        include/fascore/tensor.h
        ${PROJECT_BINARY_DIR}/include/fascore/version.h)
fascore_join(fascore)
