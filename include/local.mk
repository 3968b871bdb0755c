# SPDX-License-Identifier: BSD-2-Clause
# Public headers, installed to $(includedir)/sparring.

sparringincludedir = $(includedir)/sparring
sparringinclude_HEADERS = \
	include/sparring/bootstrap.h \
	include/sparring/codec.h \
	include/sparring/comm.h \
	include/sparring/dense.h \
	include/sparring/mem.h \
	include/sparring/request.h \
	include/sparring/sparring.h \
	include/sparring/sparse.h \
	include/sparring/stats.h \
	include/sparring/status.h \
	include/sparring/tune.h \
	include/sparring/types.h
nodist_sparringinclude_HEADERS = include/sparring/version.h
