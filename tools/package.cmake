# `make package`: two Debian packages, the program and what other programs link (headers, library, CMake config).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvtide)
set(CPACK_PACKAGE_CONTACT "The kvtide authors")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL program library)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME kvtide)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS python3)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "language models on a CPU inside a byte budget for the KV cache
 Reads and continues long texts, saves and restores what was read, resizes a live
 memory, and measures what a memory costs.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libkvtide-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libpcre2-dev, libutf8proc-dev")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "language models on a CPU: headers and library
 The C++ and C interfaces of kvtide as a static library, for find_package(kvtide).")
include(CPack)
