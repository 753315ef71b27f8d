# SPDX-License-Identifier: MIT
#
# cmake -DGZIP=gzip -DFROM=file -DTO=file.gz -P compress.cmake: the same bytes whenever it is done.
get_filename_component(folder ${TO} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${GZIP} -9nc ${FROM} OUTPUT_FILE ${TO} COMMAND_ERROR_IS_FATAL ANY)
