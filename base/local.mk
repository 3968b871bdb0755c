# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += base/libspr-base.la
base_libspr_base_la_SOURCES = \
	base/arena.c \
	base/clock.c \
	base/clock.h \
	base/counters.h \
	base/cpu.c \
	base/cpu.h \
	base/cpu_quota.c \
	base/crc32c.c \
	base/crc32c.h \
	base/crc32c_scalar.c \
	base/error.c \
	base/error.h \
	base/fork.c \
	base/fork.h \
	base/list.h \
	base/log.c \
	base/log.h \
	base/marks.h \
	base/mem.c \
	base/mem.h \
	base/mem_count.h \
	base/opt.c \
	base/opt.h \
	base/opt_load.c \
	base/opt_parse.c \
	base/pages.c \
	base/pool.c \
	base/prefix.h \
	base/rng.c \
	base/rng.h \
	base/series.c \
	base/series.h \
	base/status.c \
	base/trace.c \
	base/trace.h \
	base/trace_file.c \
	base/trace_text.c \
	base/util.h \
	base/version.c \
	base/workers.c \
	base/workers.h
