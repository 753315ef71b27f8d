# SPDX-License-Identifier: MIT
#
# What `cmake --install` puts where.
include(GNUInstallDirs)
