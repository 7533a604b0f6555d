/* The project's attention kernels, whose source is emulated (emulate.h) and launched by the same
 * code as on a GPU, compared with naive loops in double (attention_checks.h). Also the requests of
 * that code to cuDNN, which a fake replaces (fake_cudnn.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/table.h"
#include "memory/cuda_queue.h"
#include "tests/cuda/attention_cases.h"
#include "tests/cuda/attention_checks.h"
#include "tests/cuda/emulate.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/length.h"

/* ---- the queue: launches are emulated, cuDNN is a fake or absent ---- */

typedef struct emulated_queue {
    coh_cuda_queue base;
    int mode; /* COH_EMULATE_* */
} emulated_queue;

static const char *const symbols[] = {
#define COH_CUDA_KERNEL(name, symbol, file) symbol,
#include "kernels/cuda/kernel_list.h"
#undef COH_CUDA_KERNEL
};

void coh_cuda_launch(void *queue, coh_cuda_kernel kernel, const coh_cuda_grid *grid,
                     const void *arguments)
{
    coh_emulated_kernel *run = coh_emulate_find(symbols[kernel]);
    if (run == NULL)
        fail_msg("%s is not in this program", symbols[kernel]);
    assert_true(grid->x > 0 && grid->y > 0 && grid->z > 0);
    /* limit of a block on every GPU from sm_80 on */
    assert_true(grid->shared_bytes <= 99u << 10);
    coh_emulate_launch(run, (coh_emulated_index){ grid->x, grid->y, grid->z }, grid->threads,
                       grid->shared_bytes, arguments, ((const emulated_queue *)queue)->mode);
}

int coh_cuda_multiprocessors(void *queue)
{
    (void)queue;
    return 1;
}

const struct coh_cuda_libraries *coh_cuda_queue_libraries(void *queue)
{
    return ((const coh_cuda_queue *)queue)->libraries;
}

void coh_cuda_queue_fail(coh_cuda_queue *queue, coh_status status)
{
    (void)queue;
    assert_int_equal(status, COH_OK);
}

static const coh_kernel_table table = {
    .attention = coh_cuda_attention,
    .attention_backward = coh_cuda_attention_backward,
    .attention_decode = coh_cuda_attention_decode,
};

/* A missing barrier shows in one of them: with early copies and threads run from the last to the
 * first, or with late copies and threads run from the first to the last. */
static emulated_queue early = { { .head = { &table } }, COH_EMULATE_BACKWARD };
static emulated_queue late = { { .head = { &table } }, COH_EMULATE_LATE };
static const attention_bench bench = { .queues = { &early, &late } };

/* Long sequences are checked once, for plain attention; short runs check the other properties on
 * few blocks. */
static attention_bench brief(const attention_bench *from)
{
    attention_bench one = *from;
    one.is_brief = test_is_short();
    return one;
}

static void attention_is_the_naive_loop_in_any_order(void **state)
{
    (void)state;
    attention_check_shapes(&bench);
}

static void gradients_are_added_to_what_is_there(void **state)
{
    (void)state;
    const attention_bench one = brief(&bench);
    attention_check_adding(&one);
}

static void results_may_stand_where_operands_did_or_be_left_out(void **state)
{
    (void)state;
    const attention_bench one = brief(&bench);
    attention_check_places(&one);
}

static void a_decoder_goes_row_by_row(void **state)
{
    (void)state;
    attention_check_decoder(&bench);
}

/* ---- cuDNN's plans ---- */

static CUresult copy_now(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    memmove((void *)to, (const void *)from, bytes);
    return CUDA_SUCCESS;
}

static const coh_cuda_driver driver = { .cuMemcpyAsync = copy_now };
static unsigned char workspace[256];
static coh_cuda_libraries libraries;
static emulated_queue with_cudnn = { { .head = { &table }, .driver = &driver }, 0 };
static const attention_bench cudnn_bench = { .queues = { &with_cudnn, &with_cudnn } };

static const attention_bench atomic_bench = { .queues = { &with_cudnn, &with_cudnn },
                                              .atomics = 1 };

static int add_cudnn(void **state)
{
    const coh_attention_plans_config config = { .call = &fake_cudnn,
                                                .workspace = workspace,
                                                .workspace_bytes = sizeof(workspace) };
    (void)state;
    with_cudnn.base.libraries = &libraries;
    return coh_attention_plans_create(&config, &libraries.attention) == COH_OK ? 0 : -1;
}

static int remove_cudnn(void **state)
{
    (void)state;
    coh_attention_plans_destroy(libraries.attention);
    return 0;
}

static void plans_are_given_what_stands_in_memory(void **state)
{
    (void)state;
    const attention_bench one = brief(&cudnn_bench);
    fake_dnn.executed = 0;
    attention_check_shapes(&one);
    assert_true(fake_dnn.executed > 0);
}

/* The library does not take one token: it has no backward for it, and the project's kernels
 * compute. */
