/* folder_fixture.h - makes Hugging Face folders for a test: any config.json, any list of tensors in
 * the form of recorded.h's fixtures ([[name, [dims]], ...]). Bits are a pure function of the
 * tensor's name and the element's index; all are finite, and include zeros and subnormals. */
#ifndef COH_TESTS_MODELS_FOLDER_FIXTURE_H
#define COH_TESTS_MODELS_FOLDER_FIXTURE_H

#include "tests/models/recorded.h"

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "models/safetensors_write.h"
#include "tests/text/folder.h"

enum { MADE_MOST = 80 };

static inline uint64_t made_key(const char *name)
{
    uint64_t key = 14695981039346656037u;
    for (; *name; name++)
        key = (key ^ (unsigned char)*name) * 1099511628211u;
    return key;
}

/* Returns the bits of element `at` of tensor `name` in the file. */
static inline uint32_t made_bits(const char *name, uint64_t at, coh_dtype dtype)
{
    const uint64_t random = coh_rng_u64(3, made_key(name), at);
    const uint32_t low = (uint32_t)random, exponent = (uint32_t)(random >> 40);
    if (random % 97 == 0)
        return 0;
    switch (dtype) {
    case COH_DTYPE_F32:
        return (low & 0x807fffff) | (exponent % 255) << 23;
    case COH_DTYPE_BF16:
        return (low & 0x807f) | (exponent % 255) << 7;
    case COH_DTYPE_F16:
    case COH_DTYPE_I32:
    case COH_DTYPE_NF4:
        break;
    }
    return (low & 0x83ff) | (exponent % 31) << 10;
}

/* Returns the number that these bits represent, by the definition of each format. */
static inline float made_number(const char *name, uint64_t at, coh_dtype dtype)
{
    const uint32_t bits = made_bits(name, at, dtype);
    const int mantissa_bits = dtype == COH_DTYPE_F32 ? 23 : dtype == COH_DTYPE_BF16 ? 7 : 10;
    const int exponent_bits = dtype == COH_DTYPE_F16 ? 5 : 8;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double mantissa = bits & ((1u << mantissa_bits) - 1), one = 1u << mantissa_bits;
    const double size = exponent ? ldexp(mantissa + one, exponent - bias - mantissa_bits)
                                 : ldexp(mantissa, 1 - bias - mantissa_bits);
    return (float)(bits >> (mantissa_bits + exponent_bits) ? -size : size);
}

static inline void made_put(void *to, uint64_t index, uint32_t bits, coh_dtype dtype)
{
    if (dtype == COH_DTYPE_F32)
        ((uint32_t *)to)[index] = bits;
    else
        ((uint16_t *)to)[index] = (uint16_t)bits;
}

/* Returns the data of one tensor; the caller frees them. */
static inline void *made_data(const char *name, uint64_t elements, coh_dtype dtype)
{
    void *data = malloc(elements * coh_dtype_bytes(dtype) + 1);
    assert_non_null(data);
    for (uint64_t i = 0; i < elements; i++)
        made_put(data, i, made_bits(name, i, dtype), dtype);
    return data;
}

static inline coh_safetensors_tensor made_tensor(const json_t *pair, const char *dtype)
{
    const json_t *dims = json_array_get(pair, 1);
    coh_safetensors_tensor tensor = { .name = json_string_value(json_array_get(pair, 0)),
                                      .dtype = dtype,
                                      .rank = (int32_t)json_array_size(dims) };
    for (int32_t d = 0; d < tensor.rank; d++)
        tensor.dim[d] = json_integer_value(json_array_get(dims, (size_t)d));
    return tensor;
}

/* Writes tensors of one dtype to a new folder `path`. A third entry of a pair is the dtype of that
 * tensor, whose bits are then zeros; a fourth is the name of a tensor whose bits it has. */
static inline void made_tensors(const char *path, const json_t *list, coh_dtype dtype,
                                uint64_t shard_bytes)
{
    coh_safetensors_tensor tensors[MADE_MOST];
    coh_folder_place place;
    coh_safetensors_writer *writer;
    const size_t count = json_array_size(list);
    assert_true(count <= MADE_MOST);
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(list, i);
        const char *own = json_string_value(json_array_get(pair, 2));
        tensors[i] = made_tensor(pair, own ? own : coh_safetensors_dtype_name(dtype));
    }
    (void)coh_safetensors_shard(tensors, count, shard_bytes);
    const coh_safetensors_list contents = { .tensors = tensors, .count = count };
    if (coh_folder_place_begin(&place, path) != COH_OK ||
        coh_safetensors_writer_create(&place, "model", &contents, &writer) != COH_OK)
        fail_msg("%s", coh_last_error());
    for (size_t i = 0; i < count; i++) {
        const uint64_t elements = coh_safetensors_elements(&tensors[i]);
        const json_t *pair = json_array_get(list, i);
        const int own = json_is_string(json_array_get(pair, 2));
        const char *bits_of = json_string_value(json_array_get(pair, 3));
        void *data = own ? calloc(elements + 1, 8)
                         : made_data(bits_of ? bits_of : tensors[i].name, elements, dtype);
        uint64_t bytes = elements * coh_dtype_bytes(dtype);
        if (own)
            bytes = elements * (strcmp(tensors[i].dtype, "I64") == 0    ? 8
                                : strcmp(tensors[i].dtype, "F32") == 0  ? 4
                                : strcmp(tensors[i].dtype, "BOOL") == 0 ? 1
                                                                        : 2);
        if (coh_safetensors_writer_add(writer, data, bytes) != COH_OK)
            fail_msg("%s", coh_last_error());
        free(data);
    }
    if (coh_safetensors_writer_finish(writer) != COH_OK ||
        coh_folder_place_publish(&place) != COH_OK)
        fail_msg("%s", coh_last_error());
    coh_safetensors_writer_destroy(writer);
}

/* Makes folder `name` in the test's folder, with a config.json and tensors; returns its path. */
static inline const char *made_folder(const char *name, const json_t *config, const json_t *list,
                                      coh_dtype dtype, uint64_t shard_bytes)
{
    static char path[PATH_MAX];
    char file[64];
    snprintf(path, sizeof(path), "%s", folder_file(name));
    made_tensors(path, list, dtype, shard_bytes);
    char *text = json_dumps(config, 0);
    snprintf(file, sizeof(file), "%s/config.json", name);
    folder_write(file, text, strlen(text));
    free(text);
    return path;
}

static inline coh_model made_resolve(const char *path)
{
    coh_model model;
    if (coh_model_resolve(path, 0, &model) != COH_OK)
        fail_msg("%s", coh_last_error());
    return model;
}

#endif
