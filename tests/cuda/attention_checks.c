#include "tests/cuda/attention_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/kernels.h"
#include "tests/cuda/attention_cases.h"
#include "tests/reference/reference.h"

enum { INPUTS = COH_REFERENCE_INPUTS };

static void finish(const attention_bench *bench, int queue)
{
    if (bench->finish != NULL)
        bench->finish(bench->queues[queue]);
}

/* ---- a case that the queues reach, with its expected results ---- */

typedef struct checked {
    const attention_bench *bench;
    const attention_shape *shape;
    attention_attributes attributes;
    coh_case one;
    coh_reference expected;
    unsigned char *guard; /* follows the scratch that the planner provides on CUDA */
} checked;

enum { GUARD = 0x5a, GUARD_BYTES = 256 };

static void *take(const checked *c, size_t bytes)
{
    const size_t whole = (size_t)coh_bytes_round_page(bytes);
    void *memory = aligned_alloc(COH_PAGE_BYTES, whole);
    assert_non_null(memory);
    memset(memory, 0xff, whole);
    if (c->bench->share != NULL)
        c->bench->share(memory, whole);
    return memory;
}

static void give_back(const checked *c, void *memory)
{
    if (c->bench->unshare != NULL)
        c->bench->unshare(memory);
    free(memory);
}

static void open_case(checked *c, const attention_bench *bench, const attention_shape *shape)
{
    *c = (checked){ .bench = bench, .shape = shape };
    coh_case *one = &c->one;
    coh_shape inputs[INPUTS];
    attention_case_create(one, shape, bench->atomics, &c->attributes);
    coh_reference_create(&c->expected, one);
    coh_reference_forward(&c->expected);
    coh_reference_backward(&c->expected);
    for (int i = 0; bench->share != NULL && i < one->block_count; i++)
        bench->share(one->blocks[i], one->block_bytes[i]);
    for (int i = 0; i < INPUTS; i++)
        inputs[i] = one->call.input[i].shape;
    const size_t scratch =
        one->kind->devices[COH_DEVICE_CUDA].workspace(one->attributes, inputs, COH_PHASE_BACKWARD);
    one->facts.workspace_bytes[COH_PHASE_BACKWARD] = scratch;
    one->call.workspace = take(c, scratch + GUARD_BYTES);
    c->guard = memset((char *)one->call.workspace + scratch, GUARD, GUARD_BYTES);
}

