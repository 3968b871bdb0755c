# SPDX-License-Identifier: BSD-2-Clause
# A tool: one line in bin_PROGRAMS, its _SOURCES, and its _LDADD.

# The installed library plus the hidden helpers of base/.
tools_libs = libsparring.la base/libspr-base.la $(JANSSON_LIBS) $(spr_system_libs)

dist_noinst_SCRIPTS = tools/setup tools/check
