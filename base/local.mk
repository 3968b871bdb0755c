# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += base/libspr-base.la
base_libspr_base_la_SOURCES = \
	base/clock.h \
	base/counters.h \
	base/cpu.h \
	base/crc32c.h \
	base/error.h \
	base/list.h \
	base/log.h \
	base/mem.h \
	base/opt.h \
	base/prefix.h \
	base/rng.h \
	base/trace.h \
	base/util.h \
	base/version.c
