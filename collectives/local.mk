# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += collectives/libspr-collectives.la
collectives_libspr_collectives_la_SOURCES =
