/* Products by cuBLASLt (kernels/cuda/products.h), without a GPU: a library that computes from its
 * descriptors shows whether they describe the coh_matmul. Operands are small integers, so that
 * every sum is exact and both must give the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/rng.h"
#include "kernels/cuda/products.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/faults/alloc_faults.h"

enum { WORKSPACE_BYTES = 4096, LENGTH_MOST = 70, STRIDE_EXTRA = 9 };

static char workspace[1];

static int clock_fails;

/* Returns the time of all products so far; nothing else takes time. */
static coh_status fake_clock(void *context, uint64_t *out_ns)
{
    (void)context;
    *out_ns = fake_lt.now_ns;
    return clock_fails ? coh_fail(COH_ERR_DEVICE, "the stream is gone") : COH_OK;
}

static const coh_cuda_products_config config = { .functions = &fake_lt_functions,
                                                 .workspace = workspace,
                                                 .workspace_bytes = WORKSPACE_BYTES,
                                                 .device_name = "NVIDIA H200",
                                                 .multiprocessors = 132,
                                                 .stream = workspace,
                                                 .clock = fake_clock };

static coh_cuda_products *start(void)
{
    coh_cuda_products *products;
    assert_int_equal(coh_cuda_products_create(&config, &products), COH_OK);
    return products;
}

static int reset(void **state)
{
    (void)state;
    fake_lt_reset();
    coh_algorithms_take(NULL, 0);
    coh_algorithms_measure(0);
    clock_fails = 0;
    return 0;
}

static void end(coh_cuda_products *products)
{
    coh_cuda_products_destroy(products);
    assert_int_equal(fake_lt.live_objects, 0);
    assert_int_equal(fake_lt.broken, 0);
}

/* ---- operands ---- */

enum { SLOT_BYTES = (LENGTH_MOST + STRIDE_EXTRA) * (LENGTH_MOST + STRIDE_EXTRA) * 4 };

typedef struct operands {
    _Alignas(256) char a[SLOT_BYTES];
    _Alignas(256) char b[SLOT_BYTES];
    _Alignas(256) char bias[SLOT_BYTES];
    _Alignas(256) char residual[SLOT_BYTES];
    _Alignas(256) char c[2][SLOT_BYTES]; /* by the library, and by the host's kernel */
    _Alignas(256) char activated[2][SLOT_BYTES];
} operands;

static void put(coh_dtype dtype, void *data, int64_t at, float value)
{
    if (dtype == COH_DTYPE_BF16)
        ((uint16_t *)data)[at] = coh_bf16_of_f32(value);
    else
        ((float *)data)[at] = value;
}

/* Fills with integers from -3 to 3: sums of 70 products are below 2^24, and exact in f32. */
static void fill(coh_dtype dtype, void *data, uint64_t stream)
{
    const int64_t count = SLOT_BYTES / (int64_t)coh_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++)
        put(dtype, data, i, (float)coh_rng_below(71, stream, (uint64_t)i, 7) - 3.0f);
}

typedef struct ending {
    int adds, bias, residual; /* residual 2: in place */
    int activated;            /* 1: in addition to c, 2: in place of c */
    coh_activation activation;
} ending;

static const ending endings[] = {
    { 0 },
    { .adds = 1 },
    { .bias = 1 },
    { .residual = 1 },
    { .residual = 2, .bias = 1 },
    { .adds = 1, .bias = 1, .residual = 1 }, /* adds has precedence */
    { .activated = 2, .activation = COH_ACTIVATION_RELU },
    { .bias = 1, .activated = 2, .activation = COH_ACTIVATION_RELU },
    { .bias = 1, .residual = 1, .activated = 2, .activation = COH_ACTIVATION_RELU },
    { .bias = 1, .activated = 1, .activation = COH_ACTIVATION_RELU },
    { .bias = 1, .activated = 1, .activation = COH_ACTIVATION_GELU },
};
enum { ENDING_COUNT = sizeof(endings) / sizeof(endings[0]) };

/* Sets c before a product: numbers if the sum begins with them, NaN if c may not be read. */
static void prepare_c(operands *o, const coh_matmul *m, const ending *e, int side)
{
    if (e->adds || e->residual == 2)
        fill(m->c_dtype, o->c[side], 6);
    else
        memset(o->c[side], 0xff, SLOT_BYTES);
    memset(o->activated[side], 0xff, SLOT_BYTES);
}

