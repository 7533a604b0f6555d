#include "tests/cuda/twins.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

#include "kernels/cuda/index_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/table.h"
#include "memory/cuda_queue.h"
#include "tests/cuda/emulate.h"

/* The queue of tests without a GPU: launches are emulated at once. */

/* ---- memory ---- */

#define TENSORS_MOST 256
#define BOUNDARY     64

static void *kept[TENSORS_MOST];
static int kept_count;

/* Allocates exactly this size, so that a sanitizer detects accesses past the end. */
void *coh_twins_memory(size_t bytes)
{
    void *memory;
    assert_true(kept_count < TENSORS_MOST);
    assert_int_equal(posix_memalign(&memory, BOUNDARY, bytes), 0);
    return kept[kept_count++] = memory;
}

void coh_twins_release(void)
{
    while (kept_count > 0)
        free(kept[--kept_count]);
}

void coh_twins_share(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

void coh_twins_unshare(void *memory)
{
    (void)memory;
}

/* ---- launches ---- */

typedef struct twin_queue {
    coh_cuda_queue base;
    int mode; /* COH_EMULATE_* */
    coh_cuda_index_checks *checks;
} twin_queue;

static const char *const symbols[] = {
#define COH_CUDA_KERNEL(name, symbol, file) symbol,
#include "kernels/cuda/kernel_list.h"
#undef COH_CUDA_KERNEL
};

void coh_cuda_launch(void *queue, coh_cuda_kernel kernel, const coh_cuda_grid *grid,
                     const void *arguments)
{
    const twin_queue *twins = queue;
    coh_emulated_kernel *run = coh_emulate_find(symbols[kernel]);
    if (run == NULL)
        fail_msg("%s is not in this program", symbols[kernel]);
    assert_true(grid->x > 0 && grid->y > 0 && grid->z > 0);
    coh_emulate_launch(run, (coh_emulated_index){ grid->x, grid->y, grid->z }, grid->threads,
                       grid->shared_bytes, arguments, twins->mode);
}

/* Few enough that a thread processes several parts. */
int coh_cuda_multiprocessors(void *queue)
{
    (void)queue;
    return 1;
}

const int32_t *coh_cuda_take_predicate(void *queue)
{
    return ((const coh_cuda_queue *)queue)->predicate;
}

coh_cuda_index_checks *coh_cuda_queue_index_checks(void *queue)
{
    return ((const twin_queue *)queue)->checks;
}

/* Products have their own tests: here the host's are used. */
static void host_matmul(void *queue, const coh_matmul *matmul)
{
    (void)queue;
    coh_cpu_matmul(NULL, matmul);
}

static const coh_kernel_table table = {
    .pass = coh_cuda_pass,
    .round = coh_cuda_round,
    .matmul = host_matmul,
    .column_sum = coh_cuda_column_sum,
    .nf4 = coh_cuda_nf4,
    .embedding = coh_cuda_embedding,
    .embedding_backward = coh_cuda_embedding_backward,
    .position = coh_cuda_position,
    .position_backward = coh_cuda_position_backward,
    .rope = coh_cuda_rope,
    .norm = coh_cuda_norm,
    .norm_backward = coh_cuda_norm_backward,
    .activate = coh_cuda_activate,
    .activate_backward = coh_cuda_activate_backward,
    .scale = coh_cuda_scale,
    .soft_cap = coh_cuda_soft_cap,
    .dropout = coh_cuda_dropout,
    .swiglu = coh_cuda_swiglu,
    .swiglu_backward = coh_cuda_swiglu_backward,
    .activation_gradient = coh_cuda_activation_gradient,
    .classifier = coh_cuda_classifier,
    .classifier_backward = coh_cuda_classifier_backward,
    .take_blocks = coh_cuda_take_blocks,
    .put_blocks = coh_cuda_put_blocks,
    .mean = coh_cuda_mean,
    .mean_backward = coh_cuda_mean_backward,
    .softmax = coh_cuda_softmax,
    .softmax_backward = coh_cuda_softmax_backward,
    .cross_entropy = coh_cuda_cross_entropy,
    .cross_entropy_backward = coh_cuda_cross_entropy_backward,
    .squares = coh_cuda_squares,
    .squares_backward = coh_cuda_squares_backward,
    .feed = coh_cuda_feed,
    .square_sums = coh_cuda_square_sums,
    .clip = coh_cuda_clip,
    .update = coh_cuda_update,
    .settle = coh_cuda_settle,
    .fold = coh_cuda_fold,
    .wire_pack = coh_cuda_wire_pack,
    .wire_unpack = coh_cuda_wire_unpack,
    .check_indices = coh_cuda_check_indices,
};

/* The second turn has both: threads backward, and asynchronous copies as late as allowed. */
void coh_twins_enqueue(void (*run)(void *queue, const void *call), const void *call, int turn,
                       const coh_twins_line *line)
{
    twin_queue queue = { .base = { .head = { &table } },
                         .mode = turn > 0 ? COH_EMULATE_BACKWARD | COH_EMULATE_LATE : 0 };
    if (line != NULL) {
        queue.base.predicate = line->predicate;
        queue.checks = line->checks;
    }
    run(&queue, call);
}

void coh_twins_wait(void)
{
}

int coh_twins_has_library(void)
{
    return 0;
}
