# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += compress/libspr-compress.la
compress_libspr_compress_la_SOURCES =
compress_libspr_compress_la_LIBADD =

# Kernels with flags of their own; the dispatch table decides at run time whether they are called.
if HAVE_X86
noinst_LTLIBRARIES += compress/libspr-kernels-avx2.la
compress_libspr_kernels_avx2_la_SOURCES =
compress_libspr_kernels_avx2_la_CFLAGS = $(AM_CFLAGS) $(SPR_AVX2_CFLAGS)
compress_libspr_compress_la_LIBADD += compress/libspr-kernels-avx2.la
endif