static coh_matmul make(operands *o, coh_matmul_layout layout, coh_dtype dtype, coh_dtype c_dtype,
                       int64_t rows, int64_t columns, int64_t depth)
{
    const int64_t extra = (int64_t)coh_rng_below(5, (uint64_t)rows, (uint64_t)depth, STRIDE_EXTRA);
    fill(dtype, o->a, 1);
    fill(dtype, o->b, 2);
    fill(dtype, o->bias, 3);
    fill(dtype, o->residual, 4);
    return (coh_matmul){ .layout = layout,
                         .dtype = dtype,
                         .c_dtype = c_dtype,
                         .rows = rows,
                         .columns = columns,
                         .depth = depth,
                         .a = o->a,
                         .b = o->b,
                         .a_stride = (layout == COH_MATMUL_TN ? rows : depth) + extra,
                         .b_stride = (layout == COH_MATMUL_NT ? depth : columns) + 2,
                         .c_stride = columns + extra };
}

static void end_with(coh_matmul *m, operands *o, const ending *e, int side)
{
    prepare_c(o, m, e, side);
    m->c = o->c[side];
    m->adds = e->adds;
    m->bias = e->bias ? o->bias : NULL;
    m->residual = e->residual == 2 ? m->c : e->residual == 1 ? o->residual : NULL;
    m->activated = e->activated == 2 ? m->c : e->activated == 1 ? o->activated[side] : NULL;
    m->activation = e->activation;
}

/* Does what a GPU's kernels do after the library, with the host's. */
static void activate_the_rest(const coh_matmul *m)
{
    if (m->activated == NULL || coh_product_form_of(m).relu)
        return;
    for (int64_t i = 0; i < m->rows; i++) {
        const int64_t at = i * m->c_stride * (int64_t)coh_dtype_bytes(m->c_dtype);
        char *to = (char *)m->activated + at;
        const char *from = (const char *)m->c + at;
        coh_kernel_activate(NULL, m->activation, m->c_dtype, to, from, m->columns);
    }
}

static void compare(coh_cuda_products *products, operands *o, coh_matmul *m, const ending *e)
{
    int done;
    end_with(m, o, e, 0);
    assert_int_equal(coh_cuda_products_run(products, NULL, m, &done), COH_OK);
    assert_true(done);
    activate_the_rest(m);
    end_with(m, o, e, 1);
    coh_kernel_matmul(NULL, m);
    if (memcmp(o->c[0], o->c[1], SLOT_BYTES) != 0 ||
        memcmp(o->activated[0], o->activated[1], SLOT_BYTES) != 0)
        fail_msg("layout %d, types %d and %d, %lld x %lld x %lld, ending %d: another matrix",
                 (int)m->layout, (int)m->dtype, (int)m->c_dtype, (long long)m->rows,
                 (long long)m->columns, (long long)m->depth, (int)(e - endings));
}

static const int64_t shapes[][3] = {
    { 1, 1, 1 }, { 3, 5, 7 }, { 1, 33, 17 }, { 64, 1, 3 }, { 31, 70, 2 }, { 17, 66, 70 },
};
enum { SHAPE_COUNT = sizeof(shapes) / sizeof(shapes[0]) };

static void the_descriptors_say_what_the_product_says(void **state)
{
    (void)state;
    static const coh_dtype types[][2] = { { COH_DTYPE_F32, COH_DTYPE_F32 },
                                          { COH_DTYPE_BF16, COH_DTYPE_BF16 },
                                          { COH_DTYPE_BF16, COH_DTYPE_F32 } };
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_cuda_products *products = start();
    assert_non_null(o);
    for (int layout = COH_MATMUL_NT; layout <= COH_MATMUL_TN; layout++)
        for (int t = 0; t < 3; t++)
            for (int s = 0; s < SHAPE_COUNT; s++)
                for (int e = 0; e < ENDING_COUNT; e++) {
                    coh_matmul m = make(o, (coh_matmul_layout)layout, types[t][0], types[t][1],
                                        shapes[s][0], shapes[s][1], shapes[s][2]);
                    end_with(&m, o, &endings[e], 0);
                    if (!coh_product_form_of(&m).mixed)
                        compare(products, o, &m, &endings[e]);
                }
    end(products);
    free(o);
}

/* ---- plans ---- */

static coh_matmul small(operands *o, coh_matmul_layout layout)
{
    coh_matmul m = make(o, layout, COH_DTYPE_BF16, COH_DTYPE_BF16, 7, 16, 8);
    m.c = o->c[0];
    return m;
}

