/* Products with weights large enough to be split into blocks of rows: compared with the naive
 * reference in double precision, and ranges of blocks with the whole, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <xxhash.h>

#include "base/pool.h"
#include "cohobate/kinds.h"
#include "kernels/table.h"
#include "tests/length.h"
#include "tests/reference/call.h"
#include "tests/reference/reference.h"

/* A block has 2048 rows of 2048; the last one has 4 rows. */
enum { ROWS = 3, INPUTS = 2048, OUTPUTS = 4100, BLOCK = 2048, BLOCKS = 3 };

static const coh_op_kind *const kinds[] = { &coh_kind_linear, &coh_kind_linear_uniform,
                                            &coh_kind_linear_residual, &coh_kind_linear_gelu,
                                            &coh_kind_linear_relu };
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), CASES = 2 * KINDS };
/* In short runs a sanitizer sees each kind in one of the two dtypes; those that begin at 1 are the
 * other half of those that begin at 0. */
static int next_case(int index)
{
    return index + (test_is_brief() ? 2 : 1);
}

static const coh_linear_attributes attributes = { OUTPUTS, 1, 0.02f };
static coh_pool *pool;

static int make_pool(void **state)
{
    (void)state;
    return coh_pool_create(2, &pool) == COH_OK ? 0 : -1;
}

static int drop_pool(void **state)
{
    (void)state;
    coh_pool_destroy(pool);
    return 0;
}

static void make_case(coh_case *one, int index, uint64_t seed)
{
    const coh_dtype dtype = index < KINDS ? COH_DTYPE_F32 : COH_DTYPE_BF16;
    const coh_shape inputs[3] = { { .dtype = dtype, .rank = 2, .dim = { ROWS, INPUTS } },
                                  { .dtype = dtype, .rank = 2, .dim = { ROWS, OUTPUTS } } };
    coh_case_create(one, kinds[index % KINDS], &attributes, inputs, seed);
    assert_int_equal(one->facts.parameter[0].row_block, BLOCK);
}

static void add_to_hash(void *context, const char *name, const void *data, size_t bytes)
{
    uint64_t *hash = context;
    (void)name;
    *hash = XXH3_64bits_withSeed(data, bytes, *hash);
}

static uint64_t hash_results(coh_case *one)
{
    uint64_t hash = 0;
    coh_case_results(one, add_to_hash, &hash);
    return hash;
}

static void blocks_agree_with_double_precision(void **state)
{
    (void)state;
    for (int index = test_is_brief() && !test_seeks_races(); index < CASES;
         index = next_case(index + 4 * test_seeks_races())) {
        coh_case one;
        coh_reference r;
        make_case(&one, index, 5);
        coh_reference_create(&r, &one);
        coh_reference_forward(&r);
        coh_reference_backward(&r);
        assert_int_equal(coh_case_forward(&one, pool), COH_OK);
        assert_true(coh_reference_agrees("y", &r.output, &one.call.output[0], NULL));
        assert_int_equal(coh_case_backward(&one, pool), COH_OK);
        for (int i = 0; i < one.kind->input_count; i++)
            assert_true(
                coh_reference_agrees("dx", &r.input_grad[i], &one.call.input_grad[i], NULL));
        for (int i = 0; i < 2; i++)
            assert_true(coh_reference_agrees("dparameter", &r.parameter_grad[i],
                                             &one.call.parameter_grad[i], NULL));
        coh_reference_destroy(&r);
        coh_case_destroy(&one);
    }
}

/* Runs backward to write, then to add to the written values. */
static uint64_t run(coh_case *one, void *queue, int64_t blocks)
{
    const int whole = blocks >= BLOCKS;
    one->call.input_grad_adds = one->call.parameter_grad_adds = 0;
    assert_int_equal(
        whole ? coh_case_forward(one, queue) : coh_case_forward_ranges(one, queue, blocks), COH_OK);
    for (int adds = 0; adds < 2; adds++) {
        one->call.input_grad_adds = one->call.parameter_grad_adds = adds ? 3 : 0;
        assert_int_equal(whole ? coh_case_backward(one, queue)
                               : coh_case_backward_ranges(one, queue, blocks),
                         COH_OK);
    }
    return hash_results(one);
}

static void ranges_and_threads_change_no_bit(void **state)
{
    (void)state;
    for (int index = 0; index < CASES; index = next_case(index + 2 * test_seeks_races())) {
        coh_case one;
        make_case(&one, index, 8);
        const uint64_t whole = run(&one, pool, BLOCKS);
        assert_true(run(&one, pool, 1) == whole);
        if (!test_seeks_races()) { /* one thread */
            assert_true(run(&one, NULL, 2) == whole);
            if (!test_is_brief()) /* the same blocks as one range, without threads */
                assert_true(run(&one, NULL, BLOCKS) == whole);
        }
        coh_case_destroy(&one);
    }
}

static int products;

static void count_product(void *queue, const coh_matmul *product)
{
    (void)queue;
    products++;
    coh_cpu_matmul(pool, product);
}

/* A GPU multiplies the whole weight at once: in blocks, whose sums go through its memory, a large
 * layer is slower. The workspace that holds these sums is not needed either. */
static void a_gpu_takes_the_blocks_as_one(void **state)
{
    (void)state;
    coh_kernel_table table = { .matmul = count_product };
    coh_queue_head gpu = { &table };
    const coh_linear_attributes unbiased = { OUTPUTS, 0, 0.02f };
    const coh_shape x = { .dtype = COH_DTYPE_BF16, .rank = 2, .dim = { ROWS, INPUTS } };
    coh_case one;
    coh_reference r;
    coh_case_create(&one, &coh_kind_linear, &unbiased, &x, 9);
    coh_reference_create(&r, &one);
    coh_reference_forward(&r);
    coh_reference_backward(&r);
    products = 0;
    assert_int_equal(coh_case_forward(&one, &gpu), COH_OK);
    assert_int_equal(products, 1);
    assert_int_equal(coh_case_backward(&one, &gpu), COH_OK);
    assert_int_equal(products, 1 + 2); /* dweight, dx */
    assert_true(coh_reference_agrees("y", &r.output, &one.call.output[0], NULL));
    assert_true(coh_reference_agrees("dx", &r.input_grad[0], &one.call.input_grad[0], NULL));
    assert_true(
        coh_reference_agrees("dweight", &r.parameter_grad[0], &one.call.parameter_grad[0], NULL));
    assert_true(one.facts.workspace_bytes[COH_PHASE_BACKWARD] > 0);
    assert_int_equal(
        coh_kind_linear.devices[COH_DEVICE_CUDA].workspace(&unbiased, &x, COH_PHASE_BACKWARD), 0);
    coh_reference_destroy(&r);
    coh_case_destroy(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(blocks_agree_with_double_precision),
                                        cmocka_unit_test(ranges_and_threads_change_no_bit),
                                        cmocka_unit_test(a_gpu_takes_the_blocks_as_one) };
    return cmocka_run_group_tests(tests, make_pool, drop_pool);
}
