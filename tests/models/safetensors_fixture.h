/* safetensors_fixture.h - a small model to write: odd sizes, every numeric dtype and one other, a
 * scalar, a tensor without elements. Data are a pure function of the offset. */
#ifndef COH_TESTS_MODELS_SAFETENSORS_FIXTURE_H
#define COH_TESTS_MODELS_SAFETENSORS_FIXTURE_H

#include "base/rng.h"
#include "models/safetensors.h"

enum { FIXTURE_TENSORS = 8, FIXTURE_PAIRS = 3 };

static const coh_safetensors_pair fixture_metadata[FIXTURE_PAIRS] = {
    { "format", "pt" },
    { "a \"quoted\" key", "back\\slash, tab\t, bell\a, \xc3\xa9" },
    { "", "" },
};

/* In the reference's order: wide elements first. 83,302 bytes in total. */
static inline void fixture_list(coh_safetensors_tensor list[FIXTURE_TENSORS])
{
    const coh_safetensors_tensor tensors[FIXTURE_TENSORS] = {
        { .name = "step", .dtype = "I64", .rank = 0, .bytes = 8 },
        { .name = "h.0.weight", .dtype = "F32", .rank = 2, .dim = { 33, 65 }, .bytes = 8580 },
        { .name = "h.1.\xc3\xa9", .dtype = "F32", .rank = 1, .dim = { 1 }, .bytes = 4 },
        { .name = "h.2.none", .dtype = "F32", .rank = 3, .dim = { 4, 0, 7 }, .bytes = 0 },
        { .name = "b", .dtype = "BF16", .rank = 2, .dim = { 129, 257 }, .bytes = 66306 },
        { .name = "b\"\\", .dtype = "BF16", .rank = 1, .dim = { 3 }, .bytes = 6 },
        { .name = "f16", .dtype = "F16", .rank = 4, .dim = { 1, 53, 79, 1 }, .bytes = 8374 },
        { .name = "mask", .dtype = "BOOL", .rank = 1, .dim = { 24 }, .bytes = 24 },
    };
    for (int i = 0; i < FIXTURE_TENSORS; i++)
        list[i] = tensors[i];
}

/* Returns byte `at` of tensor `index`. */
static inline uint8_t fixture_byte(uint64_t index, uint64_t at)
{
    return (uint8_t)coh_rng_u64(11, index, at);
}

#endif