static void a_form_is_planned_once_and_found_without_allocating(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_cuda_products *products = start();
    coh_cuda_products_facts facts;
    int done, has_run;
    for (int i = 0; i < 200; i++) { /* more plans than there is room for at first */
        coh_matmul m = small(o, COH_MATMUL_NT);
        m.c_stride = 16 + i;
        assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_OK);
        assert_false(has_run);
    }
    assert_int_equal(fake_lt.heuristics, 200);
    assert_int_equal(fake_lt.products, 0);
    const uint64_t allocations = alloc_count();
    const int objects = fake_lt.live_objects;
    for (int i = 0; i < 20; i++) {
        coh_matmul m = small(o, COH_MATMUL_NT);
        m.c_stride = 16 + i;
        m.a = o->b; /* other addresses, as they change from step to step */
        assert_int_equal(coh_cuda_products_run(products, o, &m, &done), COH_OK);
        assert_true(done);
        assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_OK);
        assert_true(has_run);
    }
    assert_int_equal(fake_lt.heuristics, 200);
    assert_int_equal(fake_lt.products, 20);
    assert_true(alloc_count() == allocations);
    assert_int_equal(fake_lt.live_objects, objects);
    assert_ptr_equal(fake_lt.stream, o);
    assert_ptr_equal(fake_lt.workspace, workspace);
    coh_cuda_products_facts_of(products, &facts);
    assert_int_equal(facts.plan_count, 200);
    assert_int_equal(facts.refused_count, 0);
    assert_string_equal(facts.device.name, "NVIDIA H200");
    end(products);
    free(o);
}

/* f32 is not rounded to TF32, and parts of a split sum are not rounded to bf16. */
static void sums_are_kept_in_f32(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_cuda_products *products = start();
    int has_run;
    coh_matmul m = small(o, COH_MATMUL_NN);
    assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_OK);
    assert_int_equal(fake_lt.compute_type, CUBLAS_COMPUTE_32F);
    assert_int_equal(fake_lt.scale_type, CUDA_R_32F);
    assert_int_equal(fake_lt.reduction_mask, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    assert_true(fake_lt.workspace_bytes == WORKSPACE_BYTES);
    assert_int_equal(fake_lt.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    m.dtype = m.c_dtype = COH_DTYPE_F32;
    assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_OK);
    assert_int_equal(fake_lt.compute_type, CUBLAS_COMPUTE_32F);
    end(products);
    free(o);
}

/* The heuristic gets the alignment that holds for every address, and a product at addresses of
 * another alignment gets another plan. */
static void the_library_is_told_how_addresses_are_aligned(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_cuda_products *products = start();
    int done;
    coh_matmul m = small(o, COH_MATMUL_NT);
    assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fake_lt.alignment[i], 256);
    m.a = o->a + 32;
    m.bias = o->bias + 128;
    assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
    assert_int_equal(fake_lt.heuristics, 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fake_lt.alignment[i], 32);
    m.a = o->a + 16 * 3; /* 16: the smallest alignment for which the library is asked */
    assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
    assert_true(done);
    m.a = o->a + 8;
    assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
    assert_false(done);
    assert_int_equal(fake_lt.heuristics, 3);
    end(products);
    free(o);
}

static void count_refused(void *context, const coh_product_form *form)
{
    *(int *)context += 1;
    assert_true(form->bias || form->dtype != form->c_dtype);
}

static void what_the_library_does_not_multiply_is_left_to_the_caller(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_cuda_products *products = start();
    coh_cuda_products_facts facts;
    int done = 1, refused = 0;
    coh_matmul m = small(o, COH_MATMUL_NT);
    fake_lt.refuses_bias = 1;
    m.bias = o->bias;
    for (int i = 0; i < 2; i++) { /* the library is asked once */
        assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
        assert_false(done);
    }
    assert_int_equal(fake_lt.heuristics, 1);
    m.c_dtype = COH_DTYPE_F32; /* a bias of another type than c: not asked */
    assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
    assert_false(done);
    m.bias = NULL;
    m.dtype = COH_DTYPE_F32; /* narrower than its operands: not asked */
    m.c_dtype = COH_DTYPE_BF16;
    assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
    assert_false(done);
    assert_int_equal(fake_lt.heuristics, 1);
    assert_int_equal(fake_lt.products, 0);
    coh_cuda_products_facts_of(products, &facts);
    assert_int_equal(facts.plan_count, 0);
    assert_int_equal(facts.refused_count, 3);
    coh_cuda_products_refused(products, count_refused, &refused);
    assert_int_equal(refused, 3);
    end(products);
    free(o);
}

/* ---- stored algorithms ---- */

