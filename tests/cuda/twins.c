#include "tests/cuda/twins.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"

/* ---- tensors ---- */

void *coh_twins_poisoned(coh_dtype dtype, int64_t count, int64_t shift)
{
    const size_t element = coh_dtype_bytes(dtype), bytes = (size_t)(shift + count) * element;
    return (char *)memset(coh_twins_memory(bytes), 0xff, bytes) + (size_t)shift * element;
}

void *coh_twins_random(coh_dtype dtype, int64_t count, int64_t shift, uint64_t stream)
{
    void *tensor = coh_twins_poisoned(dtype, count, shift);
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)coh_rng_normal(7, stream, (uint64_t)i);
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)tensor)[i] = coh_bf16_of_f32(value);
        else
            ((float *)tensor)[i] = value;
    }
    return tensor;
}

void *coh_twins_zeros(size_t bytes)
{
    return memset(coh_twins_memory(bytes), 0, bytes);
}

void *coh_twins_copy(const void *from, size_t bytes)
{
    return memcpy(coh_twins_memory(bytes), from, bytes);
}

double coh_twins_value(coh_dtype dtype, const void *tensor, int64_t index)
{
    if (dtype == COH_DTYPE_BF16)
        return (double)coh_f32_of_bf16(((const uint16_t *)tensor)[index]);
    return (double)((const float *)tensor)[index];
}

/* ---- comparing ---- */

static size_t output_bytes(const coh_twins_output *output)
{
    return (size_t)output->count * coh_dtype_bytes(output->dtype);
}

/* Saves the present outputs, or restores those of `from`. */
static void save(const coh_twins_case *one, void **to)
{
    for (int i = 0; i < COH_TWINS_OUTPUTS && one->outputs[i].data != NULL; i++) {
        const size_t bytes = output_bytes(&one->outputs[i]);
        if (to[i] == NULL)
            to[i] = coh_twins_memory(bytes);
        memcpy(to[i], one->outputs[i].data, bytes);
    }
}

static void restore(const coh_twins_case *one, void *const *from)
{
    for (int i = 0; i < COH_TWINS_OUTPUTS && one->outputs[i].data != NULL; i++)
        memcpy(one->outputs[i].data, from[i], output_bytes(&one->outputs[i]));
}

static int is_near(const coh_twins_case *one, const coh_twins_output *output, const void *expected,
                   int64_t index)
{
    const size_t bytes = coh_dtype_bytes(output->dtype);
    if (memcmp((const char *)output->data + (size_t)index * bytes,
               (const char *)expected + (size_t)index * bytes, bytes) == 0)
        return 1;
    const double a = coh_twins_value(output->dtype, output->data, index);
    const double b = coh_twins_value(output->dtype, expected, index);
    if (isnan(a) && isnan(b)) /* a GPU has one NaN; unwritten elements are compared by bits */
        return 1;
    const double unit = output->dtype == COH_DTYPE_BF16 ? 0x1p-8 : 0x1p-24;
    return fabs(a - b) <= one->units * unit * fmax(fabs(a), fabs(b)) + one->absolute;
}

static void compare(const coh_twins_case *one, void *const *expected)
{
    for (int o = 0; o < COH_TWINS_OUTPUTS && one->outputs[o].data != NULL; o++) {
        const coh_twins_output *output = &one->outputs[o];
        for (int64_t i = 0; i < output->count; i++)
            if (!is_near(one, output, expected[o], i))
                fail_msg("%s, output %d, element %lld: %.9g, the host has %.9g", one->name, o,
                         (long long)i, coh_twins_value(output->dtype, output->data, i),
                         coh_twins_value(output->dtype, expected[o], i));
    }
}

void coh_twins_check(const coh_twins_case *one)
{
    void *before[COH_TWINS_OUTPUTS] = { 0 }, *host[COH_TWINS_OUTPUTS] = { 0 };
    void *first[COH_TWINS_OUTPUTS] = { 0 };
    save(one, before);
    one->run(NULL, one->call);
    save(one, host);
    for (int turn = 0; turn < 2; turn++) {
        restore(one, before);
        coh_twins_enqueue(one->run, one->call, turn, NULL);
        compare(one, host);
        if (turn == 0)
            save(one, first);
        for (int o = 0; o < COH_TWINS_OUTPUTS && one->outputs[o].data != NULL; o++)
            assert_memory_equal(one->outputs[o].data, first[o], output_bytes(&one->outputs[o]));
    }
    restore(one, before);
}
