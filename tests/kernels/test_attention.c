/* Attention on every instruction set and in both element types, compared with a naive double loop
 * over the inputs as stored.
 *
 * Bounds are derived: f32 rounds each operation by 2^-24 of its result; storing in bf16 rounds by
 * 2^-8, and so do weights that become operands of pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/rng.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/rows.h"
#include "tests/length.h"
#include "tests/reference/reference.h"

#define EPS      0x1p-24
#define BF16_EPS 0x1p-8

static const char *const isa_names[] = { "plain", "avx2", "avx512", "avx512bf16" };

typedef struct shape {
    const char *why;
    int64_t B, T, H, D;
    int64_t G;      /* heads of keys and values; 0: H */
    double dropped; /* share of the weights */
    int64_t window;
    float scale, cap;
    int64_t document; /* mean length of a row's documents; 0: it is one */
} shape;

static const shape shapes[] = {
    { "all ones", 1, 1, 1, 1 },
    { "two tokens", 2, 2, 3, 3 },
    { "one vector of queries but one, odd width", 1, 15, 2, 5 },
    { "one vector of queries", 1, 16, 2, 16 },
    { "a lane more", 2, 17, 1, 17 },
    { "below two vectors", 1, 31, 3, 31 },
    { "above two vectors", 1, 33, 1, 33 },
    { "a vector less than a block", 1, 63, 2, 64 },
    { "a block of queries, GPT-2's width", 2, 64, 3, 64 },
    { "a query more", 1, 65, 2, 64 },
    { "a block of keys but one, 48 wide", 1, 127, 2, 48 },
    { "a block of keys", 1, 128, 1, 64 },
    { "a key more, odd width", 1, 129, 2, 63 },
    { "blocks of 100 keys: neither block divides the other", 1, 211, 2, 80 },
    { "two blocks of keys and an odd rest", 2, 259, 1, 32 },
    { "many parts of one head", 1, 601, 1, 7 },
    { "widest blocks of full length", 1, 131, 1, 128 },
    { "shorter blocks", 1, 90, 2, 200 },
    { "the widest heads", 1, 70, 1, 512 },
    { "one part a head", 33, 5, 1, 9 },
    { "two heads share keys, odd width", 2, 37, 2, 5, 1 },
    { "three heads each, a block and a query, parts", 1, 129, 6, 20, 2 },
    { "one part a head and its dq on the stack, shared keys", 5, 33, 8, 16, 2 },
    { "one part a head of several blocks, shared keys", 2, 259, 16, 33, 4 },
    { "the widest heads share", 1, 40, 2, 512, 1 },
    { "dropout, one vector and a lane", 2, 17, 2, 5, 0, 0.4 },
    { "dropout, blocks of odd rest", 1, 211, 2, 80, 0, 0.1 },
    { "dropout, parts of a head, two blocks of keys", 1, 259, 1, 32, 0, 0.9 },
    { "dropout, one part a head and shared keys", 5, 33, 8, 16, 2, 0.2 },
    { "a window of one key", 1, 70, 1, 24, .window = 1 },
    { "a window below a vector", 2, 37, 2, 5, .window = 3 },
    { "a window of a block of keys, parts", 1, 601, 1, 32, .window = 128 },
    { "a window of a block and a key, shared keys", 1, 421, 4, 64, 2, .window = 129 },
    { "a window of one key less than the sequence", 1, 259, 2, 33, .window = 258 },
    { "a window below a block, one part a head, dropout", 2, 301, 16, 20, 4, 0.3, 75 },
    { "a window in short blocks", 1, 150, 1, 200, .window = 41 },
    { "capped scores", 1, 211, 2, 80, .cap = 1.5f },
    { "capped scores of another scale, parts", 1, 421, 1, 33, .scale = 0.75f, .cap = 5.0f },
    { "a cap, a window, dropout, shared keys", 2, 301, 8, 20, 4, 0.3, 75, 0.3f, 2.0f },
    { "a scale alone", 2, 65, 2, 16, 1, .scale = 0.1f },
    { "documents of a token", 2, 37, 2, 16, .document = 1 },
    { "documents within vectors", 2, 131, 2, 33, .document = 5 },
    { "documents, shared keys", 2, 259, 4, 24, 2, .document = 40 },
    { "documents of about a block, parts of a head", 1, 601, 1, 32, .document = 128 },
    { "documents longer than blocks, one part a head", 2, 421, 16, 20, 4, .document = 300 },
    { "documents in short blocks", 1, 150, 1, 200, .document = 30 },
    { "documents, a window, a cap, dropout", 2, 301, 8, 20, 4, 0.3, 75, 0.3f, 2.0f, 60 },
};
#define SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

