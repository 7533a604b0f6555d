/* Philox in plain C, the streams of calls, and the parameters of dropout. The wide loops in
 * isa/philox.h give the same words. Next: random.h. */
#include "kernels/random.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/cpu/dispatch.h"

void coh_philox(uint32_t block[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1], x[4];
    memcpy(x, counter, sizeof(x));
    for (int round = 0; round < COH_PHILOX_ROUNDS; round++) {
        const uint64_t a = (uint64_t)COH_PHILOX_M0 * x[0], b = (uint64_t)COH_PHILOX_M1 * x[2];
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ k0;
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ k1;
        x[3] = (uint32_t)a;
        k0 += COH_PHILOX_W0;
        k1 += COH_PHILOX_W1;
    }
    memcpy(block, x, sizeof(x));
}

coh_random coh_random_of(const coh_random_cell *cell, int32_t operator_index, int32_t microbatch)
{
    const uint32_t key[2] = { (uint32_t)cell->seed, (uint32_t)(cell->seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)cell->step, (uint32_t)(cell->step >> 32),
                                  (uint32_t)operator_index, (uint32_t)microbatch };
    uint32_t block[4];
    coh_philox(block, counter, key);
    return (coh_random){ .key = { block[0], block[1] }, .high = { block[2], block[3] } };
}

/* Without a random_cell. */
static void write_undrawn(const coh_call *call, int64_t count, uint32_t *words)
{
    if (count > 0 && call->operator_index >= COH_RANDOM_ZEROS)
        memset(words, call->operator_index == COH_RANDOM_ONES ? 0xff : 0,
               (size_t)count * sizeof(*words));
}

void coh_random_words(const coh_call *call, uint64_t first, int64_t count, uint32_t *words)
{
    if (call == NULL || words == NULL)
        return;
    if (call->random_cell == NULL) {
        write_undrawn(call, count, words);
        return;
    }
    const coh_random random =
        coh_random_of(call->random_cell, call->operator_index, call->microbatch);
    uint32_t group[COH_RANDOM_GROUP];
    while (count > 0) {
        const int64_t skipped = (int64_t)(first % COH_RANDOM_GROUP);
        const int64_t rest = COH_RANDOM_GROUP - skipped, taken = count < rest ? count : rest;
        coh_rows_get()->random(group, &random, first / COH_RANDOM_GROUP, 1);
        memcpy(words, group + skipped, (size_t)taken * sizeof(*words));
        words += taken;
        first += (uint64_t)taken;
        count -= taken;
    }
}

coh_drop coh_drop_of(const coh_call *call, double probability)
{
    if (call->random_cell == NULL || probability <= 0)
        return (coh_drop){ .scale = 1.0f };
    return (coh_drop){ .cell = call->random_cell,
                       .operator_index = call->operator_index,
                       .microbatch = call->microbatch,
                       .threshold = (uint32_t)(probability * 0x1p32),
                       .scale = (float)(1.0 / (1.0 - probability)) };
}

coh_status coh_check_probability(double probability)
{
    if (probability >= 0 && probability < 1)
        return COH_OK;
    return coh_kind_fail(COH_ERR_SHAPE, "probability is %g: from 0 to below 1 is possible",
                         probability);
}

coh_status coh_check_attention_dropout(int64_t heads, int64_t T, double probability,
                                       coh_op_facts *facts)
{
    coh_status status = coh_check_probability(probability);
    if (status != COH_OK)
        return status;
    const int64_t rows_of_keys = (T + 3) / 4;
    if ((double)heads * (double)rows_of_keys >= 0x1p32)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "%" PRId64 " heads of all sequences over %" PRId64
                             " tokens: dropout numbers less than 2^32 rows of four keys, so lower "
                             "the micro-batch",
                             heads, T);
    const double drawn = COH_RANDOM_FLOPS * (double)heads * (double)T * (double)T / 2.0;
    facts->flops[COH_PHASE_FORWARD] += drawn;
    facts->flops[COH_PHASE_BACKWARD] += drawn;
    return COH_OK;
}
