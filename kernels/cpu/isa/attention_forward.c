/* The forward pass of attention for one block of queries of one head, with exponentials in base 2.
 * Compiled once per instruction set. Next: attention.h, block.h; kernels/cpu/attention.c calls
 * it. */
#include "kernels/cpu/isa/attention.h"

/* One block of queries passes over the blocks of keys that it sees, up to the diagonal, with a
 * running maximum and sum per query and y in f32 (Milakov and Gimelshein 2018, alg. 3; Dao et
 * al. 2022, alg. 1). */
/* A maximum below every score: finite, so that a query may see no key of its block's first tile. */
#define MAX_BEFORE -0x1p100f

typedef struct forward_block {
    head one;
    int64_t q0, rows, lanes; /* queries, rounded up to sixteen in `lanes` */
    int64_t k0, seen, keys;  /* keys of the tile, rounded up to four in `keys` */
    /* one value per query */
    int32_t first_keys[COH_ATTENTION_QUERIES]; /* with documents */
    float max[COH_ATTENTION_QUERIES];          /* of the scores before scaling */
    float sum[COH_ATTENTION_QUERIES], shrink[COH_ATTENTION_QUERIES];
    float y[COH_ATTENTION_WORDS];        /* [query][width] */
    float rows_of[COH_ATTENTION_WORDS];  /* rows of q, then of v */
    float q_across[COH_ATTENTION_WORDS]; /* [depth][query] */
    float k_rows[COH_ATTENTION_WORDS];   /* [key][words] */
    float v_deep[COH_ATTENTION_WORDS];   /* [key words][width] */
    float scores[COH_ATTENTION_SCORES];  /* [key][query] */
    float weights[COH_ATTENTION_SCORES]; /* [key words][query] */
} __attribute__((aligned(64))) forward_block;

/* scores = k q^T, twelve keys at a time, for the sixteens of queries that may see them. */
static void find_scores(forward_block *f)
{
    for (int64_t j = 0; j < f->keys; j += 12) {
        const int64_t at = f->k0 + j - f->q0, first = within(at, 0, f->lanes) / 16 * 16;
        const int64_t last = head_end_query(&f->one, f->k0 + j + 11) - f->q0;
        const int64_t end = block_round(within(last, 0, f->lanes), 16);
        if (end <= first)
            continue;
        const block_product product = { .rows = smaller(12, f->keys - j),
                                        .columns = end - first,
                                        .depth = f->one.depth,
                                        .a = f->k_rows + j * f->one.words,
                                        .a_row = f->one.words,
                                        .a_depth = 1,
                                        .b = f->q_across + first,
                                        .b_stride = f->one.queries,
                                        .c = f->scores + j * f->one.queries + first,
                                        .c_stride = f->one.queries };
        block_multiply(&product);
        head_cap(&f->one, f->scores + j * f->one.queries, product.rows, first, end);
    }
}

LANES_INLINE vector score_at(const forward_block *f, int64_t j, int64_t c)
{
    return vector_load(f->scores + j * f->one.queries + c);
}

/* Returns `a` for the queries from c on that may see key j of the tile, `other` for the others. */
LANES_INLINE vector where_seen(const forward_block *f, int64_t j, int64_t c, vector a, float other)
{
    return j < f->seen ? head_seen(&f->one, f->first_keys + c, f->q0 + c, f->k0 + j, a, other)
                       : vector_all(other);
}

/* Stores the words of a pair of keys, or of one. */
LANES_INLINE void store_weights(forward_block *f, int64_t j, int64_t c, const vector *p)
{
    float *to = f->weights + j / WORD_ELEMENTS * f->one.queries + c;
#if WORD_ELEMENTS == 2
    vector_store(to, vector_pair(p[0], p[1]));
#else
    vector_store(to, p[0]);
#endif
}

/* The keys of the tile that the queries of one vector see: some of them keys from `begin` to
 * `end`, all of them keys from `whole` to `whole_end`. `begin` and `whole` are at whole words. */
typedef struct keys_seen {
    int64_t begin, whole, whole_end, end;
} keys_seen;

