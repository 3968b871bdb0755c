# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += compress/libspr-compress.la
compress_libspr_compress_la_SOURCES = \
	compress/blocks.c \
	compress/blocks.h \
	compress/chunk.h \
	compress/chunk_layout.h \
	compress/chunk_read.c \
	compress/chunk_write.c \
	compress/codec.c \
	compress/codec.h \
	compress/codec_internal.h \
	compress/codec_none.c \
	compress/codec_parse.c \
	compress/codec_round.c \
	compress/codec_state.c \
	compress/codec_topk.c \
	compress/kernels/dispatch.c \
	compress/kernels/kernels.h \
	compress/kernels/lut.c \
	compress/kernels/topk_scalar.c \
	compress/kernels/value_scalar.c \
	compress/kernels/window_scalar.c \
	compress/topk.c \
	compress/topk.h \
	compress/value.c \
	compress/value.h \
	compress/window.c
compress_libspr_compress_la_LIBADD =

# Kernels with flags of their own; the dispatch table decides at run time whether they are called.
if HAVE_X86
noinst_LTLIBRARIES += compress/libspr-kernels-avx2.la
compress_libspr_kernels_avx2_la_SOURCES = \
	compress/kernels/lanes_avx2.h \
	compress/kernels/topk_avx2.c \
	compress/kernels/value_avx2.c \
	compress/kernels/window_avx2.c
compress_libspr_kernels_avx2_la_CFLAGS = $(AM_CFLAGS) $(SPR_AVX2_CFLAGS)
compress_libspr_compress_la_LIBADD += compress/libspr-kernels-avx2.la
endif
