/* The backward pass of attention for one part of one head. Scores are computed again from q, k and
 * lse, so forward need not store weights. Next: attention.h, block.h; kernels/cpu/attention.c cuts
 * the heads. */
#include "kernels/cpu/isa/attention.h"

/* With D_i = dy_i . y_i (Dao et al. 2022, section B.4):
 *  p_ij = exp(s_ij - lse_i);  ds_ij = p_ij (dy_i . v_j - D_i);
 *  dv_j = sum_i p_ij dy_i;  dk_j = sum_i ds_ij q_i / sqrt(D);  dq_i = sum_j ds_ij k_j / sqrt(D).
 *
 * With a cap, s_ij = cap t_ij, t_ij = tanh(q_i . k_j scale / cap), and ds_ij has the factor 1 -
 * t_ij^2. With dropout, m_ij is 0 or 1 / (1 - probability), dv_j = sum_i m_ij p_ij dy_i and ds_ij =
 * p_ij (m_ij dy_i . v_j - D_i); D_i is still dy_i . y_i.
 *
 * A piece takes blocks of keys in turn; each passes over the blocks of queries that see them,
 * from the diagonal on. dk and dv of the block stay in cache. dq of the head is summed in f32 in
 * scratch, and so are dk and dv if other heads share the keys. */

#define STRIP 12 /* keys whose scores are held at a time */

typedef struct backward_block {
    head one;
    const coh_attention *attention;
    float *dq;                    /* [query][width]: sum of this part */
    float *shared_dk, *shared_dv; /* [key][width]; NULL: no other head shares the keys */
    float *mean_gradients;        /* D_i [query] */
    int64_t part_k0;              /* first key of the part */
    int64_t k0, seen, keys;       /* keys of the block, rounded up to four in `keys` */
    int64_t q0, rows, lanes;      /* queries of the tile, rounded up to sixteen in `lanes` */
    int64_t first, end;           /* queries of the tile that may see the strip, in sixteens */
    int32_t first_keys[COH_ATTENTION_QUERIES];              /* with documents */
    float lse[COH_ATTENTION_QUERIES];                       /* in base 2 */
    float scores[STRIP * COH_ATTENTION_QUERIES];            /* [key][query] */
    float gradients[STRIP * COH_ATTENTION_QUERIES];         /* dy v^T, [key][query] */
    uint32_t kept[STRIP * COH_ATTENTION_QUERIES];           /* masks of weights, [key][query] */
    float dq_here[COH_ATTENTION_WORDS];                     /* dq of heads that fit */
    float dk[COH_ATTENTION_WORDS], dv[COH_ATTENTION_WORDS]; /* [key][width] */
    float k_rows[COH_ATTENTION_WORDS], v_rows[COH_ATTENTION_WORDS];
    float q_rows[COH_ATTENTION_WORDS], dy_rows[COH_ATTENTION_WORDS], y_rows[COH_ATTENTION_WORDS];
    float q_across[COH_ATTENTION_WORDS], dy_across[COH_ATTENTION_WORDS];
    float k_pairs[COH_ATTENTION_WORDS], q_pairs[COH_ATTENTION_WORDS], dy_pairs[COH_ATTENTION_WORDS];
    const float *k_deep, *q_deep, *dy_deep;
    float p_rows[COH_ATTENTION_SCORES], ds_rows[COH_ATTENTION_SCORES]; /* [key][query words] */
    float ds_pairs[COH_ATTENTION_SCORES]; /* [key words][query]; for floats, ds_rows is used */
} __attribute__((aligned(64))) backward_block;

/* Finds the queries of the tile that may see keys of the strip at j. */
LANES_INLINE void find_queries(backward_block *t, int64_t j)
{
    const int64_t end = head_end_query(&t->one, t->k0 + j + STRIP - 1) - t->q0;
    t->first = within(t->k0 + j - t->q0, 0, t->lanes) / 16 * 16;
    t->end = block_round(within(end, 0, t->lanes), 16);
}