LANES_INLINE keys_seen keys_seen_of(const forward_block *f, int64_t c)
{
    const int64_t i = f->q0 + c, last = i + COH_VECTOR_FLOATS - 1;
    keys_seen of = { .whole_end = within(i + 1 - f->k0, 0, f->seen),
                     .end = within(last + 1 - f->k0, 0, f->seen) };
    of.begin = within(head_first_key(&f->one, i) - f->k0, 0, of.end) / WORD_ELEMENTS;
    of.begin *= WORD_ELEMENTS;
    of.whole = within(head_first_key(&f->one, last) - f->k0, 0, f->keys);
    of.whole = block_round(of.whole, WORD_ELEMENTS);
    return of;
}

LANES_INLINE vector largest_score(const forward_block *f, int64_t c, keys_seen of)
{
    vector max = vector_load(f->max + c), other = max;
    int64_t j = of.begin;
    for (; j < smaller(of.whole, of.end); j++)
        max = vector_larger(max, where_seen(f, j, c, score_at(f, j, c), -INFINITY));
    for (; j + 2 <= of.whole_end; j += 2) {
        max = vector_larger(max, score_at(f, j, c));
        other = vector_larger(other, score_at(f, j + 1, c));
    }
    for (; j < of.end; j++)
        max = vector_larger(max, where_seen(f, j, c, score_at(f, j, c), -INFINITY));
    return vector_larger(max, other);
}

/* Stores the weights of keys [*j, end), in whole words, and moves *j there; returns `sum` and them.
 * `masked`: some of these queries may not see some of these keys. */
LANES_INLINE vector weigh_keys(forward_block *f, int64_t c, int64_t *j, int64_t end, int masked,
                               vector scale, vector shift, vector sum)
{
    vector p[WORD_ELEMENTS];
    for (; *j < end; *j += WORD_ELEMENTS) {
        for (int e = 0; e < WORD_ELEMENTS; e++) {
            p[e] = vector_exp2(vector_multiply_add(score_at(f, *j + e, c), scale, shift));
            if (masked)
                p[e] = where_seen(f, *j + e, c, p[e], 0.0f);
            sum += p[e];
        }
        store_weights(f, *j, c, p);
    }
    return sum;
}

/* Softmax of the queries in one vector from c on. */
static void weigh_lanes(forward_block *f, int64_t c, keys_seen of)
{
    const vector scale = vector_all(f->one.scale * LOG2_E), old_max = vector_load(f->max + c);
    const vector max = largest_score(f, c, of);
    const vector shift = vector_all(0.0f) - max * scale;
    /* rounded as `shift` was, so that it is 1 if the maximum is unchanged */
    const vector shrink = vector_exp2(old_max * scale + shift);
    vector sum = vector_load(f->sum + c) * shrink;
    int64_t j = of.begin;
    sum = weigh_keys(f, c, &j, smaller(of.whole, of.end), 1, scale, shift, sum);
    sum = weigh_keys(f, c, &j, of.whole_end / WORD_ELEMENTS * WORD_ELEMENTS, 0, scale, shift, sum);
    sum = weigh_keys(f, c, &j, of.end, 1, scale, shift, sum);
    vector_store(f->max + c, max);
    vector_store(f->sum + c, sum);
    vector_store(f->shrink + c, shrink);
}

