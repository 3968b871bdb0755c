# SPDX-License-Identifier: BSD-2-Clause
# A page: one line here.

dist_man_MANS += \
	man/sparring-run.1