/* Computes scores (or gradients of p) of STRIP keys from j on. */
static void score(const backward_block *t, float *to, const float *rows, const float *across,
                  int64_t j)
{
    const int64_t first = t->first;
    const block_product product = { .rows = smaller(STRIP, t->keys - j),
                                    .columns = t->end - first,
                                    .depth = t->one.depth,
                                    .a = rows + j * t->one.words,
                                    .a_row = t->one.words,
                                    .a_depth = 1,
                                    .b = across + first,
                                    .b_stride = t->one.queries,
                                    .c = to + first,
                                    .c_stride = t->one.queries };
    block_multiply(&product);
}

typedef struct weights {
    vector p[WORD_ELEMENTS], ds[WORD_ELEMENTS];
} weights;

/* Returns `a` for the queries from c on that may see key j of the block, 0 for the others. */
LANES_INLINE vector or_zero(const backward_block *t, int64_t j, int64_t c, vector a)
{
    return j < t->seen ? head_seen(&t->one, t->first_keys + c, t->q0 + c, t->k0 + j, a, 0.0f)
                       : vector_all(0.0f);
}

/* Returns the weights of keys j and, in pairs, j + 1, which are `at` and `at` + 1 in the strip, for
 * the queries from c on. */
LANES_INLINE weights weights_at(const backward_block *t, int64_t j, int64_t at, int64_t c,
                                int masked, int drops)
{
    const vector scale = vector_all(t->one.scale * LOG2_E), lse = vector_load(t->lse + c);
    const vector mean = vector_load(t->mean_gradients + t->q0 + c);
    weights w;
    for (int e = 0; e < WORD_ELEMENTS; e++) {
        const int64_t from = (at + e) * t->one.queries + c;
        w.p[e] = vector_exp2(
            vector_multiply_add(vector_load(t->scores + from), scale, vector_all(0.0f) - lse));
        vector gradient = vector_load(t->gradients + from);
        vector_bits kept;
        if (drops) {
            memcpy(&kept, t->kept + from, sizeof(kept));
            gradient = (vector)(kept & (vector_bits)(gradient * vector_all(t->one.kept)));
        }
        w.ds[e] = w.p[e] * (gradient - mean);
        if (t->one.cap > 0) {
            const vector tangent = vector_load(t->scores + from) * vector_all(t->one.to_cap);
            w.ds[e] *= vector_all(1.0f) - tangent * tangent;
        }
        if (drops)
            w.p[e] = (vector)(kept & (vector_bits)w.p[e]);
        if (masked) {
            w.p[e] = or_zero(t, j + e, c, w.p[e]);
            w.ds[e] = or_zero(t, j + e, c, w.ds[e]);
        }
    }
    return w;
}

LANES_INLINE void put_weights(backward_block *t, int64_t j, int64_t c, const weights *w)
{
    const int64_t row_words = t->one.queries / WORD_ELEMENTS;
    const int64_t at = j * row_words + c / WORD_ELEMENTS;
#if WORD_ELEMENTS == 2
    for (int e = 0; e < 2; e++) {
        _mm256_storeu_si256((void *)(t->p_rows + at + e * row_words),
                            (__m256i)_mm512_cvtneps_pbh(w->p[e]));
        _mm256_storeu_si256((void *)(t->ds_rows + at + e * row_words),
                            (__m256i)_mm512_cvtneps_pbh(w->ds[e]));
    }
    vector_store(t->ds_pairs + j / 2 * t->one.queries + c, vector_pair(w->ds[0], w->ds[1]));
#else
    vector_store(t->p_rows + at, w->p[0]);
    vector_store(t->ds_rows + at, w->ds[0]);
#endif
}

/* Draws the strip's dropout masks. */
static void draw(backward_block *t, int64_t j)
{
    for (int64_t at = 0; at < smaller(STRIP, t->keys - j); at += 4)
        for (int64_t c = t->first; c < t->end; c += COH_VECTOR_FLOATS) {
            vector_bits kept[4];
            head_kept(&t->one, t->k0 + j + at, t->q0 + c, kept);
            for (int e = 0; e < 4; e++)
                memcpy(t->kept + (at + e) * t->one.queries + c, &kept[e], sizeof(kept[e]));
        }
}