/* Computes the weights of all lanes and keys of the tile; zeros where a query may not see a key. */
static void find_weights(forward_block *f)
{
    for (int64_t c = 0; c < f->lanes; c += COH_VECTOR_FLOATS) {
        const keys_seen of = keys_seen_of(f, c);
        if (of.begin < of.end)
            weigh_lanes(f, c, of);
        else
            vector_store(f->shrink + c, vector_all(1.0f));
        const int64_t end = (of.end + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
        for (int64_t j = 0; j < of.begin / WORD_ELEMENTS; j++)
            vector_store(f->weights + j * f->one.queries + c, vector_all(0.0f));
        for (int64_t j = end; j < f->keys / WORD_ELEMENTS; j++)
            vector_store(f->weights + j * f->one.queries + c, vector_all(0.0f));
    }
}

/* Replaces dropped weights by zeros; the sums of the softmax still include them. */
static void drop_weights(forward_block *f)
{
    for (int64_t j = 0; j < f->keys; j += 4) {
        const int64_t first = within(f->k0 + j - f->q0, 0, f->lanes) / 16 * 16;
        for (int64_t c = first; c < f->lanes; c += COH_VECTOR_FLOATS) {
            vector_bits kept[4];
            head_kept(&f->one, f->k0 + j, f->q0 + c, kept);
            for (int w = 0; w < 4 / WORD_ELEMENTS; w++) {
                float *row = f->weights + (j / WORD_ELEMENTS + w) * f->one.queries + c;
                vector_bits mask = kept[w * WORD_ELEMENTS];
                if (WORD_ELEMENTS == 2)
                    mask = (mask & 0xffffu) | (kept[2 * w + 1] & 0xffff0000u);
                vector_store(row, (vector)(mask & (vector_bits)vector_load(row)));
            }
        }
    }
}

/* y = shrink * y + weights v, twelve queries at a time, over the keys that they see. */
static void gather(forward_block *f, const float *v_deep)
{
    for (int64_t r = 0; r < f->rows; r += 12) {
        const int64_t rows = smaller(12, f->rows - r);
        const int64_t seen = smaller(f->q0 + r + rows - f->k0, f->seen);
        const int64_t begin = within(head_first_key(&f->one, f->q0 + r) - f->k0, 0, f->keys);
        if (seen <= begin)
            continue;
        const int64_t first = begin / WORD_ELEMENTS;
        const block_product product = {
            .rows = rows,
            .columns = f->one.width,
            .depth = block_round(seen, WORD_ELEMENTS) / WORD_ELEMENTS - first,
            .a = f->weights + first * f->one.queries + r,
            .a_row = 1,
            .a_depth = f->one.queries,
            .b = v_deep + first * f->one.width,
            .b_stride = f->one.width,
            .c = f->y + r * f->one.width,
            .c_stride = f->one.width,
            .into = f->k0 == 0 && !f->one.is_band ? BLOCK_SET : BLOCK_SHRINK,
            .factors = f->shrink + r
        };
        block_multiply(&product);
    }
}

static void finish(const forward_block *f)
{
    const head *one = &f->one;
    for (int64_t r = 0; r < f->rows; r++) {
        const int64_t i = f->q0 + r;
        block_put(one->dtype, coh_element(one->dtype, one->y, i * one->y_stride),
                  f->y + r * one->width, one->kept / f->sum[r], one->D, 0);
        one->lse[i] = f->max[r] * one->scale + logf(f->sum[r]);
    }
}

void attention_forward(const coh_attention *attention, int64_t index)
{
    forward_block f;
    const coh_attention_cut cut = coh_attention_cut_of(attention);
    const int64_t queries = cut.queries;
    f.one = head_at(attention, index / cut.blocks);
    f.q0 = index % cut.blocks * queries;
    f.rows = smaller(queries, f.one.T - f.q0);
    f.lanes = block_round(f.rows, 16);
    head_first_keys(&f.one, f.first_keys, f.q0, f.lanes);
    for (int64_t r = 0; r < f.lanes; r++) {
        f.max[r] = f.one.is_band ? MAX_BEFORE : -INFINITY;
        f.sum[r] = 0.0f;
    }
    if (f.one.is_band) /* not all queries see the first tile */
        memset(f.y, 0, (size_t)(f.lanes * f.one.width) * sizeof(float));
    head_rows(&f.one, f.rows_of, f.lanes, f.one.q, f.one.q_stride, f.q0, f.rows);
    block_across(f.q_across, queries, f.rows_of, f.lanes, f.one.words);
    for (f.k0 = head_first_key(&f.one, f.q0) / f.one.keys * f.one.keys; f.k0 < f.q0 + f.rows;
         f.k0 += f.one.keys) {
        f.seen = smaller(f.one.keys, f.q0 + f.rows - f.k0);
        f.keys = block_round(f.seen, 4);
        head_rows(&f.one, f.k_rows, f.keys, f.one.k, f.one.kv_stride, f.k0, f.seen);
        find_scores(&f);
        find_weights(&f);
        if (attention->drop.threshold > 0)
            drop_weights(&f);
        head_rows(&f.one, f.rows_of, f.keys, f.one.v, f.one.kv_stride, f.k0, f.seen);
        gather(&f, block_deep(f.v_deep, f.rows_of, f.keys, f.one.words, f.one.width));
    }
    finish(&f);
}

const coh_attention_pieces COH_ISA_EXPAND(coh_attention, COH_ISA) = {
    .forward = attention_forward,
    .backward = attention_backward,
    .fold = attention_fold,
    .fold_group = attention_group,
};
