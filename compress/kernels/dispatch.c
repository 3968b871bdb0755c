/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/kernels/kernels.h"

#include "base/cpu.h"

const struct spr_kernels spr_kernels_scalar = {
    .name = "scalar",
    .fp16_encode = spr_scalar_fp16_encode,
    .fp16_decode = spr_scalar_fp16_decode,
    .bf16_encode = spr_scalar_bf16_encode,
    .bf16_decode = spr_scalar_bf16_decode,
    .sum = spr_scalar_sum,
    .select = spr_scalar_select,
    .feedback = spr_scalar_feedback,
    .count = spr_scalar_count,
    .split = spr_scalar_split,
    .filter = spr_scalar_filter,
    .add_at = spr_scalar_add_at,
    .add_bits = spr_scalar_add_bits,
    .expand = spr_scalar_expand,
    .clear = spr_scalar_clear,
    .positions = spr_scalar_positions,
    .harvest = spr_scalar_harvest,
    .popcount = spr_scalar_popcount,
    .ascending16 = spr_scalar_ascending16,
    .ascending32 = spr_scalar_ascending32,
};

#ifdef HAVE_X86
const struct spr_kernels spr_kernels_avx2 = {
    .name = "avx2",
    .fp16_encode = spr_avx2_fp16_encode,
    .fp16_decode = spr_avx2_fp16_decode,
    .bf16_encode = spr_avx2_bf16_encode,
    .bf16_decode = spr_avx2_bf16_decode,
    .sum = spr_avx2_sum,
    .select = spr_avx2_select,
    .feedback = spr_avx2_feedback,
    .count = spr_avx2_count,
    .split = spr_avx2_split,
    .filter = spr_avx2_filter,
    .add_at = spr_scalar_add_at, /* AVX2 has no scatter */
    .add_bits = spr_avx2_add_bits,
    .expand = spr_avx2_expand,
    .clear = spr_avx2_clear,
    .positions = spr_avx2_positions,
    .harvest = spr_avx2_harvest,
    .popcount = spr_avx2_popcount,
    .ascending16 = spr_avx2_ascending16,
    .ascending32 = spr_avx2_ascending32,
};
#endif

#ifdef HAVE_AVX512
/* Only what is faster: on Zen 4, which works on halves of 256 bits, what counts, expands or only
 * adds is not. add_bits and harvest are on Emerald Rapids, by a third, and were not measured on
 * Zen 4. */
const struct spr_kernels spr_kernels_avx512 = {
    .name = "avx512",
    .fp16_encode = spr_avx2_fp16_encode,
    .fp16_decode = spr_avx2_fp16_decode,
    .bf16_encode = spr_avx2_bf16_encode,
    .bf16_decode = spr_avx2_bf16_decode,
    .sum = spr_avx2_sum,
    .select = spr_avx512_select,
    .feedback = spr_avx512_feedback,
    .count = spr_avx2_count,
    .split = spr_avx2_split,
    .filter = spr_avx512_filter,
    .add_at = spr_scalar_add_at, /* two entries may be in the same cache line */
    .add_bits = spr_avx512_add_bits,
    .expand = spr_avx2_expand,
    .clear = spr_avx2_clear,
    .positions = spr_avx2_positions,
    .harvest = spr_avx512_harvest,
    .popcount = spr_avx2_popcount,
    .ascending16 = spr_avx2_ascending16,
    .ascending32 = spr_avx2_ascending32,
};
#endif

#ifdef HAVE_ARM64
/* Scalar kernels that are a plain loop are here, too: the compiler makes vectors of them. */
const struct spr_kernels spr_kernels_neon = {
    .name = "neon",
    .fp16_encode = spr_neon_fp16_encode,
    .fp16_decode = spr_neon_fp16_decode,
    .bf16_encode = spr_scalar_bf16_encode,
    .bf16_decode = spr_scalar_bf16_decode,
    .sum = spr_scalar_sum,
    .select = spr_neon_select,
    .feedback = spr_neon_feedback,
    .count = spr_neon_count,
    .split = spr_neon_split,
    .filter = spr_neon_filter,
    .add_at = spr_scalar_add_at, /* NEON has no scatter */
    .add_bits = spr_neon_add_bits,
    .expand = spr_neon_expand,
    .clear = spr_scalar_clear,
    .positions = spr_neon_positions,
    .harvest = spr_neon_harvest,
    .popcount = spr_neon_popcount,
    .ascending16 = spr_neon_ascending16,
    .ascending32 = spr_neon_ascending32,
};
#endif

const struct spr_kernels *spr_kernels(void)
{
#ifdef HAVE_AVX512
    if (spr_cpu_features() & SPR_CPU_AVX512)
        return &spr_kernels_avx512;
#endif
#ifdef HAVE_X86
    if (spr_cpu_features() & SPR_CPU_AVX2)
        return &spr_kernels_avx2;
#endif
#ifdef HAVE_ARM64
    if (spr_cpu_features() & SPR_CPU_NEON)
        return &spr_kernels_neon;
#endif
    return &spr_kernels_scalar;
}
