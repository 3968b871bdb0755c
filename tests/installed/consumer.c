/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A program as a user writes it: compiled against the install tree, found by pkg-config.
 */
#include <sparring/sparring.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    if (strcmp(spr_version(), SPR_VERSION_STRING) != 0) {
        fprintf(stderr, "headers are %s, the library is %s\n", SPR_VERSION_STRING, spr_version());
        return 1;
    }
    printf("%s: %s\n", spr_version(), spr_status_string(SPR_OK));
    return spr_dtype_size(SPR_FP32) == 4 ? 0 : 1;
}
