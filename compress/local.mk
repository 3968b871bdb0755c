# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += compress/libspr-compress.la
compress_libspr_compress_la_SOURCES = \
	compress/adapt.c \
	compress/adapt.h \
	compress/blocks.c \
	compress/blocks.h \
	compress/chunk.h \
	compress/chunk_layout.h \
	compress/chunk_read.c \
	compress/chunk_write.c \
	compress/codec.c \
	compress/codec.h \
	compress/codec_adapt.c \
	compress/codec_internal.h \
	compress/codec_lowrank.c \
	compress/codec_none.c \
	compress/codec_parse.c \
	compress/codec_quantise.c \
	compress/codec_schedule.c \
	compress/codec_select.c \
	compress/codec_selections.c \
	compress/codec_state.c \
	compress/codec_sums.c \
	compress/coding.c \
	compress/coding.h \
	compress/indices/auto.c \
	compress/indices/bitmap.c \
	compress/indices/bitpack.c \
	compress/indices/bits.h \
	compress/indices/coder.h \
	compress/indices/eliasfano.c \
	compress/indices/golomb.c \
	compress/indices/indices.c \
	compress/indices/indices.h \
	compress/indices/u16.c \
	compress/indices/u32.c \
	compress/kernels/dispatch.c \
	compress/kernels/indices.h \
	compress/kernels/indices_scalar.c \
	compress/kernels/kernels.h \
	compress/kernels/lowrank.h \
	compress/kernels/lowrank_scalar.c \
	compress/kernels/lut.c \
	compress/kernels/select.h \
	compress/kernels/select_scalar.c \
	compress/kernels/sum_scalar.c \
	compress/kernels/topk_emit.h \
	compress/kernels/topk_scalar.c \
	compress/kernels/value_scalar.c \
	compress/kernels/values.h \
	compress/kernels/values_scalar.c \
	compress/kernels/window_scalar.c \
	compress/lowrank/lowrank.c \
	compress/lowrank/lowrank.h \
	compress/lowrank/orthogonalise.c \
	compress/quality.c \
	compress/quality.h \
	compress/select/approximate.c \
	compress/select/block.c \
	compress/select/collect.c \
	compress/select/exact.c \
	compress/select/feedback.c \
	compress/select/feedback.h \
	compress/select/keep.c \
	compress/select/locate.c \
	compress/select/random.c \
	compress/select/random.h \
	compress/select/refine.c \
	compress/select/sample.c \
	compress/select/select.c \
	compress/select/select.h \
	compress/select/selectors.h \
	compress/select/threshold.c \
	compress/select/threshold.h \
	compress/select/topk.c \
	compress/select/topk.h \
	compress/select/topk_internal.h \
	compress/value.c \
	compress/value.h \
	compress/values/bounded.c \
	compress/values/elias.c \
	compress/values/elias.h \
	compress/values/group.c \
	compress/values/group.h \
	compress/values/integer.c \
	compress/values/levels.c \
	compress/values/levels.h \
	compress/values/natural.c \
	compress/values/plain.c \
	compress/values/qsgd.c \
	compress/values/sign.c \
	compress/values/terngrad.c \
	compress/values/values.c \
	compress/values/values.h \
	compress/window.c \
	compress/zstd.c \
	compress/zstd.h
compress_libspr_compress_la_LIBADD =

# Kernels with flags of their own; the dispatch table decides at run time whether they are called.
if HAVE_X86
noinst_LTLIBRARIES += compress/libspr-kernels-avx2.la
compress_libspr_kernels_avx2_la_SOURCES = \
	compress/kernels/ahead.h \
	compress/kernels/indices_avx2.c \
	compress/kernels/lanes_avx2.h \
	compress/kernels/lowrank_avx2.c \
	compress/kernels/select_avx2.c \
	compress/kernels/sum_avx2.c \
	compress/kernels/topk_avx2.c \
	compress/kernels/value_avx2.c \
	compress/kernels/values_avx2.c \
	compress/kernels/values_avx2.h \
	compress/kernels/values_bits_avx2.c \
	compress/kernels/values_feedback_avx2.c \
	compress/kernels/window_avx2.c
compress_libspr_kernels_avx2_la_CFLAGS = $(AM_CFLAGS) $(SPR_AVX2_CFLAGS)
compress_libspr_compress_la_LIBADD += compress/libspr-kernels-avx2.la
endif

if HAVE_AVX512
noinst_LTLIBRARIES += compress/libspr-kernels-avx512.la
compress_libspr_kernels_avx512_la_SOURCES = \
	compress/kernels/lanes_avx512.h \
	compress/kernels/topk_avx512.c \
	compress/kernels/values_avx512.c \
	compress/kernels/window_avx512.c
compress_libspr_kernels_avx512_la_CFLAGS = $(AM_CFLAGS) $(SPR_AVX512_CFLAGS)
compress_libspr_compress_la_LIBADD += compress/libspr-kernels-avx512.la
endif

if HAVE_ARM64
compress_libspr_compress_la_SOURCES += \
	compress/kernels/indices_neon.c \
	compress/kernels/lanes_neon.h \
	compress/kernels/lowrank_neon.c \
	compress/kernels/lut_neon.c \
	compress/kernels/select_neon.c \
	compress/kernels/topk_neon.c \
	compress/kernels/value_neon.c \
	compress/kernels/values_bits_neon.c \
	compress/kernels/values_neon.c \
	compress/kernels/values_neon.h \
	compress/kernels/window_neon.c
endif
