#include "tests/cuda/host_twins.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/launch.h"
#include "kernels/optimizer.h"
#include "kernels/table.h"
#include "memory/cuda_queue.h"
#include "tests/cuda/stub_driver.h"

static void enqueue(void *queue, coh_stub_work work, const void *arguments, size_t bytes)
{
    coh_cuda_queue *q = queue;
    if (!q->is_rehearsing)
        coh_stub_enqueue(q->stream, work, arguments, bytes);
}

/* Returns scratch number `which` in host memory, valid until the next command asks for it; the
 * plan's scratch has the size that CUDA's kernels want. Commands execute one at a time. */
static float *scratch(int which, int64_t count)
{
    static struct {
        float *memory;
        int64_t count;
    } kept[2];
    if (count > kept[which].count) {
        free(kept[which].memory);
        kept[which].memory = malloc((size_t)count * sizeof(float));
        kept[which].count = count;
    }
    if (kept[which].memory == NULL)
        abort();
    return kept[which].memory;
}

/* ---- calls with one struct ---- */

#define JOB(name, type)                                                                            \
    static void run_##name(const void *arguments)                                                  \
    {                                                                                              \
        coh_cpu_##name(NULL, (const type *)arguments);                                             \
    }                                                                                              \
    TWIN_OF(name, type)
