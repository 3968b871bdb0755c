# SPDX-License-Identifier: BSD-2-Clause
# A tool: one line in bin_PROGRAMS, its _SOURCES, and its _LDADD (tools_libs, or spr_static_libs when it looks inside).

# The installed library plus the hidden helpers of base/.
tools_libs = libsparring.la base/libspr-base.la $(JANSSON_LIBS) $(spr_system_libs)

dist_noinst_SCRIPTS = tools/setup tools/check tools/demo

# sparring-run needs nothing of the library.
bin_PROGRAMS += tools/sparring-run
tools_sparring_run_LDADD =
tools_sparring_run_SOURCES = \
	tools/run/emulate.c \
	tools/run/emulate.h \
	tools/run/end.c \
	tools/run/front.c \
	tools/run/front.h \
	tools/run/identity.c \
	tools/run/job.c \
	tools/run/job.h \
	tools/run/main.c \
	tools/run/options.c \
	tools/run/options.h \
	tools/run/output.c \
	tools/run/output.h \
	tools/run/parse.c \
	tools/run/parse.h \
	tools/run/privilege.c \
	tools/run/privilege.h \
	tools/run/rank.c \
	tools/run/remote.c \
	tools/run/tree.c \
	tools/run/tree.h
