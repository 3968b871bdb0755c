/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Private to the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_PMIX_H
#define SPR_TRANSPORT_BOOTSTRAP_PMIX_H

#include <stdbool.h>

/* libpmix can be loaded. It stays loaded. */
bool spr_pmix_available(void);

#endif