TEST_ORACLE static float stored(coh_dtype dtype, const void *tensor, int64_t i)
{
    if (dtype == COH_DTYPE_F32)
        return ((const float *)tensor)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)tensor)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Normal values, truncated for bf16. */
static void *random_tensor(coh_dtype dtype, int64_t count, uint64_t stream)
{
    float *whole = calloc((size_t)count, sizeof(float));
    assert_non_null(whole);
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)coh_rng_normal(31, stream, (uint64_t)i);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)whole)[i] = (uint16_t)(bits >> 16);
        else
            whole[i] = value;
    }
    return whole;
}

/* q, k and v are adjacent in rows of `wide` elements, and so are their gradients. */
typedef struct problem {
    coh_attention a;
    void *qkv, *dqkv;
    void *before; /* initial dqkv when backward adds */
    int64_t wide, count, out_count, scratch_count;
    double dropped;
    double *y, *y_bound, *d, *d_bound; /* d: dqkv; the bounds exclude storing */
} problem;

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count, sizeof(double));
    assert_non_null(values);
    return values;
}

/* Returns where q (0), k (1) or v (2) begins in a row. */
static int64_t part_begin(const problem *p, int part)
{
    return part == 0 ? 0 : (p->a.H + (part - 1) * p->a.G) * p->a.D;
}

static void place_parts(problem *p)
{
    p->a.q_stride = p->a.kv_stride = p->wide;
    p->a.q = p->qkv;
    p->a.k = coh_element(p->a.dtype, p->qkv, part_begin(p, 1));
    p->a.v = coh_element(p->a.dtype, p->qkv, part_begin(p, 2));
    p->a.dq = p->dqkv;
    p->a.dk = coh_element(p->a.dtype, p->dqkv, part_begin(p, 1));
    p->a.dv = coh_element(p->a.dtype, p->dqkv, part_begin(p, 2));
}

/* Cuts each row into documents of 1 to 2 `mean` - 1 tokens. */
static int32_t *random_documents(int64_t B, int64_t T, int64_t mean)
{
    int32_t *positions = calloc((size_t)(B * T), sizeof(int32_t));
    assert_non_null(positions);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0, left = 0; i < T; i++, left--) {
            positions[b * T + i] = left > 0 ? positions[b * T + i - 1] + 1 : 0;
            if (left <= 0)
                left = 1 + (int64_t)(coh_rng_uniform(37, (uint64_t)b, (uint64_t)i) *
                                     (double)(2 * mean - 1));
        }
    return positions;
}

static const coh_random_cell random_cell = { .seed = 11, .step = 12 };

