/* FEED, NORM, CLIP, UPDATE and SETTLE on the host: grains run on the pool, partials are folded in
 * index order. Next: kernels/optimizer.h for the jobs, kernels/optimizers.c for the updates. */
#include "kernels/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/float_mode.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/quantise.h"
#include "kernels/table.h"

static float clip_factor(float clip, double norm)
{
    return clip > 0 && norm > (double)clip ? (float)((double)clip / norm) : 1.0f;
}

/* Latches the values of an update, which is number `count` from 1 on. */
static void latch_update(coh_cells *cells, const coh_update_scalars *scalars, uint64_t count,
                         float scale)
{
    cells->update_rate = cells->learning_rate;
    cells->update_scale = scale;
    cells->update_random = cells->random;
    for (int32_t i = 0; i < scalars->count; i++)
        cells->update_scalars[i] = (float)(1.0 - pow((double)scalars->base[i], (double)count));
}

void coh_cpu_feed(void *queue, const coh_feed *feed)
{
    coh_cells *cells = feed->cells;
    (void)queue;
    cells->random = feed->values->random;
    cells->learning_rate = feed->values->learning_rate;
    cells->clip = feed->values->clip;
    cells->loss_factor = feed->values->loss_factor;
    const double norm = feed->values->norm_is_known ? feed->values->norm : cells->previous_norm;
    if (feed->latches)
        latch_update(cells, &feed->scalars, cells->applied_count + 1,
                     clip_factor(cells->clip, norm));
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

static double losses_mean(const coh_clip *clip)
{
    const int32_t *factors = clip->fold.factors;
    int64_t own[COH_FOLD_FACTORS], each = clip->microbatch_count; /* micro-batches of a replica */
    double all = 0;
    for (int f = 0; f < COH_FOLD_FACTORS; f++)
        each /= own[f] = factors[f] > 1 ? factors[f] : 1;
    const float *loss = clip->losses;
    for (int64_t node = 0; loss != NULL && node < own[2]; node++) {
        double of_node = 0;
        for (int64_t pair = 0; pair < own[1]; pair++) {
            double of_pair = 0;
            for (int64_t replica = 0; replica < own[0]; replica++) {
                double sum = 0;
                for (int64_t i = 0; i < each; i++, loss += clip->loss_stride)
                    sum += *loss;
                of_pair += sum;
            }
            of_node += of_pair;
        }
        all += of_node;
    }
    return all / (double)clip->microbatch_count;
}

void coh_cpu_clip(void *queue, const coh_clip *clip)
{
    coh_cells *cells = clip->cells;
    (void)queue;
    const double loss = losses_mean(clip) * (double)cells->loss_factor;
    const double norm = sqrt(fold_partials(clip));
    cells->finite = isfinite(loss) && isfinite(norm);
    if (cells->finite)
        cells->applied_count++;
    if (isfinite(norm))
        cells->previous_norm = norm;
    if (clip->defers) {
        cells->pending = cells->finite;
        latch_update(cells, &clip->scalars, cells->applied_count, clip_factor(cells->clip, norm));
    }
    *clip->record = (coh_clip_record){ .step = cells->random.step,
                                       .applied_count = cells->applied_count,
                                       .loss = loss,
                                       .grad_norm = norm,
                                       .finite = cells->finite };
}

/* ---- UPDATE ---- */

/* Elements that are converted to f32 at a time: whole blocks of every stream, and little enough to
 * stay in the first cache. */
enum { CONVERTED_ELEMENTS = 1024 };

/* Splits the masters of a bf16 parameter; without `low` rounds them stochastically instead. */
static void store_masters(const coh_update_call *call, uint16_t *high, uint16_t *low)
{
    if (low != NULL)
        coh_kernel_split(high, low, call->work, call->count);
    else
        coh_cpu_stochastic_round(
            NULL, &(coh_stochastic_round){ .count = call->count,
                                           .first = call->first,
                                           .rounding = { call->random, 0, COH_ROUNDING_OF_WORK },
                                           .x = call->work,
                                           .y = high });
}

static void run_update(const coh_update *update, const coh_update_call *call)
{
    if (update->run != NULL)
        update->run(update->run_context, update->optimizer, call);
    else
        update->optimizer->update(call);
}

/* Runs an update that takes only f32 on a bf16 parameter, through copies of its elements. */
static void update_converted(const coh_update *update, coh_update_call call)
{
    const coh_optimizer *optimizer = update->optimizer;
    float master[CONVERTED_ELEMENTS], grad[CONVERTED_ELEMENTS];
    uint16_t *const high = call.work, *const low = call.low;
    const char *const from = call.grad;
    const int64_t end = call.count;
    const coh_dtype grad_dtype = call.grad_dtype;
    call.work = master;
    call.low = NULL;
    call.work_dtype = call.grad_dtype = COH_DTYPE_F32;
    for (int64_t at = 0; at < end; at += CONVERTED_ELEMENTS) {
        call.count = end - at < CONVERTED_ELEMENTS ? end - at : CONVERTED_ELEMENTS;
        coh_kernel_join(master, high + at, low != NULL ? low + at : NULL, call.count);
        call.grad = coh_element_const(grad_dtype, from, at);
        if (grad_dtype == COH_DTYPE_BF16) {
            coh_kernel_join(grad, call.grad, NULL, call.count);
            call.grad = grad;
        }
        run_update(update, &call);
        store_masters(&call, high + at, low != NULL ? low + at : NULL);
        call.first += CONVERTED_ELEMENTS;
        for (int32_t i = 0; i < optimizer->stream_count; i++)
            call.states[i] = (char *)call.states[i] +
                             coh_state_bytes(&optimizer->streams[i], CONVERTED_ELEMENTS);
    }
}

/* Sums the squares of one grain and updates it right after, so that it is read from memory only
 * once. */
static void update_grain(void *argument, int64_t index)
{
    const coh_update *update = argument;
    const coh_optimizer *optimizer = update->optimizer;
    const grain one = grain_at(&update->grains, index);
    const coh_dtype grad_dtype = coh_grad_dtype(update->dtype, update->f32_grads);
    coh_update_call call = {
        .count = one.count,
        .first = (uint64_t)one.partial * COH_GRAIN_ELEMENTS,
        .rate = update->cells->update_rate * one.rate_factor,
        .scale = update->cells->update_scale,
        .decay = one.decay,
        .hyperparameters = update->hyperparameters,
        .scalars = &update->cells->update_scalars[update->scalar_begin],
        .random = &update->cells->update_random,
        .work_dtype = update->dtype,
        .grad_dtype = grad_dtype,
        .work = coh_element(update->dtype, update->work, one.element),
        .low = update->low != NULL ? update->low + one.element : NULL,
        .grad = coh_element_const(grad_dtype, update->grad, one.element),
    };
    for (int32_t i = 0; i < optimizer->stream_count; i++)
        call.states[i] = (char *)update->states[i] +
                         coh_state_bytes(&optimizer->streams[i], (uint64_t)one.element);
    if (update->partials != NULL)
        update->partials[one.partial] = coh_kernel_square_sum(grad_dtype, call.grad, one.count);
    if (update->dtype == COH_DTYPE_BF16 && !optimizer->takes_bf16)
        update_converted(update, call);
    else
        run_update(update, &call);
    coh_float_mode_restore(); /* the next grain's may run on another thread */
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
