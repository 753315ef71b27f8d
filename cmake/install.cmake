# SPDX-License-Identifier: MIT
#
# What `cmake --install` puts where:
#
#   bin/qsf-*                  the tools
#   include/qsf/qsf.h          the C interface
#   lib/libqsf.a               the engine, one archive; link it with pcre2-8 utf8proc lz4 zstd stdc++ m pthread.
#                              Release objects hold link-time-optimisation code, so link with the
#                              compiler that built them, or build with
#                              -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF
#   share/qsf/models/          the bundled model, which qsf-run finds from its own place:
#                              ../share/qsf/models when installed, models/ in a built tree
#   share/doc/qsf/             licence, notice, readme

set(QSF_BUNDLED_MODEL ${PROJECT_SOURCE_DIR}/models/tales-5M-4bit.qsf)

# Every program that tools/ declares, and none of its tests.
get_property(qsf_tool_targets DIRECTORY ${PROJECT_SOURCE_DIR}/tools PROPERTY BUILDSYSTEM_TARGETS)
foreach(target IN LISTS qsf_tool_targets)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE" AND NOT target MATCHES "_test$")
    install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# One archive of all that capi links, since a user should not have to know the folders.
if(TARGET qsf_capi)
  set(qsf_archive_objects)
  foreach(folder IN ITEMS base platform quant memory io kernels tokenizer format kv stream ops model engine capi)
    if(TARGET qsf_${folder})
      list(APPEND qsf_archive_objects $<TARGET_OBJECTS:qsf_${folder}>)
    endif()
  endforeach()
  add_library(qsf STATIC ${qsf_archive_objects})
  set_target_properties(qsf PROPERTIES LINKER_LANGUAGE CXX)
  install(TARGETS qsf ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/include/qsf/qsf.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/qsf)
endif()

if(EXISTS ${QSF_BUNDLED_MODEL})
  install(FILES ${QSF_BUNDLED_MODEL} DESTINATION ${CMAKE_INSTALL_DATADIR}/qsf/models)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE ${PROJECT_SOURCE_DIR}/README.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Installs into the build tree and uses what was installed as a user would.
if(QSF_BUILD_TESTS AND TARGET qsf_capi AND NOT QSF_COVERAGE)
  add_test(NAME install_test
           COMMAND bash ${PROJECT_SOURCE_DIR}/scripts/install_test.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
                   ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER} "${QSF_SANITIZE}")
  set_tests_properties(install_test PROPERTIES LABELS model TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