static void problem_create(problem *p, const shape *s, coh_dtype dtype)
{
    const int64_t G = s->G > 0 ? s->G : s->H;
    *p = (problem){ .wide = (s->H + 2 * G) * s->D, .out_count = s->B * s->T * s->H * s->D };
    p->count = s->B * s->T * p->wide;
    p->scratch_count = coh_kernel_attention_scratch(s->B, s->T, s->H, G, s->D);
    p->a = (coh_attention){ s->B, s->T, s->H, G, s->D, .dtype = dtype };
    p->a.window = s->window;
    p->a.scale = s->scale;
    p->a.cap = s->cap;
    if (s->document > 0)
        p->a.positions = random_documents(s->B, s->T, s->document);
    p->dropped = s->dropped;
    if (s->dropped > 0)
        p->a.drop = (coh_drop){ .cell = &random_cell,
                                .operator_index = 13,
                                .microbatch = 14,
                                .threshold = (uint32_t)(s->dropped * 0x1p32),
                                .scale = (float)(1.0 / (1.0 - s->dropped)) };
    p->a.first_head = 5;
    p->qkv = random_tensor(dtype, p->count, 1);
    p->a.dy = random_tensor(dtype, p->out_count, 2);
    p->before = random_tensor(dtype, p->count, 3);
    p->a.y = calloc((size_t)p->out_count, sizeof(float));
    p->dqkv = calloc((size_t)p->count, sizeof(float));
    p->a.lse = calloc((size_t)(s->B * s->H * s->T), sizeof(float));
    p->a.scratch = calloc((size_t)p->scratch_count, sizeof(float));
    assert_true(p->a.y && p->dqkv && p->a.lse && p->a.scratch);
    place_parts(p);
    p->y = doubles(p->out_count);
    p->y_bound = doubles(p->out_count);
    p->d = doubles(p->count);
    p->d_bound = doubles(p->count);
}

static void problem_destroy(problem *p)
{
    free(p->qkv);
    free((void *)p->a.dy);
    free((void *)p->a.positions);
    free(p->before);
    free(p->a.y);
    free(p->dqkv);
    free(p->a.lse);
    free(p->a.scratch);
    free(p->y);
    free(p->y_bound);
    free(p->d);
    free(p->d_bound);
}

/* ---- the naive loop ---- */

/* One query of one head; element d of token j's q, k or v is at place[part] + j * wide + d. */
typedef struct query {
    int64_t place[3], out, i;   /* out: begin in y's row */
    int64_t first;              /* key that it sees */
    double *p, *kept, *slope;   /* by key: the weight, its factor from dropout, that of the cap */
    double p_error, scale;      /* relative error of a weight as an operand */
    double weight_eps, out_eps; /* of operands; of stored values */
} query;

TEST_ORACLE static double qkv_at(const problem *p, const query *one, int64_t token, int part,
                                 int64_t d)
{
    return stored(p->a.dtype, p->qkv, one->place[part] + token * p->wide + d);
}

TEST_ORACLE static void weigh(const problem *p, query *one)
{
    double max = -INFINITY, sum = 0.0, size = 0.0;
    for (int64_t j = one->first; j <= one->i; j++) {
        double s = 0.0, terms = 0.0;
        for (int64_t d = 0; d < p->a.D; d++) {
            const double term = qkv_at(p, one, one->i, 0, d) * qkv_at(p, one, j, 1, d);
            s += term;
            terms += fabs(term);
        }
        one->p[j] = s * one->scale;
        one->slope[j] = 1.0;
        if (p->a.cap > 0) {
            const double tangent = tanh(one->p[j] / p->a.cap);
            one->p[j] = p->a.cap * tangent;
            one->slope[j] = 1.0 - tangent * tangent;
        }
        max = fmax(max, one->p[j]);
        size = fmax(size, terms * one->scale);
    }
    for (int64_t j = one->first; j <= one->i; j++)
        sum += one->p[j] = exp(one->p[j] - max);
    for (int64_t j = one->first; j <= one->i; j++)
        one->p[j] /= sum;
    /* a score is off by (D + 8) size eps, so is the log-sum-exp; the exponential by 3 eps, the sum
     * by its terms */
    one->p_error =
        EPS * (2.0 * (double)(p->a.D + 16) * size + (double)one->i + 32.0) + one->weight_eps;
    /* a cap is off by 8 eps of itself, and its slope by twice the error of score / cap */
    if (p->a.cap > 0)
        one->p_error +=
            EPS * (16.0 * p->a.cap + 4.0 * (double)(p->a.D + 8) * size / p->a.cap + 32.0);
}