/* Computes p and ds of a strip of keys. The sixteen lanes before the first query and those after
 * the last are set to zero, because products of twelve queries may begin or end there. */
LANES_INLINE void weigh_strip(backward_block *t, int64_t j, int drops)
{
    const int64_t first = t->first, end = t->end;
    const int64_t keys = smaller(STRIP, t->keys - j), at_0 = t->k0 + j - t->q0;
    const int64_t whole = within(at_0 + keys - 1, 0, t->lanes),
                  whole_end = head_end_query(&t->one, t->k0 + j) - t->q0;
    const weights zeros = { 0 };
    for (int64_t at = 0; at < keys; at += WORD_ELEMENTS) {
        for (int64_t c = first >= 16 ? first - 16 : 0; c < first; c += COH_VECTOR_FLOATS)
            put_weights(t, j + at, c, &zeros);
        for (int64_t c = end; c < smaller(end + 16, t->lanes); c += COH_VECTOR_FLOATS)
            put_weights(t, j + at, c, &zeros);
        for (int64_t c = first; c < end; c += COH_VECTOR_FLOATS) {
            const int masked =
                c < whole || c + COH_VECTOR_FLOATS > whole_end || j + at + WORD_ELEMENTS > t->seen;
            const weights w = masked ? weights_at(t, j + at, at, c, 1, drops)
                                     : weights_at(t, j + at, at, c, 0, drops);
            put_weights(t, j + at, c, &w);
        }
    }
}

static void weigh(backward_block *t, int64_t j)
{
    if (t->one.drop->threshold == 0) {
        weigh_strip(t, j, 0);
        return;
    }
    draw(t, j);
    weigh_strip(t, j, 1);
}

/* dk or dv += weights^T b over the queries of the tile that may see the strip's keys. */
static void gather_keys(const backward_block *t, float *to, const float *rows, const float *deep,
                        int64_t j)
{
    const int64_t first = t->first / WORD_ELEMENTS;
    const int64_t row_words = t->one.queries / WORD_ELEMENTS;
    const block_product product = { .rows = smaller(STRIP, t->keys - j),
                                    .columns = t->one.width,
                                    .depth = t->end / WORD_ELEMENTS - first,
                                    .a = rows + j * row_words + first,
                                    .a_row = row_words,
                                    .a_depth = 1,
                                    .b = deep + first * t->one.width,
                                    .b_stride = t->one.width,
                                    .c = to + j * t->one.width,
                                    .c_stride = t->one.width,
                                    .into = BLOCK_ADD };
    block_multiply(&product);
}

/* dq (= or, after the part's first keys and in a band, +=) ds k. */
static void gather_queries(const backward_block *t)
{
    const head *one = &t->one;
    for (int64_t r = 0; r < t->rows; r += 12) {
        const int64_t rows = smaller(12, t->rows - r);
        const int64_t seen = smaller(t->q0 + r + rows - t->k0, t->seen);
        const int64_t begin = within(head_first_key(one, t->q0 + r) - t->k0, 0, t->keys);
        if (seen <= begin)
            continue;
        const int64_t first = begin / WORD_ELEMENTS;
        const float *ds = WORD_ELEMENTS == 2 ? t->ds_pairs : t->ds_rows;
        const block_product product = {
            .rows = rows,
            .columns = one->width,
            .depth = block_round(seen, WORD_ELEMENTS) / WORD_ELEMENTS - first,
            .a = ds + first * one->queries + r,
            .a_row = 1,
            .a_depth = one->queries,
            .b = t->k_deep + first * one->width,
            .b_stride = one->width,
            .c = t->dq + (t->q0 + r) * one->width,
            .c_stride = one->width,
            .into = t->k0 == t->part_k0 && !one->is_band ? BLOCK_SET : BLOCK_ADD
        };
        block_multiply(&product);
    }
}