static void store(const coh_matmul *m, int64_t version)
{
    coh_algorithm *line;
    assert_int_equal(COH_ALLOC(1, &line), COH_OK);
    *line = (coh_algorithm){
        .device = { .name = "NVIDIA H200", .multiprocessors = 132, .library_version = version },
        .form = coh_product_form_of(m)
    };
    for (int i = 0; i < COH_ALGORITHM_WORDS; i++)
        line->words[i] = 100 + (uint64_t)i;
    coh_algorithms_take(line, 1);
}

static void a_stored_algorithm_is_taken_on_its_device_and_version(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_matmul m = small(o, COH_MATMUL_TN);
    coh_cuda_products_facts facts;
    int done;
    for (int64_t version = 130100; version <= 130101; version++) {
        coh_cuda_products *products = start();
        store(&m, version);
        assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_OK);
        coh_cuda_products_facts_of(products, &facts);
        assert_int_equal(facts.stored_count, version == 130100);
        assert_int_equal(fake_lt.heuristics, version != 130100);
        for (int i = 0; i < COH_ALGORITHM_WORDS && version == 130100; i++)
            assert_true(fake_lt.algorithm_words[i] == 100 + (uint64_t)i);
        end(products);
    }
    free(o);
}

static void a_stored_algorithm_that_does_not_run_is_an_error(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_matmul m = small(o, COH_MATMUL_TN);
    static const char *const whys[] = { "ANOTHER_STATUS", "workspace", "not added in f32" };
    for (int i = 0; i < 3; i++) {
        coh_cuda_products *products = start();
        int done = 1;
        store(&m, 130100);
        fake_lt.refuses_checks = i == 0;
        fake_lt.check_workspace_bytes = i == 1 ? WORKSPACE_BYTES + 1 : 0;
        fake_lt.reduction_scheme = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
        assert_int_equal(coh_cuda_products_run(products, NULL, &m, &done), COH_ERR_DEVICE);
        assert_false(done);
        assert_non_null(strstr(coh_last_error(), "kernel table's algorithm for the product 7 x 16 "
                                                 "x 8 does not run on NVIDIA H200"));
        assert_non_null(strstr(coh_last_error(), whys[i]));
        assert_int_equal(fake_lt.heuristics, 0);
        end(products);
    }
    free(o);
}

/* ---- measured algorithms ---- */

/* Measures algorithms of these durations; returns the table's only line. */
static const coh_algorithm *measure(const uint64_t *cost_ns, int count)
{
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_matmul m = small(o, COH_MATMUL_NT);
    coh_cuda_products_facts facts;
    const int heuristics = fake_lt.heuristics;
    int32_t line_count;
    int done, has_run;
    m.bias = o->bias;
    fake_lt.algorithm_count = count;
    memcpy(fake_lt.cost_ns, cost_ns, (size_t)count * sizeof(*cost_ns));
    coh_algorithms_measure(1);
    coh_cuda_products *products = start();
    assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_OK);
    coh_cuda_products_facts_of(products, &facts);
    assert_int_equal(facts.stored_count, 1);
    if (fake_lt.heuristics > heuristics) /* it was timed, on the stream for timing */
        assert_ptr_equal(fake_lt.stream, workspace);
    assert_int_equal(coh_cuda_products_run(products, o, &m, &done), COH_OK);
    assert_true(done);
    const coh_algorithm *line = coh_algorithms_all(&line_count);
    const coh_product_form form = coh_product_form_of(&m);
    assert_int_equal(line_count, 1);
    assert_memory_equal(&line->form, &form, sizeof(form));
    assert_string_equal(line->device.name, "NVIDIA H200");
    assert_int_equal(line->device.library_version, 130100);
    assert_memory_equal(fake_lt.algorithm_words, line->words, sizeof(line->words));
    end(products);
    free(o);
    return line;
}

static void the_fastest_of_some_algorithms_is_stored(void **state)
{
    (void)state;
    const uint64_t costs[] = { 1000, 980, 400, 500 };
    const coh_algorithm *line = measure(costs, 4);
    assert_int_equal(line->words[6], 2);
    assert_true(line->microseconds > 0.3999 && line->microseconds < 0.4001);
    assert_int_equal(fake_lt.heuristics, 1);
    measure(costs, 4); /* the stored algorithm is found, and nothing is timed again */
    assert_int_equal(fake_lt.heuristics, 1);
}

static void a_little_faster_is_not_worth_other_bits(void **state)
{
    (void)state;
    const uint64_t costs[] = { 1000, 975, 1100 };
    assert_int_equal(measure(costs, 3)->words[6], 0);
}