TEST_ORACLE static void draw(const problem *p, query *one, int64_t head)
{
    const coh_call call = { .random_cell = &random_cell, .operator_index = 13, .microbatch = 14 };
    uint32_t stream[4];
    coh_reference_stream(&call, stream);
    for (int64_t j = one->first; j <= one->i; j++)
        one->kept[j] = coh_reference_kept(
            coh_reference_pair_word(stream, p->a.first_head + head, p->a.T, one->i, j), p->dropped);
}

TEST_ORACLE static void expect_y(problem *p, const query *one)
{
    for (int64_t d = 0; d < p->a.D; d++) {
        double y = 0.0, size = 0.0;
        for (int64_t j = one->first; j <= one->i; j++) {
            const double term = one->kept[j] * one->p[j] * qkv_at(p, one, j, 2, d);
            y += term;
            size += fabs(term);
        }
        p->y[one->out + d] = y;
        p->y_bound[one->out + d] =
            (one->p_error + EPS * (double)(one->i + 16)) * size * (1.0 + one->out_eps) +
            one->out_eps * fabs(y);
    }
}

TEST_ORACLE static void expect_gradients(problem *p, const query *one)
{
    const int64_t D = p->a.D, sum_terms = p->a.T * (p->a.H / p->a.G);
    double mean = 0.0, mean_error = 0.0, mean_size = 0.0;
    for (int64_t d = 0; d < D; d++) {
        const double dy = stored(p->a.dtype, p->a.dy, one->out + d);
        mean += dy * p->y[one->out + d];
        mean_size += fabs(dy * p->y[one->out + d]);
        mean_error += fabs(dy) * p->y_bound[one->out + d]; /* y as stored */
    }
    mean_error += EPS * (double)(D + 8) * mean_size;
    for (int64_t j = one->first; j <= one->i; j++) {
        double dp = 0.0, dp_size = 0.0;
        for (int64_t d = 0; d < D; d++) {
            const double term =
                one->kept[j] * stored(p->a.dtype, p->a.dy, one->out + d) * qkv_at(p, one, j, 2, d);
            dp += term;
            dp_size += fabs(term);
        }
        const double weight = one->p[j], ds = one->scale * weight * (dp - mean) * one->slope[j];
        const double sums = EPS * (double)(sum_terms + 16);
        const double ds_error =
            one->scale * weight *
                (EPS * (double)(D + 8) * dp_size + mean_error +
                 (2.0 * one->p_error + 8.0 * EPS) * (fabs(dp - mean) + mean_error)) +
            sums * fabs(ds);
        const int64_t q = one->place[0] + one->i * p->wide;
        const int64_t k = one->place[1] + j * p->wide, v = one->place[2] + j * p->wide;
        for (int64_t d = 0; d < D; d++) {
            const double dy = stored(p->a.dtype, p->a.dy, one->out + d);
            p->d[q + d] += ds * qkv_at(p, one, j, 1, d);
            p->d_bound[q + d] += ds_error * fabs(qkv_at(p, one, j, 1, d));
            p->d[k + d] += ds * qkv_at(p, one, one->i, 0, d);
            p->d_bound[k + d] += ds_error * fabs(qkv_at(p, one, one->i, 0, d));
            p->d[v + d] += one->kept[j] * weight * dy;
            p->d_bound[v + d] += (2.0 * one->p_error + sums) * one->kept[j] * weight * fabs(dy);
        }
    }
}

/* Returns the first key that token i of row b sees. */
TEST_ORACLE static int64_t first_key(const problem *p, int64_t b, int64_t i)
{
    int64_t first = i;
    while (first > 0 && (p->a.window <= 0 || i - first + 1 < p->a.window) &&
           (p->a.positions == NULL || p->a.positions[b * p->a.T + first] > 0))
        first--;
    return first;
}