static void load_queries(backward_block *t)
{
    const head *one = &t->one;
    head_rows(one, t->q_rows, t->lanes, one->q, one->q_stride, t->q0, t->rows);
    head_rows(one, t->dy_rows, t->lanes, one->dy, one->y_stride, t->q0, t->rows);
    block_across(t->q_across, one->queries, t->q_rows, t->lanes, one->words);
    block_across(t->dy_across, one->queries, t->dy_rows, t->lanes, one->words);
    t->q_deep = block_deep(t->q_pairs, t->q_rows, t->lanes, one->words, one->width);
    t->dy_deep = block_deep(t->dy_pairs, t->dy_rows, t->lanes, one->words, one->width);
    if (t->k0 == t->part_k0 || one->is_band) { /* in a band, others are seen first */
        head_rows(one, t->y_rows, t->lanes, one->y, one->y_stride, t->q0, t->rows);
        block_dots(t->mean_gradients + t->q0, t->y_rows, t->dy_rows, t->lanes, one->words);
    }
    for (int64_t r = 0; r < t->lanes; r++)
        t->lse[r] = r < t->rows ? one->lse[t->q0 + r] * LOG2_E : 0.0f;
    head_first_keys(one, t->first_keys, t->q0, t->lanes);
}

static void run_tile(backward_block *t)
{
    load_queries(t);
    for (int64_t j = 0; j < t->seen; j += STRIP) {
        find_queries(t, j);
        if (t->end <= t->first)
            continue;
        score(t, t->scores, t->k_rows, t->q_across, j);
        head_cap(&t->one, t->scores, smaller(STRIP, t->keys - j), t->first, t->end);
        score(t, t->gradients, t->v_rows, t->dy_across, j);
        weigh(t, j);
        gather_keys(t, t->dv, t->p_rows, t->dy_deep, j);
        gather_keys(t, t->dk, t->ds_rows, t->q_deep, j);
    }
    gather_queries(t);
}

static void put_keys(const backward_block *t)
{
    const head *one = &t->one;
    const coh_attention *a = t->attention;
    if (t->shared_dk != NULL) {
        const size_t bytes = (size_t)(t->seen * one->width) * sizeof(float);
        memcpy(t->shared_dk + t->k0 * one->width, t->dk, bytes);
        memcpy(t->shared_dv + t->k0 * one->width, t->dv, bytes);
        return;
    }
    for (int64_t j = 0; j < t->seen; j++) {
        const int64_t at = (t->k0 + j) * one->kv_stride;
        if (one->dk != NULL)
            block_put(one->dtype, coh_element(one->dtype, one->dk, at), t->dk + j * one->width,
                      one->scale, one->D, a->dk_adds);
        if (one->dv != NULL)
            block_put(one->dtype, coh_element(one->dtype, one->dv, at), t->dv + j * one->width,
                      one->kept, one->D, a->dv_adds);
    }
}

static void run_keys(backward_block *t)
{
    const head *one = &t->one;
    t->seen = smaller(one->keys, one->T - t->k0);
    t->keys = block_round(t->seen, 4);
    head_rows(one, t->k_rows, t->keys, one->k, one->kv_stride, t->k0, t->seen);
    head_rows(one, t->v_rows, t->keys, one->v, one->kv_stride, t->k0, t->seen);
    t->k_deep = block_deep(t->k_pairs, t->k_rows, t->keys, one->words, one->width);
    memset(t->dk, 0, (size_t)(t->keys * one->width) * sizeof(float));
    memset(t->dv, 0, (size_t)(t->keys * one->width) * sizeof(float));
    const int64_t end = smaller(one->T, head_end_query(one, t->k0 + t->seen - 1));
    for (t->q0 = t->k0 / one->queries * one->queries; t->q0 < end; t->q0 += one->queries) {
        t->rows = smaller(one->queries, one->T - t->q0);
        t->lanes = block_round(t->rows, 16);
        run_tile(t);
    }
    put_keys(t);
}

