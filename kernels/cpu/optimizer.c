/* FEED, NORM, CLIP, UPDATE and SETTLE on the host: grains run on the pool, partials are folded in
 * index order. Next: kernels/optimizer.h for the jobs, isa/adamw.c for the update. */
#include "kernels/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/table.h"

/* Latches the values of an update, with bias corrections of Adam's moments after `count` updates: 1
 * - beta^count. */
static void latch_update(coh_cells *cells, float beta1, float beta2, uint64_t count, float scale)
{
    cells->update_rate = cells->learning_rate;
    cells->update_scale = scale;
    cells->update_bias1 = (float)(1.0 - pow((double)beta1, (double)count));
    cells->update_bias2 = (float)(1.0 - pow((double)beta2, (double)count));
}

void coh_cpu_feed(void *queue, const coh_feed *feed)
{
    coh_cells *cells = feed->cells;
    (void)queue;
    cells->random = feed->values->random;
    cells->learning_rate = feed->values->learning_rate;
    cells->clip = feed->values->clip;
    cells->loss_factor = feed->values->loss_factor;
    if (feed->latches)
        latch_update(cells, feed->beta1, feed->beta2, cells->applied_count + 1, 1.0f);
    for (int32_t i = 0; i < feed->input_count; i++)
        memcpy(feed->inputs[i].to, feed->inputs[i].from, feed->inputs[i].bytes);
}

/* ---- grains ---- */

typedef struct grain {
    int64_t element, count, partial;
    float rate_factor, decay;
} grain;

static int64_t grain_count(const coh_chunk_grains *grains)
{
    if (grains->run_count == 0)
        return 0;
    const coh_grain_run *last = &grains->runs[grains->run_count - 1];
    return last->first + (last->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
}

static grain grain_at(const coh_chunk_grains *grains, int64_t index)
{
    int32_t r = grains->run_count - 1;
    while (index < grains->runs[r].first)
        r--;
    const coh_grain_run *run = &grains->runs[r];
    const int64_t before = (index - run->first) * COH_GRAIN_ELEMENTS, left = run->count - before;
    return (grain){ .element = run->element + before,
                    .count = left < COH_GRAIN_ELEMENTS ? left : COH_GRAIN_ELEMENTS,
                    .partial = run->partial_begin + index - run->first,
                    .rate_factor = run->rate_factor,
                    .decay = run->decay };
}

static void sum_grain(void *argument, int64_t index)
{
    const coh_square_sums *sums = argument;
    const grain one = grain_at(&sums->grains, index);
    sums->partials[one.partial] = coh_kernel_square_sum(
        sums->dtype, coh_element_const(sums->dtype, sums->grad, one.element), one.count);
}

void coh_cpu_square_sums(void *queue, const coh_square_sums *sums)
{
    coh_parallel(queue, grain_count(&sums->grains), sum_grain, (void *)sums);
}

/* ---- CLIP ---- */

static double fold_partials(const coh_clip *clip)
{
    double sums[COH_CLIP_SUMS] = { 0 };
    for (int64_t i = 0; clip->partials != NULL && i < clip->partial_count; i++)
        sums[i % COH_CLIP_SUMS] += clip->partials[i];
    for (int half = COH_CLIP_SUMS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] += sums[i + half];
    return sums[0];
}

void coh_cpu_clip(void *queue, const coh_clip *clip)
{
    coh_cells *cells = clip->cells;
    (void)queue;
    const double loss = coh_losses_mean(clip->losses, clip->loss_stride, clip->microbatch_count) *
                        (double)cells->loss_factor;
    const double norm = sqrt(fold_partials(clip));
    float scale = 1.0f;
    if (cells->clip > 0 && norm > (double)cells->clip)
        scale = (float)((double)cells->clip / norm);
    cells->finite = isfinite(loss) && isfinite(norm);
    if (cells->finite)
        cells->applied_count++;
    if (clip->defers) {
        cells->pending = cells->finite;
        latch_update(cells, clip->beta1, clip->beta2, cells->applied_count, scale);
    }
    *clip->record = (coh_clip_record){ .step = cells->random.step,
                                       .applied_count = cells->applied_count,
                                       .loss = loss,
                                       .grad_norm = norm,
                                       .finite = cells->finite };
}

/* ---- UPDATE ---- */

static coh_adamw adamw_of(const coh_update *update, const grain *one)
{
    return (coh_adamw){ .rate = update->cells->update_rate * one->rate_factor,
                        .scale = update->cells->update_scale,
                        .beta1 = update->beta1,
                        .beta2 = update->beta2,
                        .bias1 = update->cells->update_bias1,
                        .bias2 = update->cells->update_bias2,
                        .epsilon = update->epsilon,
                        .decay = one->decay };
}

/* Sums the squares of one grain and updates it right after, so that it is read from memory only
 * once. */
static void update_grain(void *argument, int64_t index)
{
    const coh_update *update = argument;
    const grain one = grain_at(&update->grains, index);
    const coh_adamw adamw = adamw_of(update, &one);
    void *work = coh_element(update->dtype, update->work, one.element);
    const coh_dtype grad_dtype = coh_grad_dtype(update->dtype, update->f32_grads);
    const void *grad = coh_element_const(grad_dtype, update->grad, one.element);
    float *m = update->m + one.element, *v = update->v + one.element;
    if (update->partials != NULL)
        update->partials[one.partial] = coh_kernel_square_sum(grad_dtype, grad, one.count);
    if (update->dtype == COH_DTYPE_BF16 && update->f32_grads)
        coh_kernel_adamw_wide(&adamw, work, update->low + one.element, grad, m, v, one.count);
    else if (update->dtype == COH_DTYPE_BF16)
        coh_kernel_adamw_split(&adamw, work, update->low + one.element, grad, m, v, one.count);
    else
        coh_kernel_adamw(&adamw, work, grad, m, v, one.count);
}

void coh_cpu_update(void *queue, const coh_update *update)
{
    coh_parallel(queue, grain_count(&update->grains), update_grain, (void *)update);
}

void coh_cpu_settle(void *queue, coh_cells *cells)
{
    (void)queue;
    cells->pending = 0;
}