TEST_ORACLE static void expect(problem *p, int pairs)
{
    const int64_t D = p->a.D, H = p->a.H, T = p->a.T;
    double *weights = doubles(3 * T);
    memset(p->d, 0, (size_t)p->count * sizeof(double));
    memset(p->d_bound, 0, (size_t)p->count * sizeof(double));
    for (int64_t head = 0; head < p->a.B * H; head++)
        for (int64_t i = 0; i < T; i++) {
            const int64_t b = head / H, h = head % H, row = b * T * p->wide;
            const int64_t shared = row + h / (H / p->a.G) * D;
            query one = { .place = { row + h * D, shared + part_begin(p, 1),
                                     shared + part_begin(p, 2) },
                          .out = ((b * T + i) * H + h) * D,
                          .i = i,
                          .first = first_key(p, b, i),
                          .p = weights,
                          .kept = weights + T,
                          .slope = weights + 2 * T,
                          .scale = p->a.scale > 0 ? p->a.scale : 1.0 / sqrt((double)D),
                          .weight_eps = pairs ? BF16_EPS : 0.0,
                          .out_eps = p->a.dtype == COH_DTYPE_BF16 ? BF16_EPS : EPS };
            weigh(p, &one);
            draw(p, &one, head);
            expect_y(p, &one);
            expect_gradients(p, &one);
        }
    free(weights);
}

/* ---- comparisons ---- */

TEST_ORACLE static void check(const problem *p, const char *isa, const char *what,
                              const double *value, const double *bound, const void *got,
                              int64_t count, const void *before)
{
    for (int64_t i = 0; i < count; i++) {
        const double start = before != NULL ? stored(p->a.dtype, before, i) : 0.0;
        const double out_eps = p->a.dtype == COH_DTYPE_BF16 ? BF16_EPS : EPS;
        const double most = bound[i] * (1.0 + out_eps) + 2.0 * EPS * fabs(value[i]) +
                            out_eps * fabs(start + value[i]);
        const double error = fabs(stored(p->a.dtype, got, i) - (start + value[i]));
        if (!(error <= most))
            fail_msg("%s, %s, T %d, H %d, G %d, D %d: %s[%d] is %.9g, should be %.9g: off by %.3g, "
                     "bound %.3g",
                     isa, p->a.dtype == COH_DTYPE_BF16 ? "bf16" : "f32", (int)p->a.T, (int)p->a.H,
                     (int)p->a.G, (int)p->a.D, what, (int)i, (double)stored(p->a.dtype, got, i),
                     start + value[i], error, most);
    }
}

static void run(const coh_attention_pieces *pieces, const coh_attention *a)
{
    const coh_attention_cut cut = coh_attention_cut_of(a);
    for (int64_t i = 0; i < a->B * a->H * cut.blocks; i++)
        pieces->forward(a, i);
    for (int64_t i = 0; i < a->B * a->H * cut.parts; i++)
        pieces->backward(a, i);
    for (int64_t i = 0; cut.parts > 1 && i < a->B * a->H * cut.blocks; i++)
        pieces->fold(a, i);
    for (int64_t i = 0; a->H > a->G && i < a->B * a->G * cut.key_blocks; i++)
        pieces->fold_group(a, i);
}

static size_t tensor_bytes(const problem *p, int64_t count)
{
    return (size_t)count * (p->a.dtype == COH_DTYPE_BF16 ? 2 : 4);
}

/* Fills outputs with NaN before, to show that all of them are written. Gradients are written and
 * added to, or with `only_adds` 0 or 1 only one of these. */
static void check_isa(problem *p, const char *isa, int only_adds)
{
    const coh_attention_pieces *pieces = coh_attention_pieces_of(isa, p->a.dtype);
    if (pieces == NULL)
        return;
    const int pairs = strcmp(isa, "avx512bf16") == 0;
    if (pairs || strcmp(isa, isa_names[0]) == 0) /* others share it */
        expect(p, pairs);
    for (int adds = 0; adds < 2; adds++) {
        if (only_adds == !adds)
            continue;
        p->a.dq_adds = p->a.dk_adds = p->a.dv_adds = adds;
        memset(p->a.y, 0xff, tensor_bytes(p, p->out_count));
        memset(p->a.scratch, 0xff, (size_t)p->scratch_count * sizeof(float));
        if (adds)
            memcpy(p->dqkv, p->before, tensor_bytes(p, p->count));
        else
            memset(p->dqkv, 0xff, tensor_bytes(p, p->count));
        run(pieces, &p->a);
        check(p, isa, "y", p->y, p->y_bound, p->a.y, p->out_count, NULL);
        check(p, isa, "dqkv", p->d, p->d_bound, p->dqkv, p->count, adds ? p->before : NULL);
    }
}