static void one_token_is_not_asked_of_cudnn(void **state)
{
    (void)state;
    static const attention_shape rows[] = { { "one token", COH_DTYPE_BF16, 2, 1, 4, 2, 64, 0 },
                                            { "two tokens", COH_DTYPE_BF16, 2, 2, 4, 2, 64, 0 } };
    for (int i = 0; i < 2; i++) {
        fake_dnn.executed = 0;
        attention_check_shape(&cudnn_bench, &rows[i]);
        assert_int_equal(fake_dnn.executed > 0, i == 1);
    }
}

static void plans_take_dq_in_the_place_of_dy(void **state)
{
    (void)state;
    const attention_bench one = brief(&cudnn_bench);
    attention_check_places(&one);
}

/* Two calls each of forward and backward, whose scratch is cut by sequences, and by heads. */
static void large_scratch_is_cut(void **state)
{
    (void)state;
    static const attention_shape cut_shapes[] = {
        { "two sequences of four at a time", COH_DTYPE_BF16, 4, 3, 8192, 8192, 8, 0 },
        { "half of the heads of keys at a time", COH_DTYPE_BF16, 1, 3, 32768, 16384, 8, 0 },
        { "odd rows, four sequences of eight", COH_DTYPE_BF16, 8, 3, 4095, 4095, 8, 0 },
    };
    for (int i = 0; i < 3; i++) {
        fake_dnn.executed = 0;
        attention_check_shape(&cudnn_bench, &cut_shapes[i]);
        assert_int_equal(fake_dnn.executed, 2 * (1 + 2));
    }
}

/* One call, whatever the rows: the third shape has no cut that is small enough. */
static void by_atomics_nothing_is_cut(void **state)
{
    (void)state;
    static const attention_shape whole[] = {
        { "shared by threes, odd rows", COH_DTYPE_BF16, 2, 191, 3, 1, 64, 0 },
        { "96 wide", COH_DTYPE_BF16, 2, 70, 2, 2, 96, 0 },
        { "six sequences of odd rows and heads", COH_DTYPE_BF16, 6, 3, 4095, 4095, 8, 0 },
    };
    for (int i = 0; i < 3; i++) {
        fake_dnn.executed = 0;
        attention_check_shape(&atomic_bench, &whole[i]);
        assert_int_equal(fake_dnn.executed, 2 * (1 + 1));
    }
}

/* Where dq overwrites dy or is added to, or a single token has no backward, the project's kernels
 * run; also if the library is missing. */
static void what_atomics_cannot_do_own_kernels_do(void **state)
{
    (void)state;
    static const attention_shape shared = { "shared", COH_DTYPE_BF16, 1, 40, 4, 2, 16, 0 };
    static const attention_shape token = { "a token", COH_DTYPE_BF16, 1, 1, 4, 2, 16, 0 };
    attention_bench missing = bench;
    missing.atomics = 1;
    attention_check_shape(&missing, &shared);
    attention_check_shape(&atomic_bench, &token);
    attention_check_place(&atomic_bench, &shared);
    attention_check_added(&atomic_bench, &shared);
}

static void keep_sentence(void *context, const char *sentence)
{
    snprintf(context, 320, "%s", sentence);
}

static void a_shape_refused_by_atomics_is_said_and_the_own_kernels(void **state)
{
    (void)state;
    static const attention_shape shape = { "refused", COH_DTYPE_BF16, 1, 40, 4, 2, 16, 0 };
    char sentence[320] = "";
    const coh_attention_plans_config config = { .call = &fake_cudnn,
                                                .workspace = workspace,
                                                .workspace_bytes = sizeof(workspace),
                                                .log = keep_sentence,
                                                .log_context = sentence };
    coh_attention_plans *const usual = libraries.attention;
    fake_cudnn_reset();
    fake_dnn.finalize_with[1] = CUDNN_STATUS_NOT_SUPPORTED;
    assert_int_equal(coh_attention_plans_create(&config, &libraries.attention), COH_OK);
    attention_check_shape(&atomic_bench, &shape);
    assert_int_equal(fake_dnn.executed, 2); /* forward, twice */
    assert_string_equal(sentence,
                        "cuDNN does not take attention backward by atomics of 1 x 4 heads (2 of "
                        "keys) by 40 tokens by 16: a fake failure; kernels of our own compute it");
    coh_attention_plans_destroy(libraries.attention);
    libraries.attention = usual;
    fake_cudnn_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_the_naive_loop_in_any_order),
        cmocka_unit_test(gradients_are_added_to_what_is_there),
        cmocka_unit_test(results_may_stand_where_operands_did_or_be_left_out),
        cmocka_unit_test(a_decoder_goes_row_by_row),
        cmocka_unit_test(plans_are_given_what_stands_in_memory),
        cmocka_unit_test(one_token_is_not_asked_of_cudnn),
        cmocka_unit_test(plans_take_dq_in_the_place_of_dy),
        cmocka_unit_test(large_scratch_is_cut),
        cmocka_unit_test(by_atomics_nothing_is_cut),
        cmocka_unit_test(what_atomics_cannot_do_own_kernels_do),
        cmocka_unit_test(a_shape_refused_by_atomics_is_said_and_the_own_kernels),
    };
    return cmocka_run_group_tests(tests, add_cudnn, remove_cudnn);
}