#define TWIN_OF(name, type)                                                                        \
    static void twin_##name(void *queue, const type *job)                                          \
    {                                                                                              \
        enqueue(queue, run_##name, job, sizeof(*job));                                             \
    }

JOB(matmul, coh_matmul)
JOB(column_sum, coh_column_sum)
JOB(nf4, coh_nf4_weight)
JOB(position, coh_position)
JOB(position_backward, coh_position_gradient)
JOB(norm, coh_norm)
JOB(scale, coh_scale)
JOB(soft_cap, coh_soft_cap)
JOB(dropout, coh_dropout)
JOB(swiglu, coh_swiglu)
JOB(swiglu_backward, coh_swiglu)
JOB(activation_gradient, coh_activation_gradient)
JOB(attention, coh_attention)
JOB(take_blocks, coh_blocks)
JOB(put_blocks, coh_blocks)
JOB(mean, coh_mean)
JOB(mean_backward, coh_mean)
JOB(softmax, coh_softmax)
JOB(softmax_backward, coh_softmax)
JOB(cross_entropy_backward, coh_cross_entropy)
JOB(squares, coh_squares)
JOB(squares_backward, coh_squares)
JOB(attention_decode, coh_attention_decode)
JOB(clip, coh_clip)
JOB(wire_pack, coh_wire_call)
JOB(wire_unpack, coh_wire_call)

static void run_norm_backward(const void *arguments)
{
    coh_norm norm = *(const coh_norm *)arguments;
    norm.partials = scratch(0, coh_kernel_norm_partials(norm.N, norm.C));
    coh_cpu_norm_backward(NULL, &norm);
}
TWIN_OF(norm_backward, coh_norm)

static void run_cross_entropy(const void *arguments)
{
    coh_cross_entropy e = *(const coh_cross_entropy *)arguments;
    e.partial = (double *)(void *)scratch(0, 2 * coh_kernel_row_partials(e.rows));
    coh_cpu_cross_entropy(NULL, &e);
}
TWIN_OF(cross_entropy, coh_cross_entropy)

static void run_attention_backward(const void *arguments)
{
    coh_attention a = *(const coh_attention *)arguments;
    a.scratch = scratch(0, coh_kernel_attention_scratch(a.B, a.T, a.H, a.G, a.D));
    coh_cpu_attention_backward(NULL, &a);
}
TWIN_OF(attention_backward, coh_attention)

/* Adds the host's scratch to a call; the sums are NULL if it needs none. */
static coh_classifier with_scratch(const coh_classifier *given)
{
    coh_classifier c = *given;
    const int64_t sums = coh_kernel_classifier_dweight_sums(c.dtype, c.N, c.C, c.V);
    c.logits = scratch(0, coh_kernel_classifier_logits(c.dtype, c.N, c.V));
    c.dweight_sum = sums > 0 ? scratch(1, sums) : NULL;
    return c;
}

static void run_classifier(const void *arguments)
{
    const coh_classifier c = with_scratch(arguments);
    coh_cpu_classifier(NULL, &c);
}
TWIN_OF(classifier, coh_classifier)

static void run_classifier_backward(const void *arguments)
{
    const coh_classifier c = with_scratch(arguments);
    coh_cpu_classifier_backward(NULL, &c);
}
TWIN_OF(classifier_backward, coh_classifier)

/* ---- calls with several arguments ---- */

typedef struct plain_call {
    coh_activation activation;
    coh_dtype dtype;
    void *to;
    const void *from, *of;
    int64_t rows;
    int adds;
} plain_call;

#define PLAIN(name, parameters, made, call)                                                        \
    static void run_##name(const void *arguments)                                                  \
    {                                                                                              \
        const plain_call *c = arguments;                                                           \
        call;                                                                                      \
    }                                                                                              \
    static void twin_##name parameters                                                             \
    {                                                                                              \
        const plain_call c = made;                                                                 \
        enqueue(queue, run_##name, &c, sizeof(c));                                                 \
    }
#define MADE(...) ((plain_call){ __VA_ARGS__ })

PLAIN(pass, (void *queue, coh_dtype dtype, void *to, const void *from, int64_t count, int adds),
      MADE(.dtype = dtype, .to = to, .from = from, .rows = count, .adds = adds),
      coh_cpu_pass(NULL, c->dtype, c->to, c->from, c->rows, c->adds))
PLAIN(round, (void *queue, coh_dtype dtype, void *to, const float *from, int64_t count, int adds),
      MADE(.dtype = dtype, .to = to, .from = from, .rows = count, .adds = adds),
      coh_cpu_round(NULL, c->dtype, c->to, c->from, c->rows, c->adds))
PLAIN(activate,
      (void *queue, coh_activation activation, coh_dtype dtype, void *y, const void *x,
       int64_t count),
      MADE(.activation = activation, .dtype = dtype, .to = y, .from = x, .rows = count),
      coh_cpu_activate(NULL, c->activation, c->dtype, c->to, c->from, c->rows))
PLAIN(activate_backward,
      (void *queue, coh_activation activation, coh_dtype dtype, void *dx, const void *dy,
       const void *of, int64_t count, int adds),
      MADE(.activation = activation, .dtype = dtype, .to = dx, .from = dy, .of = of, .rows = count,
           .adds = adds),
      coh_cpu_activate_backward(NULL, c->activation, c->dtype, c->to, c->from, c->of, c->rows,
                                c->adds))
PLAIN(settle, (void *queue, coh_cells *cells), MADE(.to = cells), coh_cpu_settle(NULL, c->to))

typedef struct embedding_call {
    coh_embedding embedding;
    void *to;
    const void *from;
    int adds;
} embedding_call;

static void run_embedding(const void *arguments)
{
    const embedding_call *c = arguments;
    coh_cpu_embedding(NULL, &c->embedding, c->to, c->from);
}

static void twin_embedding(void *queue, const coh_embedding *embedding, void *y, const void *weight)
{
    const embedding_call call = { .embedding = *embedding, .to = y, .from = weight };
    enqueue(queue, run_embedding, &call, sizeof(call));
}

static void run_embedding_backward(const void *arguments)
{
    const embedding_call *c = arguments;
    coh_embedding embedding = c->embedding;
    embedding.order = (int32_t *)(void *)scratch(0, coh_kernel_embedding_order(embedding.N));
    coh_cpu_embedding_backward(NULL, &embedding, c->to, c->from, c->adds);
}

static void twin_embedding_backward(void *queue, const coh_embedding *embedding, void *dweight,
                                    const void *dy, int adds)
{
    const embedding_call call = {
        .embedding = *embedding, .to = dweight, .from = dy, .adds = adds
    };
    enqueue(queue, run_embedding_backward, &call, sizeof(call));
}

/* ---- calls whose struct points to the caller's memory ---- */

typedef struct rope_call {
    coh_rope rope;
    float frequencies[COH_HEAD_WIDTH_MOST / 2];
} rope_call;

static void run_rope(const void *arguments)
{
    const rope_call *c = arguments;
    coh_rope rope = c->rope;
    rope.frequencies = c->frequencies;
    coh_cpu_rope(NULL, &rope);
}

static void twin_rope(void *queue, const coh_rope *rope)
{
    rope_call call = { .rope = *rope };
    memcpy(call.frequencies, rope->frequencies, (size_t)rope->D / 2 * sizeof(float));
    enqueue(queue, run_rope, &call, sizeof(call));
}

typedef struct fold_call {
    coh_fold_call fold;
    const void *contributions[COH_FOLD_CUDA_MOST];
} fold_call;

static void run_fold(const void *arguments)
{
    fold_call call = *(const fold_call *)arguments;
    call.fold.contributions = call.contributions;
    coh_cpu_fold(NULL, &call.fold);
}

static void twin_fold(void *queue, const coh_fold_call *fold)
{
    fold_call call = { .fold = *fold };
    memcpy(call.contributions, fold->contributions,
           (size_t)coh_fold_shape_replicas(&fold->shape) * sizeof(*call.contributions));
    enqueue(queue, run_fold, &call, sizeof(call));
}

enum { INPUTS_MOST = 4 };

typedef struct feed_call {
    coh_feed feed;
    coh_feed_input inputs[INPUTS_MOST];
} feed_call;

static void run_feed(const void *arguments)
{
    feed_call call = *(const feed_call *)arguments;
    call.feed.inputs = call.inputs;
    coh_cpu_feed(NULL, &call.feed);
}

static void twin_feed(void *queue, const coh_feed *feed)
{
    feed_call call = { .feed = *feed };
    memcpy(call.inputs, feed->inputs, (size_t)feed->input_count * sizeof(*feed->inputs));
    enqueue(queue, run_feed, &call, sizeof(call));
}

typedef struct square_sums_call {
    coh_square_sums sums;
    coh_grain_run runs[COH_GRAIN_RUNS_MOST];
} square_sums_call;

static void run_square_sums(const void *arguments)
{
    square_sums_call call = *(const square_sums_call *)arguments;
    call.sums.grains.runs = call.runs;
    coh_cpu_square_sums(NULL, &call.sums);
}

static void copy_runs(const coh_chunk_grains *grains, coh_grain_run *to)
{
    memcpy(to, grains->runs, (size_t)grains->run_count * sizeof(*to));
}

static void twin_square_sums(void *queue, const coh_square_sums *sums)
{
    square_sums_call call = { .sums = *sums };
    copy_runs(&sums->grains, call.runs);
    enqueue(queue, run_square_sums, &call, sizeof(call));
}

typedef struct update_call {
    coh_update update;
    coh_grain_run runs[COH_GRAIN_RUNS_MOST];
    float hyperparameters[COH_OPTIMIZER_NUMBERS];
    const int32_t *predicate;
} update_call;

static void run_update(const void *arguments)
{
    update_call call = *(const update_call *)arguments;
    call.update.grains.runs = call.runs;
    call.update.hyperparameters = call.hyperparameters;
    if (call.predicate == NULL || *call.predicate != 0)
        coh_cpu_update(NULL, &call.update);
}

static void twin_update(void *queue, const coh_update *update)
{
    update_call call = { .update = *update, .predicate = coh_cuda_take_predicate(queue) };
    copy_runs(&update->grains, call.runs);
    for (int32_t i = 0; i < update->optimizer->hyperparameter_count; i++)
        call.hyperparameters[i] = update->hyperparameters[i];
    enqueue(queue, run_update, &call, sizeof(call));
}

/* The engine learns later of what a kernel finds wrong. */
typedef struct index_call {
    coh_index_check check;
    coh_cuda_queue *queue;
} index_call;

static void run_check_indices(const void *arguments)
{
    const index_call *c = arguments;
    coh_cuda_queue_fail(c->queue, coh_cpu_check_indices(NULL, &c->check));
}

static coh_status twin_check_indices(void *queue, const coh_index_check *check)
{
    const index_call call = { .check = *check, .queue = queue };
    enqueue(queue, run_check_indices, &call, sizeof(call));
    return COH_OK;
}

/* ---- the table ---- */

static const coh_kernel_table table = {
#define TWIN(name, parameters, arguments) .name = twin_##name,
    COH_KERNEL_LIST(TWIN)
#undef TWIN
        .check_indices = twin_check_indices
};

static coh_status open_nothing(void *queue)
{
    (void)queue;
    return COH_OK;
}

static void close_nothing(void *queue)
{
    (void)queue;
}

const coh_device_kernels host_twins = { .table = &table,
                                        .open = open_nothing,
                                        .close = close_nothing };