/* Checks on one thread: in short runs the thread sanitizer sees one shape in sixteen, another
 * sanitizer each shape in one dtype, with gradients that are either written or added to. */
static void check_dtype(coh_dtype dtype)
{
    for (int s = 0; s < SHAPES; s += test_seeks_races() ? 16 : 1) {
        if (test_is_brief() && !test_seeks_races() && s % 2 != (dtype == COH_DTYPE_BF16))
            continue;
        problem p;
        problem_create(&p, &shapes[s], dtype);
        for (int isa = 0; isa < 4; isa++)
            check_isa(&p, isa_names[isa], test_is_brief() ? (s / 2 + isa) % 2 : -1);
        problem_destroy(&p);
    }
}

static void f32_is_the_naive_loop_on_every_instruction_set(void **state)
{
    (void)state;
    check_dtype(COH_DTYPE_F32);
}

static void bf16_is_the_naive_loop_on_every_instruction_set(void **state)
{
    (void)state;
    check_dtype(COH_DTYPE_BF16);
}

/* Both fuse multiplication and addition, and add in the same order. */
static void avx2_and_avx512_agree_in_f32(void **state)
{
    (void)state;
    const coh_attention_pieces *narrow = coh_attention_pieces_of("avx2", COH_DTYPE_F32);
    const coh_attention_pieces *wide = coh_attention_pieces_of("avx512", COH_DTYPE_F32);
    if (narrow == NULL || wide == NULL)
        skip();
    if (test_is_brief()) /* check_dtype makes the same calls */
        return;
    for (int s = 0; s < SHAPES; s++) {
        problem p;
        problem_create(&p, &shapes[s], COH_DTYPE_F32);
        const size_t out_bytes = tensor_bytes(&p, p.out_count), bytes = tensor_bytes(&p, p.count);
        void *y = malloc(out_bytes), *dqkv = malloc(bytes);
        assert_true(y && dqkv);
        run(narrow, &p.a);
        memcpy(y, p.a.y, out_bytes);
        memcpy(dqkv, p.dqkv, bytes);
        run(wide, &p.a);
        assert_memory_equal(y, p.a.y, out_bytes);
        assert_memory_equal(dqkv, p.dqkv, bytes);
        free(y);
        free(dqkv);
        problem_destroy(&p);
    }
}

/* One head split into many parts, and many heads as one part each. In short runs a sanitizer sees
 * one thread and three, and without races each shape in one dtype. */
static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    static const shape cut[] = { { "parts", 1, 601, 1, 24 },
                                 { "heads", 4, 150, 9, 20 },
                                 { "shared keys", 2, 301, 6, 20, 2 },
                                 { "a window", 1, 601, 2, 24, 1, .window = 90 },
                                 { "documents", 2, 301, 2, 24, 1, .document = 90 } };
    for (int dtype = 0; dtype < 2; dtype++)
        for (int s = 0; s < 5; s++) {
            if (test_is_brief() && !test_seeks_races() && s % 2 != dtype)
                continue;
            problem p;
            problem_create(&p, &cut[s], dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32);
            const size_t out_bytes = tensor_bytes(&p, p.out_count);
            const size_t bytes = tensor_bytes(&p, p.count);
            void *y = malloc(out_bytes), *dqkv = malloc(bytes);
            assert_true(y && dqkv);
            for (int threads = 0; threads <= 3; threads += test_is_brief() ? 3 : 1) {
                coh_pool *pool = NULL;
                if (threads > 0)
                    assert_int_equal(coh_pool_create(threads, &pool), COH_OK);
                coh_kernel_attention(pool, &p.a);
                coh_kernel_attention_backward(pool, &p.a);
                coh_pool_destroy(pool);
                if (threads == 0) {
                    memcpy(y, p.a.y, out_bytes);
                    memcpy(dqkv, p.dqkv, bytes);
                }
                assert_memory_equal(y, p.a.y, out_bytes);
                assert_memory_equal(dqkv, p.dqkv, bytes);
            }
            free(y);
            free(dqkv);
            problem_destroy(&p);
        }
}

