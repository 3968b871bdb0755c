# SPDX-License-Identifier: BSD-2-Clause
# Public headers, installed to $(includedir)/sparring.

sparringincludedir = $(includedir)/sparring
sparringinclude_HEADERS =
nodist_sparringinclude_HEADERS = include/sparring/version.h
