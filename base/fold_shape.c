/* Reads, checks and writes fold shapes. The interface is cohobate/fold_shape.h; base/fold_shape.h
 * has their arithmetic. */
#include "base/fold_shape.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "cohobate/terms.h"

coh_status coh_fold_shape_check(const coh_fold_shape *shape, coh_fold_shape *out_checked)
{
    coh_fold_shape checked = { 0 };
    int64_t replicas = 1;
    int32_t count = 0;
    for (int32_t f = 0; f < COH_FOLD_FACTORS; f++) {
        const int32_t factor = shape->factors[f];
        if (factor < 0 || factor > COH_REPLICAS_MOST)
            return coh_fail(COH_ERR_ARGUMENT, "%s of %d: a factor is 1..%d",
                            coh_term_text(COH_TERM_REPLICAS), factor, COH_REPLICAS_MOST);
        if (factor > 1)
            checked.factors[count++] = factor;
        replicas *= factor > 1 ? factor : 1; /* stays far below 2^63 */
    }
    if (replicas > COH_REPLICAS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "%s with a product of %lld: at most %d",
                        coh_term_text(COH_TERM_REPLICAS), (long long)replicas, COH_REPLICAS_MOST);
    *out_checked = checked;
    return COH_OK;
}

static coh_status refuse_text(const char *text)
{
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s '%.40s' is not a number of 1..%d, or up to %d with x between them: give 4 "
                    "or 2x2x2",
                    coh_term_text(COH_TERM_REPLICAS), text, COH_REPLICAS_MOST, COH_FOLD_FACTORS);
}

coh_status coh_fold_shape_parse(const char *text, coh_fold_shape *out_shape)
{
    COH_NEED(text);
    COH_NEED(out_shape);
    coh_fold_shape shape = { 0 };
    const char *at = text;
    for (int32_t f = 0; f < COH_FOLD_FACTORS; f++) {
        char *end = NULL;
        if (*at < '0' || *at > '9')
            return refuse_text(text);
        const long factor = strtol(at, &end, 10); /* LONG_MAX on overflow */
        if (factor < 1 || factor > COH_REPLICAS_MOST)
            return refuse_text(text);
        shape.factors[f] = (int32_t)factor;
        if (*end == '\0')
            return coh_fold_shape_check(&shape, out_shape);
        if (*end != 'x')
            return refuse_text(text);
        at = end + 1;
    }
    return refuse_text(text);
}

coh_status coh_fold_shape_write(const coh_fold_shape *shape, char *text)
{
    COH_NEED(shape);
    COH_NEED(text);
    coh_fold_shape checked;
    COH_TRY(coh_fold_shape_check(shape, &checked));
    int used =
        snprintf(text, COH_FOLD_TEXT_BYTES, "%d", checked.factors[0] > 1 ? checked.factors[0] : 1);
    for (int32_t f = 1; f < coh_fold_factor_count(&checked); f++)
        used +=
            snprintf(text + used, (size_t)(COH_FOLD_TEXT_BYTES - used), "x%d", checked.factors[f]);
    return COH_OK;
}

int32_t coh_fold_shape_replicas(const coh_fold_shape *shape)
{
    coh_fold_shape checked;
    if (shape == NULL || coh_fold_shape_check(shape, &checked) != COH_OK)
        return 1;
    return coh_fold_replicas(&checked);
}

static coh_status refuse_division(const coh_fold_shape *shape, int32_t rank_count)
{
    char text[COH_FOLD_TEXT_BYTES], allowed[64];
    const int32_t replicas = coh_fold_replicas(shape);
    int length = snprintf(allowed, sizeof(allowed), "%d", replicas);
    if (replicas == 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%d ranks share replicas of the batch, and there is one: give %s %d",
                        rank_count, coh_term_text(COH_TERM_REPLICAS), rank_count);
    COH_TRY(coh_fold_shape_write(shape, text));
    for (int32_t f = 1; f <= coh_fold_factor_count(shape); f++)
        length += snprintf(allowed + length, sizeof(allowed) - (size_t)length, " or %d",
                           replicas / coh_fold_unit(shape, f));
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s %s cannot be divided between %d ranks in whole factors: use %s ranks, or "
                    "another shape",
                    coh_term_text(COH_TERM_REPLICAS), text, rank_count, allowed);
}

coh_status coh_fold_shape_divide(const coh_fold_shape *shape, int32_t rank_count,
                                 coh_fold_shape *out_inner, coh_fold_shape *out_outer)
{
    coh_fold_shape whole;
    int32_t inner = 0;
    COH_NEED(shape);
    COH_NEED(out_inner);
    COH_NEED(out_outer);
    COH_TRY(coh_fold_shape_check(shape, &whole));
    const int32_t replicas = coh_fold_replicas(&whole), count = coh_fold_factor_count(&whole);
    while (inner < count && replicas / coh_fold_unit(&whole, inner) > rank_count)
        inner++;
    if (replicas / coh_fold_unit(&whole, inner) != rank_count)
        return refuse_division(&whole, rank_count);
    *out_inner = *out_outer = (coh_fold_shape){ 0 };
    for (int32_t f = 0; f < count; f++)
        if (f < inner)
            out_inner->factors[f] = whole.factors[f];
        else
            out_outer->factors[f - inner] = whole.factors[f];
    return COH_OK;
}

coh_status coh_fold_shape_join(const coh_fold_shape *inner, const coh_fold_shape *outer,
                               coh_fold_shape *out_shape)
{
    const int32_t inner_count = coh_fold_factor_count(inner);
    const int32_t count = inner_count + coh_fold_factor_count(outer);
    coh_fold_shape joined = *inner;
    if (count > COH_FOLD_FACTORS)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%d factors of replicas and %d of ranks: use at most %d in all",
                        inner_count, count - inner_count, COH_FOLD_FACTORS);
    for (int32_t f = inner_count; f < count; f++)
        joined.factors[f] = outer->factors[f - inner_count];
    return coh_fold_shape_check(&joined, out_shape);
}
