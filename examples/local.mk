# SPDX-License-Identifier: BSD-2-Clause
# Examples use the public headers and libsparring.la, nothing else.

examples_libs = libsparring.la -lm

noinst_PROGRAMS += examples/allreduce
examples_allreduce_LDADD = $(examples_libs)

if HAVE_OPENBLAS
noinst_PROGRAMS += examples/train_digits
endif
examples_train_digits_CPPFLAGS = $(AM_CPPFLAGS) $(OPENBLAS_CFLAGS)
examples_train_digits_LDADD = $(examples_libs) $(OPENBLAS_LIBS)
examples_train_digits_SOURCES = \
	examples/digits.h \
	examples/digits_draw.c \
	examples/digits_idx.c \
	examples/digits_method.c \
	examples/digits_method.h \
	examples/digits_net.c \
	examples/digits_net.h \
	examples/digits_options.c \
	examples/digits_options.h \
	examples/digits_report.c \
	examples/digits_report.h \
	examples/digits_trace.c \
	examples/digits_trace.h \
	examples/train_digits.c