/* Each of dq, dk and dv may be omitted, and the others keep their bits. */
static void what_is_not_wanted_is_not_written(void **state)
{
    (void)state;
    static const shape cut[] = { { "", 1, 301, 2, 20 }, { "", 1, 301, 6, 20, 2 } };
    for (int s = 0; s < 2; s++) {
        problem whole;
        problem_create(&whole, &cut[s], COH_DTYPE_F32);
        coh_kernel_attention(NULL, &whole.a);
        coh_kernel_attention_backward(NULL, &whole.a);
        for (int left_out = 1; left_out < 8; left_out += test_is_brief() ? 3 : 1) {
            problem less;
            problem_create(&less, &cut[s], COH_DTYPE_F32);
            void **parts[] = { &less.a.dq, &less.a.dk, &less.a.dv };
            for (int part = 0; part < 3; part++)
                if ((left_out >> part & 1) != 0)
                    *parts[part] = NULL;
            coh_kernel_attention(NULL, &less.a);
            coh_kernel_attention_backward(NULL, &less.a);
            for (int64_t i = 0; i < whole.count; i++) {
                const int64_t at = i % whole.wide;
                const int part = (at >= part_begin(&whole, 1)) + (at >= part_begin(&whole, 2));
                const float expected =
                    (left_out >> part & 1) != 0 ? 0.0f : ((const float *)whole.dqkv)[i];
                assert_true(((const float *)less.dqkv)[i] == expected);
            }
            problem_destroy(&less);
        }
        problem_destroy(&whole);
    }
}

/* Replaces the tokens from `later` on: the earlier results keep their bits. */
static void later_tokens_change_no_bit_of_earlier_ones(void **state)
{
    (void)state;
    const shape two_blocks = { "", 1, 200, 2, 40 };
    const int64_t later = 141;
    if (test_is_brief()) /* check_dtype makes the same calls */
        return;
    for (int isa = 0; isa < 4; isa++)
        for (int dtype = 0; dtype < 2; dtype++) {
            problem p, other;
            problem_create(&p, &two_blocks, dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32);
            problem_create(&other, &two_blocks, dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32);
            const coh_attention_pieces *pieces = coh_attention_pieces_of(isa_names[isa], p.a.dtype);
            const size_t kept = tensor_bytes(&p, later * p.count / p.a.T);
            memcpy((char *)other.qkv + kept, (const char *)other.before + kept,
                   tensor_bytes(&p, p.count) - kept);
            if (pieces != NULL) {
                run(pieces, &p.a);
                run(pieces, &other.a);
                assert_memory_equal(p.a.y, other.a.y, kept / 3);
                assert_memory_not_equal(p.a.y, other.a.y, tensor_bytes(&p, p.out_count));
            }
            problem_destroy(&p);
            problem_destroy(&other);
        }
}

/* Sets one query (part 0) or key (part 1) to NaN with all bits set, as in freed memory: it reaches
 * every weight computed from it, and no other query's. */
