/* The queue determines who computes: a table at the begin of a queue receives every call of a kind,
 * and nothing else computes. The table here counts calls, and has the host do the work on the
 * calling thread. A kind only enqueues for a GPU: memory of its call can be read here only inside
 * the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/table.h"
#include "tests/kernels/shapes.h"

static int call_count;
static coh_case *locked; /* readable only inside kernels */

static void enter_kernel(void)
{
    call_count++;
    coh_case_unlock(locked);
}

#define TWIN(name, parameters, arguments)                                                          \
    static void twin_##name parameters                                                             \
    {                                                                                              \
        queue = NULL;                                                                              \
        enter_kernel();                                                                            \
        coh_cpu_##name arguments;                                                                  \
        coh_case_lock(locked);                                                                     \
    }
COH_KERNEL_LIST(TWIN)

static coh_status twin_check_indices(void *queue, const coh_index_check *check)
{
    (void)queue;
    enter_kernel();
    const coh_status status = coh_cpu_check_indices(NULL, check);
    coh_case_lock(locked);
    return status;
}

#define TWIN_FIELD(name, parameters, arguments) .name = twin_##name,
static const coh_kernel_table twins = { .check_indices = twin_check_indices,
                                        COH_KERNEL_LIST(TWIN_FIELD) };

typedef struct device_queue {
    coh_queue_head head;
    char rest[64]; /* the device's members */
} device_queue;

typedef struct results {
    const void *data[8];
    size_t bytes[8];
    int count;
} results;

static void keep_result(void *context, const char *name, const void *data, size_t bytes)
{
    results *all = context;
    (void)name;
    assert_true(all->count < 8);
    all->data[all->count] = data;
    all->bytes[all->count++] = bytes;
}

/* Runs a case on the host. Returns the number of calls to the table. */
static int run_here(coh_case *one, void *queue, results *out_results)
{
    call_count = 0;
    *out_results = (results){ 0 };
    assert_int_equal(coh_case_forward(one, queue), COH_OK);
    assert_int_equal(coh_case_backward(one, queue), COH_OK);
    coh_case_results(one, keep_result, out_results);
    return call_count;
}

/* Runs one phase as the kind does for a GPU, with the case's memory locked. */
static coh_status run_locked(coh_status (*phase)(const coh_call *call), const coh_call *call)
{
    coh_call copy = *call;
    device_queue queue = { .head = { &twins } };
    copy.queue = &queue;
    coh_case_lock(locked);
    const coh_status status = phase(&copy);
    coh_case_unlock(locked);
    return status;
}

static int run_there(coh_case *one, results *out_results)
{
    locked = one;
    call_count = 0;
    *out_results = (results){ 0 };
    assert_int_equal(run_locked(one->kind->devices[COH_DEVICE_CUDA].forward, &one->call), COH_OK);
    assert_int_equal(run_locked(one->kind->devices[COH_DEVICE_CUDA].backward, &one->call), COH_OK);
    coh_case_results(one, keep_result, out_results);
    return call_count;
}

static void a_kind_computes_where_its_queue_says_and_reads_nothing_itself(void **state)
{
    (void)state;
    for (int index = 0; index < SHAPE_CASES; index++) {
        coh_case here, there;
        results expected, got;
        if (shape_case_at(index)->kind->devices[COH_DEVICE_CUDA].forward == NULL)
            continue;
        shape_case_create(&here, index, 21);
        shape_case_create(&there, index, 21);
        assert_int_equal(run_here(&here, NULL, &expected), 0);
        assert_in_range(run_there(&there, &got), 2, 1000);
        assert_int_equal(got.count, expected.count);
        for (int i = 0; i < got.count; i++)
            assert_memory_equal(got.data[i], expected.data[i], got.bytes[i]);
        coh_case_destroy(&there);
        coh_case_destroy(&here);
    }
}

/* Kinds of a decoder, whose position is in a tensor. */
static void a_decoders_kinds_do_so_as_well(void **state)
{
    (void)state;
    enum { POSITIONS = 5, AT = 3 };
    static const coh_position_attributes position = { POSITIONS, 1.0f, 2 };
    static const coh_rope_attributes rope = { 2, 10000.0 };
    static const coh_attention_decode_attributes decode = { 2, POSITIONS };
    static const coh_attention_grouped_decode_attributes grouped = { 2, 1, POSITIONS };
    static const coh_classifier_attributes logits = { 1100, 1.0f };
    static const struct {
        const coh_op_kind *kind;
        const void *attributes;
        coh_shape inputs[4];
        int position;
    } cases[] = {
        { &coh_kind_position_at, &position, { F32(2, 1, 12), I32(1) }, 1 },
        { &coh_kind_rope_at, &rope, { F32(2, 1, 12), I32(1) }, 1 },
        { &coh_kind_attention_decode, &decode, { F32(2, 1, 12), I32(1) }, 1 },
        { &coh_kind_attention_grouped_decode,
          &grouped,
          { F32(2, 1, 12), F32(2, 1, 6), F32(2, 1, 6), I32(1) },
          3 },
        { &coh_kind_logits, &logits, { F32(2, 1, 12) }, -1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_case here, there;
        coh_case *both[] = { &here, &there };
        for (int c = 0; c < 2; c++) {
            coh_case_create(both[c], cases[i].kind, cases[i].attributes, cases[i].inputs, 22);
            if (cases[i].position >= 0)
                *(int32_t *)both[c]->call.input[cases[i].position].data = AT;
        }
        locked = &there;
        assert_int_equal(coh_case_forward(&here, NULL), COH_OK);
        assert_int_equal(run_locked(there.kind->devices[COH_DEVICE_CUDA].forward, &there.call),
                         COH_OK);
        const size_t bytes = (size_t)coh_shape_elements(&here.call.output[0].shape) * sizeof(float);
        assert_memory_equal(there.call.output[0].data, here.call.output[0].data, bytes);
        coh_case_destroy(&there);
        coh_case_destroy(&here);
    }
}

static void a_pool_is_the_hosts(void **state)
{
    (void)state;
    coh_pool *pool;
    coh_case one;
    results ignored;
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    shape_case_create(&one, 0, 21);
    assert_int_equal(run_here(&one, pool, &ignored), 0);
    coh_case_destroy(&one);
    coh_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kind_computes_where_its_queue_says_and_reads_nothing_itself),
        cmocka_unit_test(a_decoders_kinds_do_so_as_well),
        cmocka_unit_test(a_pool_is_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