void attention_backward(const coh_attention *attention, int64_t index)
{
    const coh_attention_cut cut = coh_attention_cut_of(attention);
    const int64_t head_index = index / cut.parts, part = index % cut.parts;
    float *scratch = attention->scratch + head_index * cut.head_scratch;
    backward_block t;
    t.one = head_at(attention, head_index);
    t.attention = attention;
    t.shared_dk = t.shared_dv = NULL;
    if (attention->H > attention->G) {
        t.shared_dk = scratch + cut.parts * cut.scratch;
        t.shared_dv = t.shared_dk + t.one.T * t.one.width;
    }
    t.dq = scratch + part * cut.scratch;
    t.mean_gradients = t.dq + cut.scratch / (t.one.width + 1) * t.one.width;
    if (cut.parts == 1 && t.mean_gradients - t.dq <= COH_ATTENTION_WORDS)
        t.dq = t.dq_here;
    if (t.one.is_band)
        memset(t.dq, 0, (size_t)(t.one.T * t.one.width) * sizeof(float));
    t.part_k0 = coh_attention_part_begin(&cut, part) * cut.keys;
    const int64_t end = coh_attention_part_begin(&cut, part + 1) * cut.keys;
    for (t.k0 = t.part_k0; t.k0 < smaller(end, t.one.T); t.k0 += t.one.keys)
        run_keys(&t);
    for (int64_t i = 0; cut.parts == 1 && t.one.dq != NULL && i < t.one.T; i++)
        block_put(t.one.dtype, coh_element(t.one.dtype, t.one.dq, i * t.one.q_stride),
                  t.dq + i * t.one.width, t.one.scale, t.one.D, attention->dq_adds);
}

void attention_fold(const coh_attention *attention, int64_t index)
{
    const coh_attention_cut cut = coh_attention_cut_of(attention);
    const head one = head_at(attention, index / cut.blocks);
    float sum[COH_HEAD_WIDTH_MOST];
    const int64_t q0 = index % cut.blocks * one.queries;
    for (int64_t i = q0; i < smaller(q0 + one.queries, one.T); i++) {
        const float *dq = attention->scratch + index / cut.blocks * cut.head_scratch;
        memcpy(sum, dq + i * one.width, (size_t)one.D * sizeof(float));
        for (int64_t part = 1; part < cut.parts; part++) {
            dq += cut.scratch;
            if (coh_attention_part_begin(&cut, part) * cut.keys > i)
                break;
            for (int64_t d = 0; d < one.D; d++)
                sum[d] += dq[i * one.width + d];
        }
        block_put(one.dtype, coh_element(one.dtype, one.dq, i * one.q_stride), sum, one.scale,
                  one.D, attention->dq_adds);
    }
}

/* Sums `heads` rows of D, head_scratch apart, in order. */
static void sum_heads(float *sum, const float *row, int64_t heads, int64_t head_scratch, int64_t D)
{
    memcpy(sum, row, (size_t)D * sizeof(float));
    for (int64_t h = 1; h < heads; h++)
        for (int64_t d = 0; d < D; d++)
            sum[d] += row[h * head_scratch + d];
}

void attention_group(const coh_attention *attention, int64_t index)
{
    const coh_attention_cut cut = coh_attention_cut_of(attention);
    const int64_t heads = attention->H / attention->G, first = index / cut.key_blocks * heads;
    const head one = head_at(attention, first);
    const float *dk = attention->scratch + first * cut.head_scratch + cut.parts * cut.scratch;
    const float *dv = dk + one.T * one.width;
    float sum[COH_HEAD_WIDTH_MOST];
    const int64_t k0 = index % cut.key_blocks * one.keys;
    for (int64_t j = k0; j < smaller(k0 + one.keys, one.T); j++) {
        const int64_t at = j * one.kv_stride;
        if (one.dk != NULL) {
            sum_heads(sum, dk + j * one.width, heads, cut.head_scratch, one.D);
            block_put(one.dtype, coh_element(one.dtype, one.dk, at), sum, one.scale, one.D,
                      attention->dk_adds);
        }
        if (one.dv != NULL) {
            sum_heads(sum, dv + j * one.width, heads, cut.head_scratch, one.D);
            block_put(one.dtype, coh_element(one.dtype, one.dv, at), sum, one.kept, one.D,
                      attention->dv_adds);
        }
    }
}