static void check_nan(problem *p, const coh_attention_pieces *pieces, int64_t token, int part)
{
    const int64_t D = p->a.D, C = p->a.H * D; /* as many heads of keys */
    float *lse = malloc((size_t)(p->a.H * p->a.T) * sizeof(float));
    assert_non_null(lse);
    run(pieces, &p->a);
    memcpy(lse, p->a.lse, (size_t)(p->a.H * p->a.T) * sizeof(float));
    memset((char *)p->qkv + tensor_bytes(p, token * 3 * C + part * C + D / 2), 0xff,
           tensor_bytes(p, 1));
    run(pieces, &p->a);
    for (int64_t i = 0; i < p->a.T; i++) {
        const int breaks = part == 0 ? i == token : i >= token;
        for (int64_t d = 0; d < D; d++)
            assert_int_equal(isnan(stored(p->a.dtype, p->a.y, i * C + d)), breaks);
        assert_int_equal(isnan(p->a.lse[i]), breaks);
        assert_memory_equal(&p->a.lse[p->a.T + i], &lse[p->a.T + i], sizeof(float));
        if (breaks)
            assert_true(isnan(stored(p->a.dtype, p->dqkv, i * 3 * C)));
    }
    free(lse);
}

static void a_nan_stays_one(void **state)
{
    (void)state;
    static const shape odd = { "", 1, 150, 2, 20 };
    for (int isa = 0; isa < 4; isa++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (int part = 0; part < 2; part++) {
                problem p;
                problem_create(&p, &odd, dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32);
                const coh_attention_pieces *pieces =
                    coh_attention_pieces_of(isa_names[isa], p.a.dtype);
                if (pieces != NULL)
                    check_nan(&p, pieces, 37, part);
                problem_destroy(&p);
            }
}

/* Replaces the tokens before `later`: results of queries whose windows begin there keep their
 * bits. */
static void tokens_before_the_window_change_no_bit(void **state)
{
    (void)state;
    const shape two_blocks = { "", 1, 200, 2, 40, .window = 30 };
    const int64_t later = 101;
    if (test_is_brief()) /* check_dtype makes the same calls */
        return;
    for (int isa = 0; isa < 4; isa++)
        for (int dtype = 0; dtype < 2; dtype++) {
            problem p, other;
            problem_create(&p, &two_blocks, dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32);
            problem_create(&other, &two_blocks, dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32);
            const coh_attention_pieces *pieces = coh_attention_pieces_of(isa_names[isa], p.a.dtype);
            memcpy(other.qkv, other.before, tensor_bytes(&p, later * p.count / p.a.T));
            if (pieces != NULL) {
                const int64_t row = p.out_count / p.a.T, same = later + p.a.window - 1;
                run(pieces, &p.a);
                run(pieces, &other.a);
                assert_memory_equal((char *)p.a.y + tensor_bytes(&p, same * row),
                                    (char *)other.a.y + tensor_bytes(&p, same * row),
                                    tensor_bytes(&p, (p.a.T - same) * row));
                assert_memory_not_equal((char *)p.a.y + tensor_bytes(&p, (same - 1) * row),
                                        (char *)other.a.y + tensor_bytes(&p, (same - 1) * row),
                                        tensor_bytes(&p, row));
            }
            problem_destroy(&p);
            problem_destroy(&other);
        }
}

static void an_instruction_set_that_is_not_there_has_no_table(void **state)
{
    (void)state;
    assert_null(coh_attention_pieces_of("vax", COH_DTYPE_F32));
    assert_null(coh_attention_pieces_of("avx512bf16", COH_DTYPE_F32));
    assert_non_null(coh_attention_pieces_of("plain", COH_DTYPE_F32));
    assert_non_null(coh_attention_pieces_of("plain", COH_DTYPE_BF16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_is_the_naive_loop_on_every_instruction_set),
        cmocka_unit_test(bf16_is_the_naive_loop_on_every_instruction_set),
        cmocka_unit_test(avx2_and_avx512_agree_in_f32),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(what_is_not_wanted_is_not_written),
        cmocka_unit_test(later_tokens_change_no_bit_of_earlier_ones),
        cmocka_unit_test(tokens_before_the_window_change_no_bit),
        cmocka_unit_test(a_nan_stays_one),
        cmocka_unit_test(an_instruction_set_that_is_not_there_has_no_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