static void close_case(checked *c)
{
    for (int i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(c->guard[i], GUARD);
    give_back(c, c->one.call.workspace);
    for (int i = 0; c->bench->unshare != NULL && i < c->one.block_count; i++)
        c->bench->unshare(c->one.blocks[i]);
    coh_reference_destroy(&c->expected);
    coh_case_destroy(&c->one);
}

static size_t bytes_of(const coh_view *view)
{
    return (size_t)coh_shape_elements(&view->shape) * coh_dtype_bytes(view->shape.dtype);
}

static void must_agree(const checked *c, const char *what, const coh_array *expected,
                       const coh_view *got, const double *before)
{
    if (expected->count > 0 && !coh_reference_agrees(what, expected, got, before))
        fail_msg("%s", c->shape->why);
}

static void check_gradients(const checked *c, double *const before[INPUTS])
{
    static const char *const names[INPUTS] = { "dq or dqkv", "dk", "dv", "positions" };
    for (int i = 0; i < INPUTS; i++)
        must_agree(c, names[i], &c->expected.input_grad[i], &c->one.call.input_grad[i],
                   before != NULL ? before[i] : NULL);
}

static void hash_bytes(void *context, const char *name, const void *data, size_t count)
{
    uint64_t *hash = context;
    (void)name;
    for (size_t i = 0; i < count; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

/* Runs forward and backward; returns the results' hash. */
static uint64_t run(checked *c, int queue)
{
    uint64_t hash = 0xcbf29ce484222325u;
    assert_int_equal(coh_case_forward(&c->one, c->bench->queues[queue]), COH_OK);
    finish(c->bench, queue);
    assert_int_equal(coh_case_backward(&c->one, c->bench->queues[queue]), COH_OK);
    finish(c->bench, queue);
    coh_case_results(&c->one, hash_bytes, &hash);
    return hash;
}

/* ---- claims ---- */

/* Returns shape i; if brief, with at most one block of 64 queries and one or two more, keeping the
 * parity of T. */
static attention_shape shape_at(const attention_bench *bench, int i)
{
    attention_shape shape = attention_shapes[i];
    if (bench->is_brief && shape.T > 66)
        shape.T = 66 - shape.T % 2;
    return shape;
}

void attention_check_shape(const attention_bench *bench, const attention_shape *shape)
{
    checked c;
    open_case(&c, bench, shape);
    const uint64_t hash = run(&c, 0);
    must_agree(&c, "y", &c.expected.output, &c.one.call.output[0], NULL);
    check_gradients(&c, NULL);
    if (run(&c, 1) != hash && !bench->atomics)
        fail_msg("%s: other bits the second time", shape->why);
    check_gradients(&c, NULL);
    close_case(&c);
}

void attention_check_shapes(const attention_bench *bench)
{
    for (int i = 0; i < ATTENTION_SHAPES; i++) {
        const attention_shape shape = shape_at(bench, i);
        attention_check_shape(bench, &shape);
    }
}

void attention_check_added(const attention_bench *bench, const attention_shape *shape)
{
    checked c;
    double *before[INPUTS];
    open_case(&c, bench, shape);
    (void)run(&c, 0);
    for (int input = 0; input < INPUTS; input++)
        before[input] = coh_doubles_of(&c.one.call.input_grad[input]);
    c.one.call.input_grad_adds = 7;
    assert_int_equal(coh_case_backward(&c.one, bench->queues[1]), COH_OK);
    finish(bench, 1);
    check_gradients(&c, before);
    for (int input = 0; input < INPUTS; input++)
        free(before[input]);
    close_case(&c);
}

void attention_check_adding(const attention_bench *bench)
{
    for (int i = 0; i < ATTENTION_SHAPES; i++) {
        const attention_shape shape = shape_at(bench, i);
        attention_check_added(bench, &shape);
    }
}

/* Writes dq over dy, then y over q. */
static void check_in_place(checked *c)
{
    coh_call *call = &c->one.call, other = c->one.call;
    const size_t bytes = bytes_of(&call->output[0]);
    void *place = take(c, bytes);
    other.queue = c->bench->queues[1];
    memcpy(place, call->output_grad[0].data, bytes);
    other.output_grad[0].data = other.input_grad[0].data = place;
    assert_int_equal(c->one.kind->devices[COH_DEVICE_CUDA].backward(&other), COH_OK);
    finish(c->bench, 1);
    must_agree(c, "dq in dy's place", &c->expected.input_grad[0], &other.input_grad[0], NULL);
    memcpy(place, call->input[0].data, bytes);
    other.input[0].data = other.output[0].data = place;
    assert_int_equal(c->one.kind->devices[COH_DEVICE_CUDA].forward(&other), COH_OK);
    finish(c->bench, 1);
    must_agree(c, "y in q's place", &c->expected.output, &other.output[0], NULL);
    give_back(c, place);
}

void attention_check_place(const attention_bench *bench, const attention_shape *shape)
{
    checked c;
    open_case(&c, bench, shape);
    (void)run(&c, 0);
    check_in_place(&c);
    for (int left = 0; left < INPUTS; left++) {
        coh_call call = c.one.call;
        call.queue = bench->queues[1];
        for (int input = 0; input < INPUTS; input++)
            if (input != left)
                call.input_grad[input].data = NULL;
        memset(call.input_grad[left].data, 0xff, bytes_of(&call.input_grad[left]));
        assert_int_equal(c.one.kind->devices[COH_DEVICE_CUDA].backward(&call), COH_OK);
        finish(bench, 1);
        must_agree(&c, "a gradient alone", &c.expected.input_grad[left], &call.input_grad[left],
                   NULL);
    }
    close_case(&c);
}

void attention_check_places(const attention_bench *bench)
{
    for (int i = 0; i < ATTENTION_SHAPES; i++) {
        const attention_shape shape = shape_at(bench, i);
        if (shape.G != shape.H || attention_is_shaped(&shape))
            attention_check_place(bench, &shape);
    }
}

static const attention_shape decoded[] = {
    { "f32, odd width", COH_DTYPE_F32, 2, 9, 6, 2, 33, 0 },
    { "bf16, the widest", COH_DTYPE_BF16, 1, 6, 2, 1, 512, 0 },
    { "two parts of keys", COH_DTYPE_F32, 1, 2 * COH_CUDA_DECODE_KEYS, 2, 1, 8, 0 },
    { "three, of heads that share", COH_DTYPE_BF16, 2, 2 * COH_CUDA_DECODE_KEYS + 2, 2, 1, 5, 0 },
    { "a window of a key", COH_DTYPE_F32, 1, 9, 2, 1, 33, 0, { 1 } },
    { "a window from the second of three parts on",
      COH_DTYPE_F32,
      1,
      2 * COH_CUDA_DECODE_KEYS + 2,
      2,
      1,
      8,
      0,
      { COH_CUDA_DECODE_KEYS } },
    { "capped, another scale", COH_DTYPE_BF16, 1, 9, 2, 1, 40, 0, { 0, 0.3f, 1.5f } },
};

static void *element_at(const checked *c, const void *tensor, int64_t index)
{
    return (char *)(uintptr_t)tensor + (size_t)index * coh_dtype_bytes(c->shape->dtype);
}

/* What a decoder of `rows` rows works on: inputs and y are [B,rows,..]. */
typedef struct decoder {
    int32_t rows, *position;
    void *in[3], *keys, *values, *y;
    float *scratch;
} decoder;

/* Copies the rows from t on, as many as there are, between a step's tensor and the whole one. */
static void move_rows(const checked *c, const coh_view *whole, void *step, int32_t rows, int32_t t,
                      int takes)
{
    const attention_shape *s = c->shape;
    const int64_t width = whole->shape.dim[2], count = s->T - t < rows ? s->T - t : rows;
    const size_t bytes = (size_t)(count * width) * coh_dtype_bytes(s->dtype);
    for (int64_t b = 0; b < s->B; b++) {
        void *far = element_at(c, whole->data, (b * s->T + t) * width);
        void *near = element_at(c, step, b * rows * width);
        memcpy(takes ? near : far, takes ? far : near, bytes);
    }
}

/* Computes rows from t on of each sequence of y by one step of a decoder. Its rows after the last
 * are padding. */
static void decode_step(const checked *c, const decoder *d, int32_t t)
{
    const attention_shape *s = c->shape;
    const coh_call *call = &c->one.call;
    *d->position = t;
    for (int i = 0; i < 3; i++)
        move_rows(c, &call->input[i], d->in[i], d->rows, t, 1);
    const coh_attention_decode step = {
        .B = s->B,
        .T = d->rows,
        .H = s->H,
        .G = s->G,
        .D = s->D,
        .positions = s->T,
        .window = s->scores.window,
        .scale = s->scores.scale,
        .cap = s->scores.cap,
        .position = d->position,
        .dtype = s->dtype,
        .q_stride = s->H * s->D,
        .kv_stride = s->G * s->D,
        .q = d->in[0],
        .k = d->in[1],
        .v = d->in[2],
        .keys = d->keys,
        .values = d->values,
        .y = d->y,
        .scratch = d->scratch,
    };
    coh_kernel_attention_decode(c->bench->queues[0], &step);
    finish(c->bench, 0);
    move_rows(c, &call->output[0], d->y, d->rows, t, 0);
}

/* Fills the cache rows that are not decoded with the host's whole-sequence attention: for long
 * sequences, all rows except the last three. Returns the first decoded row. */
static int32_t fill_cache(const checked *c, void *keys, void *values)
{
    const attention_shape *s = c->shape;
    const coh_call *call = &c->one.call;
    const int32_t first = s->T < 64 ? 0 : (int32_t)s->T - 3;
    const size_t row = (size_t)(s->G * s->D) * coh_dtype_bytes(s->dtype);
    coh_call host = *call;
    host.queue = NULL;
    if (first > 0)
        assert_int_equal(c->one.kind->devices[COH_DEVICE_HOST].forward(&host), COH_OK);
    for (int64_t b = 0; b < s->B; b++) {
        const int64_t at = b * s->T * s->G * s->D;
        memcpy(element_at(c, keys, at), element_at(c, call->input[1].data, at),
               (size_t)first * row);
        memcpy(element_at(c, values, at), element_at(c, call->input[2].data, at),
               (size_t)first * row);
    }
    return first;
}

static size_t step_bytes(const checked *c, const coh_view *whole, int32_t rows)
{
    return bytes_of(whole) / (size_t)c->shape->T * (size_t)rows;
}

static decoder open_decoder(checked *c, int32_t rows)
{
    const coh_call *call = &c->one.call;
    const attention_shape *s = c->shape;
    const size_t scratch = coh_cuda_decode_bytes(s->B * s->H, rows, s->D, s->T);
    decoder d = { .rows = rows, .position = take(c, sizeof(*d.position)) };
    for (int i = 0; i < 3; i++) {
        const size_t bytes = step_bytes(c, &call->input[i], rows);
        d.in[i] = take(c, bytes);
        memset(d.in[i], 0, bytes);
    }
    d.keys = take(c, bytes_of(&call->input[1]));
    d.values = take(c, bytes_of(&call->input[2]));
    d.y = take(c, step_bytes(c, &call->output[0], rows));
    d.scratch = scratch > 0 ? take(c, scratch) : NULL;
    return d;
}

static void close_decoder(checked *c, decoder *d)
{
    give_back(c, d->position);
    for (int i = 0; i < 3; i++)
        give_back(c, d->in[i]);
    give_back(c, d->keys);
    give_back(c, d->values);
    give_back(c, d->y);
    if (d->scratch != NULL)
        give_back(c, d->scratch);
}

void attention_check_decoder(const attention_bench *bench)
{
    static const int32_t rows[] = { 1, 2, 5 };
    for (size_t i = 0; i < 3 * sizeof(decoded) / sizeof(decoded[0]); i++) {
        checked c;
        open_case(&c, bench, &decoded[i / 3]);
        const coh_call *call = &c.one.call;
        const size_t bytes = bytes_of(&call->input[1]);
        decoder d = open_decoder(&c, rows[i % 3]);
        for (int32_t t = fill_cache(&c, d.keys, d.values); t < c.shape->T; t += d.rows)
            decode_step(&c, &d, t);
        must_agree(&c, "y", &c.expected.output, &call->output[0], NULL);
        assert_memory_equal(d.keys, call->input[1].data, bytes);
        assert_memory_equal(d.values, call->input[2].data, bytes);
        close_decoder(&c, &d);
        close_case(&c);
    }
}
