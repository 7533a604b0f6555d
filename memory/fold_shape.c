/* Fold shapes as text, and their division between ranks. Read fold_shape.h first. */
#include "memory/fold_shape.h"

#include <inttypes.h>
#include <stdio.h>

#include "memory/mesh.h"

static coh_status refuse_text(const char *text)
{
    return coh_fail(COH_ERR_ARGUMENT,
                    "'%.40s' is not a fold shape: write at most %d factors, such as 2x2x2, with a "
                    "product of at most %" PRId32,
                    text, COH_FOLD_FACTORS_MOST, COH_RANKS_MOST);
}

coh_status coh_fold_shape_read(const char *text, coh_fold_shape *out_shape)
{
    coh_fold_shape shape = { 0 };
    const char *at = text;
    int64_t product = 1;
    do {
        int64_t factor = 0;
        if (*at < '1' || *at > '9' || shape.factor_count == COH_FOLD_FACTORS_MOST)
            return refuse_text(text);
        while (*at >= '0' && *at <= '9' && factor <= COH_RANKS_MOST)
            factor = 10 * factor + (*at++ - '0');
        product *= factor;
        if (product > COH_RANKS_MOST)
            return refuse_text(text);
        shape.factors[shape.factor_count++] = (int32_t)factor;
    } while (*at++ == 'x');
    if (at[-1] != '\0')
        return refuse_text(text);
    *out_shape = shape;
    return COH_OK;
}

const char *coh_fold_shape_write(const coh_fold_shape *shape, char *text)
{
    int length = snprintf(text, COH_FOLD_TEXT_BYTES, "%s", shape->factor_count == 0 ? "1" : "");
    for (int i = 0; i < shape->factor_count; i++)
        length += snprintf(text + length, (size_t)(COH_FOLD_TEXT_BYTES - length), "%s%" PRId32,
                           i > 0 ? "x" : "", shape->factors[i]);
    return text;
}

int32_t coh_fold_shape_count(const coh_fold_shape *shape)
{
    int32_t count = 1;
    for (int i = 0; i < shape->factor_count; i++)
        count *= shape->factors[i];
    return count;
}

static coh_status refuse_division(const coh_fold_shape *shape, int32_t rank_count)
{
    char text[COH_FOLD_TEXT_BYTES], allowed[64];
    int32_t count = coh_fold_shape_count(shape);
    int length = snprintf(allowed, sizeof(allowed), "%" PRId32, count);
    for (int i = 0; i < shape->factor_count; i++) {
        count /= shape->factors[i];
        if (shape->factors[i] > 1)
            length +=
                snprintf(allowed + length, sizeof(allowed) - (size_t)length, " or %" PRId32, count);
    }
    return coh_fail(COH_ERR_ARGUMENT,
                    "the fold shape %s cannot be divided between %" PRId32
                    " ranks in whole factors: use %s ranks, or another shape",
                    coh_fold_shape_write(shape, text), rank_count, allowed);
}

coh_status coh_fold_shape_divide(const coh_fold_shape *shape, int32_t rank_count,
                                 coh_fold_shape *out_inner, coh_fold_shape *out_outer)
{
    const int32_t count = coh_fold_shape_count(shape);
    int inner = 0;
    int64_t outer_count = count;
    while (inner < shape->factor_count && outer_count > rank_count)
        outer_count /= shape->factors[inner++];
    if (outer_count != rank_count)
        return refuse_division(shape, rank_count);
    *out_inner = *out_outer = (coh_fold_shape){ 0 };
    for (int i = 0; i < shape->factor_count; i++) {
        coh_fold_shape *to = i < inner ? out_inner : out_outer;
        to->factors[to->factor_count++] = shape->factors[i];
    }
    return COH_OK;
}