static void an_algorithm_that_does_not_run_is_not_chosen(void **state)
{
    (void)state;
    const uint64_t costs[] = { 100, 500, 400, 10 };
    fake_lt.broken_algorithm = 1;
    assert_int_equal(measure(costs, 3)->words[6], 2);
    coh_algorithms_take(NULL, 0);
    fake_lt.broken_algorithm = 4;
    assert_int_equal(measure(costs, 4)->words[6], 0);
}

static void nothing_is_timed_unless_it_is_asked_for(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_cuda_products *products = start();
    coh_matmul m = small(o, COH_MATMUL_NT);
    int32_t line_count;
    int has_run;
    fake_lt.algorithm_count = 4;
    assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_OK);
    assert_int_equal(fake_lt.most, 1);
    assert_int_equal(fake_lt.products, 0);
    assert_null(coh_algorithms_all(&line_count));
    end(products);
    free(o);
}

static void a_measurement_that_fails_stores_nothing(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    coh_cuda_products *products = start();
    coh_matmul m = small(o, COH_MATMUL_NT);
    int32_t line_count;
    int has_run;
    coh_algorithms_measure(1);
    clock_fails = 1;
    assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_ERR_DEVICE);
    assert_string_equal(coh_last_error(), "the stream is gone");
    clock_fails = 0;
    fake_lt.broken_algorithm = 1; /* the only one */
    assert_int_equal(coh_cuda_products_prepare(products, &m, &has_run), COH_ERR_DEVICE);
    assert_non_null(strstr(coh_last_error(), "the measurement of the product 7 x 16 x 8"));
    assert_null(coh_algorithms_all(&line_count));
    end(products);
    free(o);
}

/* ---- failures ---- */

static coh_status run_one(operands *o, int with_table)
{
    coh_cuda_products *products = NULL;
    coh_matmul m = small(o, COH_MATMUL_NT);
    int done;
    m.bias = o->bias;
    if (with_table)
        store(&m, 130100);
    coh_status status = coh_cuda_products_create(&config, &products);
    if (status == COH_OK)
        status = coh_cuda_products_run(products, NULL, &m, &done);
    coh_cuda_products_destroy(products);
    return status;
}

static void every_failing_call_is_named_and_leaves_nothing(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    for (int with_table = 0; with_table < 2; with_table++)
        for (int n = 1;; n++) {
            fake_lt_reset();
            fake_lt.fail_nth = n;
            const coh_status status = run_one(o, with_table);
            assert_int_equal(fake_lt.live_objects, 0);
            if (!fake_lt.was_hit) {
                assert_int_equal(status, COH_OK);
                assert_true(n > 8);
                break;
            }
            assert_true(status == COH_ERR_DEVICE || status == COH_ERR_MEMORY);
            assert_non_null(strstr(coh_last_error(), "7 x 16 x 8") != NULL
                                ? coh_last_error()
                                : strstr(coh_last_error(), "cannot be started on NVIDIA H200"));
        }
    free(o);
}

static void every_failing_allocation_leaves_nothing(void **state)
{
    (void)state;
    operands *o = aligned_alloc(256, sizeof(*o));
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        const coh_status status = run_one(o, 0);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(fake_lt.live_objects, 0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        if (!was_hit)
            break;
    }
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_descriptors_say_what_the_product_says, reset),
        cmocka_unit_test_setup(a_form_is_planned_once_and_found_without_allocating, reset),
        cmocka_unit_test_setup(sums_are_kept_in_f32, reset),
        cmocka_unit_test_setup(the_library_is_told_how_addresses_are_aligned, reset),
        cmocka_unit_test_setup(what_the_library_does_not_multiply_is_left_to_the_caller, reset),
        cmocka_unit_test_setup(a_stored_algorithm_is_taken_on_its_device_and_version, reset),
        cmocka_unit_test_setup(a_stored_algorithm_that_does_not_run_is_an_error, reset),
        cmocka_unit_test_setup(the_fastest_of_some_algorithms_is_stored, reset),
        cmocka_unit_test_setup(a_little_faster_is_not_worth_other_bits, reset),
        cmocka_unit_test_setup(an_algorithm_that_does_not_run_is_not_chosen, reset),
        cmocka_unit_test_setup(nothing_is_timed_unless_it_is_asked_for, reset),
        cmocka_unit_test_setup(a_measurement_that_fails_stores_nothing, reset),
        cmocka_unit_test_setup(every_failing_call_is_named_and_leaves_nothing, reset),
        cmocka_unit_test_setup(every_failing_allocation_leaves_nothing, reset),
    };
    return cmocka_run_group_tests(tests, NULL, reset);
}
