/* RoPE on the host: each piece computes the angles of a few tokens and rotates their rows in all
 * sequences. Next: kernels/kernels.h (coh_rope), isa/turns.c, isa/rope.c. */
#include "kernels/table.h"

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

/* Memory-bound: x is read and y written once. A piece is a few tokens of all sequences. Their
 * cosines and sines are computed once, on the stack: there is no place to keep them between calls,
 * and they cost less than the rows. */
#define ROPE_TOKENS 8
#define HALF_MOST   (COH_HEAD_WIDTH_MOST / 2)

static void turn_token(const coh_rope *rope, int64_t t)
{
    float cosine[HALF_MOST], sine[HALF_MOST];
    const int64_t half = rope->D / 2;
    const int64_t begin = rope->position != NULL ? *rope->position : 0;
    coh_rows_get()->turns(cosine, sine, rope->frequencies, (float)(begin + t), half);
    for (int64_t i = 0; i < half; i++) {
        cosine[i] *= rope->magnitude;
        sine[i] *= rope->turns_back ? -rope->magnitude : rope->magnitude;
    }
    for (int64_t b = 0; b < rope->B; b++) {
        const int64_t row_index = b * rope->T + t;
        const coh_rope_row row = {
            .x = coh_element_const(rope->dtype, rope->x, row_index * rope->x_stride),
            .y = coh_element(rope->dtype, rope->y, row_index * rope->y_stride),
            .cosine = cosine,
            .sine = sine,
            .heads = rope->H,
            .half = half,
            .adds = rope->adds
        };
        coh_rows_for(rope->dtype)->rope(&row);
    }
}

static void turn_tokens(void *argument, int64_t index)
{
    const coh_rope *rope = argument;
    const int64_t end = smaller((index + 1) * ROPE_TOKENS, rope->T);
    for (int64_t t = index * ROPE_TOKENS; t < end; t++)
        turn_token(rope, t);
}

void coh_cpu_rope(void *queue, const coh_rope *rope)
{
    coh_parallel(queue, (rope->T + ROPE_TOKENS - 1) / ROPE_TOKENS, turn_tokens, (void *)rope);
}
