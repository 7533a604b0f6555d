/* checkpoint_fixture.h - a small model's tensors with awkward sizes, and a folder to save them in.
 *
 * The sizes: one element, a prime, exactly one grain, a grain plus one, several grains minus one,
 * and a frozen tensor (no states) of more than a grain. */
#ifndef COH_TESTS_ENGINE_CHECKPOINT_FIXTURE_H
#define COH_TESTS_ENGINE_CHECKPOINT_FIXTURE_H

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/rng.h"
#include "cohobate/checkpoint.h"
#include "engine/checkpoint_writer.h"
#include "tests/temporary.h"

#define FIXTURE_TENSORS  6
#define FIXTURE_ELEMENTS (4 * COH_GRAIN_ELEMENTS)

static const coh_state_stream fixture_streams[] = { { "m", 4, 1, 1 }, { "v", 4, 1, 1 } };
enum { FIXTURE_M = 1, FIXTURE_V }; /* parts of a trained tensor */

/* clang-format off */
static const coh_logical_tensor fixture_tensors[FIXTURE_TENSORS] = {
    { "scale", { COH_DTYPE_F32, 1, { 1 } }, 1, "adamw", 2, { 0, 1 } },
    { "norm \"odd\"\t\xc3\xa9.bias", { COH_DTYPE_F32, 1, { 1009 } }, 1009, "adamw", 2, { 0, 1 } },
    { "square.weight", { COH_DTYPE_F32, 2, { 128, 128 } }, 16384, "adamw", 2, { 0, 1 } },
    { "one_more.weight", { COH_DTYPE_F32, 3, { 5, 29, 113 } }, 16385, "adamw", 2, { 0, 1 } },
    { "frozen.weight", { COH_DTYPE_F32, 2, { 200, 101 } }, 20200, NULL, 0, { 0 } },
    { "long.weight", { COH_DTYPE_F32, 2, { 257, 255 } }, 65535, "adamw", 2, { 0, 1 } },
};
/* clang-format on */
static const coh_logical_table fixture_table = { fixture_tensors, FIXTURE_TENSORS, fixture_streams,
                                                 2, COH_FROZEN_IN_WORK };

static inline int fixture_parts(uint32_t tensor)
{
    return 1 + fixture_tensors[tensor].stream_count;
}

/* Returns the expected value of an element. */
static inline float fixture_value(uint64_t seed, int part, uint32_t tensor, uint64_t element)
{
    return (float)coh_rng_uniform(seed, 16 * tensor + (uint64_t)part, element) - 0.5f;
}

/* Writes elements [begin, begin + count) to `data`. */
static inline void fixture_fill(uint64_t seed, int part, uint32_t tensor, uint64_t begin,
                                uint64_t count, float *data)
{
    for (uint64_t i = 0; i < count; i++)
        data[i] = fixture_value(seed, part, tensor, begin + i);
}

static float fixture_buffer[FIXTURE_ELEMENTS];

/* Puts all data, each tensor in one piece, but the frozen one if it is linked. */
static inline coh_status fixture_put_all(coh_checkpoint_writer *writer, uint64_t seed)
{
    for (uint32_t t = 0; t < FIXTURE_TENSORS; t++) {
        if (coh_checkpoint_writer_has_frozen(writer) && fixture_tensors[t].optimizer == NULL)
            continue;
        for (int part = 0; part < fixture_parts(t); part++) {
            fixture_fill(seed, part, t, 0, fixture_tensors[t].elements, fixture_buffer);
            coh_status status = coh_checkpoint_writer_put(
                writer, part, t, 0, fixture_tensors[t].elements, fixture_buffer);
            if (status != COH_OK)
                return status;
        }
    }
    return COH_OK;
}

/* Makes one complete save with a new writer. */
static inline coh_status fixture_save(const char *path, uint64_t seed, const char *note,
                                      uint64_t *out_hash)
{
    coh_checkpoint_seal seal = { .step = seed, .applied_count = seed, .numeric_fingerprint = 77 };
    coh_checkpoint_writer *writer = NULL;
    coh_status status = coh_checkpoint_writer_create(&fixture_table, NULL, &writer);
    if (status == COH_OK)
        status = coh_checkpoint_writer_begin(writer, path, note);
    if (status == COH_OK)
        status = fixture_put_all(writer, seed);
    if (status == COH_OK)
        status = coh_checkpoint_writer_finish(writer, &seal, out_hash);
    coh_checkpoint_writer_destroy(writer);
    return status;
}

/* Writes a manifest with a correct seal, so that only its content can be wrong. */
static inline void fixture_seal_manifest(const char *checkpoint, const char *body, size_t bytes)
{
    char name[2 * PATH_MAX];
    snprintf(name, sizeof(name), "%.4000s/manifest.json", checkpoint);
    FILE *file = fopen(name, "w");
    if (!file) {
        perror(name);
        exit(1);
    }
    fwrite(body, 1, bytes, file);
    fprintf(file, ",\n  \"manifest_hash\": \"%016" PRIx64 "\"\n}\n",
            (uint64_t)XXH3_64bits(body, bytes));
    fclose(file);
}

/* Makes an empty folder and writes its path; `path` has PATH_MAX bytes. */
static inline void fixture_folder(char *path)
{
    if (temporary_folder(path, PATH_MAX, "checkpoint") != 0) {
        perror(path);
        exit(1);
    }
}

/* Removes a folder and its contents, two levels deep. */
static inline void fixture_folder_remove(const char *path)
{
    char name[2 * PATH_MAX];
    struct dirent *entry;
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof(name), "%.4000s/%s", path, entry->d_name);
        if (unlink(name) != 0)
            fixture_folder_remove(name);
    }
    if (folder)
        closedir(folder);
    rmdir(path);
}

static inline int fixture_exists(const char *path)
{
    struct stat facts;
    return lstat(path, &facts) == 0;
}

#endif
