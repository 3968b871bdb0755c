/* SPDX-License-Identifier: BSD-2-Clause */
#include <sparring/version.h>

const char *spr_version(void) { return SPR_VERSION_STRING; }
