# SPDX-License-Identifier: MIT
#
# qsf_write_sbom(FOLDER)
# Writes the bill of materials FOLDER/sboms/qsf.cdx.json and what the packages of the libraries
# inside say of their licences, FOLDER/libraries/.

function(qsf_write_sbom folder)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(unpacked)
  if(QSF_AARCH64_LIBRARIES)
    set(unpacked --unpacked ${QSF_AARCH64_LIBRARIES})
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E env SOURCE_DATE_EPOCH=${QSF_DATE_EPOCH}
                          ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/package/make_sbom.py
                          --version ${PROJECT_VERSION} --machine ${CMAKE_SYSTEM_PROCESSOR} ${unpacked} --to ${folder}
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()
