/* SPDX-License-Identifier: BSD-2-Clause
 *
 * CRC-32C (Castagnoli, reflected 0x82f63b78), as in iSCSI: crc32c("123456789") = 0xe3069283.
 */
#ifndef SPR_BASE_CRC32C_H
#define SPR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continue `crc` (0 to begin) over bytes. Hardware, interleaved, where the CPU has it. */
uint32_t spr_crc32c(uint32_t crc, const void *data, size_t bytes);
/* The same for data that is rather in memory than in the cache: faster there, slower elsewhere. */
uint32_t spr_crc32c_cold(uint32_t crc, const void *data, size_t bytes);
/* The same without special instructions. */
uint32_t spr_crc32c_scalar(uint32_t crc, const void *data, size_t bytes);

#endif
