# SPDX-License-Identifier: BSD-2-Clause
# Examples use the public headers and libsparring.la, nothing else.

examples_libs = libsparring.la -lm

if HAVE_OPENBLAS
endif
