/* Row loops for copies, sums, folds, dropout and the check for finite values, sixteen elements at a
 * time. Compiled once per instruction set and element type. Next: kernels/cpu/rows.h for each
 * loop's meaning, element.h. */
#include "base/fold_shape.h"
#include "kernels/cpu/isa/element.h"

#include "kernels/cpu/isa/philox.h"

int ROW(all_finite)(const void *row, int64_t count)
{
    const element *x = row;
    uint32_t broken = 0;
    for (int64_t i = 0; i < count; i++) {
#if COH_ELEMENT_IS_BF16
        const uint32_t bits = (uint32_t)x[i] << 16;
#else
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
#endif
        broken |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return broken == 0;
}

void ROW(sum)(void *out, const void *left, const void *right, int64_t count)
{
    element *to = out;
    const element *a = left, *b = right;
    EACH_LANES(
        i, n, count,
        elements_give(to + i, n,
                      lanes_add(elements_take(a + i, n, 0.0f), elements_take(b + i, n, 0.0f))));
}

void ROW(add)(void *to, const void *from, int64_t count)
{
    ROW(sum)(to, to, from, count);
}

void ROW(add_scaled)(float *total, const void *row, float factor, int64_t count)
{
    const element *from = row;
    const lanes factors = lanes_all(factor);
    EACH_LANES(
        i, n, count,
        lanes_add_to(total + i, n, lanes_multiply(factors, elements_take(from + i, n, 0.0f))));
}

void ROW(gather)(float *total, const void *row, int64_t count)
{
    const element *from = row;
    EACH_LANES(i, n, count, lanes_add_to(total + i, n, elements_take(from + i, n, 0.0f)));
}

void ROW(put)(void *row, const float *total, int64_t count, int adds)
{
    element *to = row;
    EACH_LANES(i, n, count, elements_put(to + i, n, lanes_take(total + i, n, 0.0f), adds));
}

/* Adds sixteen elements of each row: sums[f] holds those of factor f that have been added, of which
 * there are counts[f]. A factor that is complete is one summand of the next. */
LANES_INLINE lanes fold_part(const void *const *from, int64_t at, int64_t count,
                             const coh_fold_shape *shape, int factor_count, int32_t row_count)
{
    lanes sums[COH_FOLD_FACTORS], next = lanes_all(0.0f);
    int32_t counts[COH_FOLD_FACTORS] = { 0 };
    for (int32_t row = 0; row < row_count; row++) {
        const element *x = from[row];
        next = elements_take(x + at, count, 0.0f);
        for (int f = 0; f < factor_count; f++) {
            sums[f] = counts[f] == 0 ? next : lanes_add(sums[f], next);
            if (++counts[f] < shape->factors[f])
                break;
            counts[f] = 0;
            next = sums[f];
        }
    }
    return next;
}

void ROW(fold)(float *sums, const void *const *from, int64_t first, const coh_fold_shape *shape,
               int64_t count)
{
    const int factor_count = coh_fold_factor_count(shape);
    const int32_t row_count = coh_fold_replicas(shape);
    EACH_LANES(
        i, n, count,
        lanes_give(sums + i, n, fold_part(from, first + i, n, shape, factor_count, row_count)));
}

LANES_INLINE void drop_part(const coh_drop_row *row, int64_t at, int64_t count)
{
    const element *from = row->from, *base = row->base;
    element *to = row->to;
    uint32_t words[COH_LANES] = { 0 };
    memcpy(words, row->words + at, (size_t)count * sizeof(*words));
    lanes sum = lanes_multiply(elements_take(from + at, count, 0.0f), lanes_all(row->scale));
    for (int k = 0; k < COH_VECTORS; k++) {
        vector_bits word;
        memcpy(&word, words + k * COH_VECTOR_FLOATS, sizeof(word));
        sum.part[k] = (vector)((vector_bits)sum.part[k] & bits_kept(word, row->threshold));
    }
    if (base != NULL)
        sum = lanes_add(elements_take(base + at, count, 0.0f), sum);
    elements_give(to + at, count, sum);
}

void ROW(drop)(const coh_drop_row *row)
{
    EACH_LANES(i, n, row->count, drop_part(row, i, n));
}
