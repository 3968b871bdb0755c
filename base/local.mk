# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += base/libspr-base.la
base_libspr_base_la_SOURCES =
