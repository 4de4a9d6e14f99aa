# SPDX-License-Identifier: Apache-2.0
#
# Install: the library, its headers, find_package(fascore) and pkg-config.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fascore)
install(TARGETS fascore EXPORT fascoreTargets FILE_SET HEADERS)
install(EXPORT fascoreTargets NAMESPACE fascore:: DESTINATION ${package_dir})

configure_package_config_file(cmake/fascoreConfig.cmake.in fascoreConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(fascoreConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/fascoreConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/fascoreConfigVersion.cmake
        DESTINATION ${package_dir})

# What a static archive leaves to its consumer belongs in Libs; what a shared library has linked already does not.
set(pc_needs "")
if(FASCORE_OPENMP)
    foreach(library IN LISTS OpenMP_CXX_LIB_NAMES)
        string(APPEND pc_needs " -l${library}")
    endforeach()
else()
    set(pc_needs " ${CMAKE_THREAD_LIBS_INIT}")
endif()
set(pc_public "")
get_target_property(type fascore TYPE)
if(type STREQUAL "STATIC_LIBRARY")
    set(pc_public "${pc_needs}")
    set(pc_needs "")
endif()
# Relative, so that an installed tree may be moved.
file(RELATIVE_PATH pc_up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/fascore.pc.in fascore.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/fascore.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
