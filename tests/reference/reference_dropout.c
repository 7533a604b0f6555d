#include <math.h>

#include "cohobate/kinds.h"
#include "tests/reference/reference.h"

/* Philox 4x32-10 as in Salmon et al. 2011 (section 3.3): a round maps (L, R) to (high(R M) xor k
 * xor L, low(R M)) in both halves and exchanges them. */
void coh_reference_philox(uint32_t block[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint64_t left[2] = { counter[1], counter[3] }, right[2] = { counter[0], counter[2] };
    const uint64_t factor[2] = { 0xd2511f53u, 0xcd9e8d57u };
    const uint64_t weyl[2] = { 0x9e3779b9u, 0xbb67ae85u };
    for (uint64_t round = 0; round < 10; round++) {
        uint64_t new_left[2], new_right[2];
        for (int half = 0; half < 2; half++) {
            const int other = 1 - half; /* the product of half `other` goes to `half` */
            const uint64_t product = right[other] * factor[other];
            const uint64_t round_key = (key[half] + round * weyl[half]) & 0xffffffffu;
            new_right[half] = (product >> 32) ^ left[half] ^ round_key;
            new_left[half] = product & 0xffffffffu;
        }
        for (int half = 0; half < 2; half++) {
            left[half] = new_left[half];
            right[half] = new_right[half];
        }
    }
    block[0] = (uint32_t)right[0];
    block[1] = (uint32_t)left[0];
    block[2] = (uint32_t)right[1];
    block[3] = (uint32_t)left[1];
}

void coh_reference_stream(const coh_call *call, uint32_t out_stream[4])
{
    const uint64_t seed = call->random_cell->seed, step = call->random_cell->step;
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)step, (uint32_t)(step >> 32),
                                  (uint32_t)call->operator_index, (uint32_t)call->microbatch };
    coh_reference_philox(out_stream, counter, key);
}

static uint32_t word_of(const uint32_t stream[4], uint64_t counter, int64_t word)
{
    const uint32_t whole[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), stream[2],
                                stream[3] };
    uint32_t block[4];
    coh_reference_philox(block, whole, stream);
    return block[word];
}

uint32_t coh_reference_word(const uint32_t stream[4], uint64_t number)
{
    return word_of(stream, number / 64 * 16 + number % 16, (int64_t)(number % 64 / 16));
}

uint32_t coh_reference_half(const uint32_t stream[4], uint64_t number)
{
    const uint32_t word = coh_reference_word(stream, number / 128 * 64 + number % 64);
    return number % 128 < 64 ? word % 65536 : word / 65536;
}

uint32_t coh_reference_pair_word(const uint32_t stream[4], int64_t head, int64_t T, int64_t i,
                                 int64_t j)
{
    const uint64_t row = (uint64_t)(head * ((T + 3) / 4) + j / 4);
    return word_of(stream, row << 32 | (uint64_t)i, j % 4);
}

double coh_reference_kept(uint32_t word, double probability)
{
    return (double)word < floor(probability * 0x1p32) ? 0.0 : 1.0 / (1.0 - probability);
}

void coh_reference_dropout(coh_reference *r, int backward)
{
    const coh_dropout_attributes *a = r->of->attributes;
    const double *from = backward ? r->output_grad : r->input[0];
    const double *residual = r->input[1];
    coh_array *to = backward ? &r->input_grad[0] : &r->output;
    uint32_t stream[4];
    coh_reference_stream(&r->of->call, stream);
    for (int64_t i = 0; i < to->count; i++) {
        const double kept =
            coh_reference_kept(coh_reference_word(stream, (uint64_t)i), a->probability) * from[i];
        const double base = !backward && residual != NULL ? residual[i] : 0.0;
        to->value[i] = base + kept;
        /* scale and product are rounded, then the sum */
        to->bound[i] = COH_EPS * (2.0 * fabs(kept) + fabs(base + kept)) + 1e-36;
    }
    for (int64_t i = 0; backward && i < r->input_grad[1].count; i++) {
        r->input_grad[1].value[i] = from[i];
        r->input_grad[1].bound[i] = 0.0;
    }
}
