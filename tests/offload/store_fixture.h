/* store_fixture.h - common parts of the stores' tests: a temporary folder, an arena, requests whose
 * bytes are a pure function of (chunk, generation), and a table of the stores. */
#ifndef COH_TESTS_STORE_FIXTURE_H
#define COH_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "coh_config.h"
#include "offload/store.h"
#include "tests/temporary.h"

#define PAGE  ((size_t)COH_PAGE_BYTES)
#define PIECE ((size_t)512 << 10)

/* One page; an odd number of pages; exactly a piece; a page more; several pieces and an odd
 * rest. */
static const size_t chunk_sizes[] = { PAGE, 3 * PAGE, PIECE, PIECE + PAGE, 3 * PIECE + 7 * PAGE };
#define CHUNKS      10u
#define DEPTH       4u
#define ARENA_BYTES ((size_t)6 << 20)

/* Folders of a rig, 1 to 3; a test sets it before the first rig. Their rates are 3 : 4 : 2. */
static uint32_t rig_disk_count = 1;

typedef struct rig {
    char folder[256], others[2][272];
    coh_disk disks[3];
    const coh_store_ops *ops;
    coh_store *store;
    unsigned char *arena;
    size_t bytes[CHUNKS];
    uint64_t file_offset[CHUNKS], file_bytes;
    size_t memory_offset[CHUNKS];
} rig;

static inline void rig_folder(rig *made)
{
    char folder[sizeof(made->folder)];
    assert_int_equal(temporary_folder(folder, sizeof(folder), "store"), 0);
    memcpy(made->folder, folder, sizeof(folder));
    for (uint32_t i = 1; i < rig_disk_count; i++) {
        char *other = made->others[i - 1];
        snprintf(other, sizeof(made->others[0]), "%s-%u", folder, (unsigned)i);
        assert_int_equal(mkdir(other, 0700), 0);
    }
}

/* Sets chunk sizes and places in the file (with a hole between) and in memory. Opens no store. */
static inline void rig_layout(rig *made)
{
    size_t memory = 0;
    rig_folder(made);
    assert_int_equal(posix_memalign((void **)&made->arena, PAGE, ARENA_BYTES), 0);
    memset(made->arena, 0, ARENA_BYTES);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        made->bytes[i] = chunk_sizes[i % (sizeof(chunk_sizes) / sizeof(chunk_sizes[0]))];
        made->file_offset[i] = made->file_bytes;
        made->memory_offset[i] = memory;
        made->file_bytes += made->bytes[i] + PAGE;
        memory += made->bytes[i];
    }
    assert_true(memory <= ARENA_BYTES);
}

static inline coh_store_config rig_config(rig *made)
{
    static const double rates[] = { 3, 4, 2 };
    for (uint32_t i = 0; i < rig_disk_count; i++)
        made->disks[i] = (coh_disk){ .folder = i == 0 ? made->folder : made->others[i - 1],
                                     .bytes = UINT64_MAX,
                                     .bytes_per_s = rates[i] };
    return (coh_store_config){ .disks = made->disks,
                               .disk_count = rig_disk_count,
                               .bytes = made->file_bytes,
                               .chunk_count = CHUNKS,
                               .port_depth = DEPTH };
}

static inline void rig_open(rig *made, const coh_store_ops *wanted)
{
    coh_store_config config = rig_config(made);
    assert_int_equal(coh_store_open(&config, wanted, &made->ops, &made->store), COH_OK);
    assert_int_equal(made->ops->register_arena(made->store, made->arena, ARENA_BYTES), COH_OK);
}

static inline void rig_close(rig *made)
{
    if (made->store != NULL)
        made->ops->close(made->store);
    made->store = NULL;
    free(made->arena);
    for (uint32_t i = 1; i < rig_disk_count; i++)
        assert_int_equal(rmdir(made->others[i - 1]), 0);
    assert_int_equal(rmdir(made->folder), 0); /* empty: nothing is left */
}

static inline coh_store_request rig_request(const rig *made, uint32_t chunk, uint64_t generation)
{
    return (coh_store_request){ .memory = made->arena + made->memory_offset[chunk],
                                .file_offset = made->file_offset[chunk],
                                .bytes = made->bytes[chunk],
                                .id = { .chunk = chunk, .generation = generation },
                                .number = 1000 * generation + chunk };
}

/* Makes the bytes of a chunk: all of its first page, then one word per page (to be fast). */
static inline uint64_t rig_word(uint32_t chunk, uint64_t generation, size_t at)
{
    return coh_rng_u64(chunk + 1, generation, at);
}

static inline void rig_fill(const coh_store_request *request)
{
    uint64_t *words = request->memory;
    for (size_t i = 0; i < request->bytes / 8; i += i < 512 ? 1 : 64)
        words[i] = rig_word(request->id.chunk, request->id.generation, i);
}

static inline void rig_expect(const coh_store_request *request)
{
    const uint64_t *words = request->memory;
    for (size_t i = 0; i < request->bytes / 8; i += i < 512 ? 1 : 64)
        assert_int_equal(words[i], rig_word(request->id.chunk, request->id.generation, i));
}

/* Runs one request from submit to completion. */
static inline coh_status rig_one(rig *made, coh_store_port port, const coh_store_request *request)
{
    coh_store_completion completion;
    uint32_t count;
    assert_int_equal(made->ops->submit(made->store, port, request), COH_OK);
    assert_int_equal(made->ops->reap(made->store, port, &completion, 1, 1, &count), COH_OK);
    assert_int_equal(count, 1);
    assert_int_equal(completion.number, request->number);
    return completion.status;
}

static inline coh_status rig_write(rig *made, uint32_t chunk, uint64_t generation)
{
    coh_store_request request = rig_request(made, chunk, generation);
    rig_fill(&request);
    return rig_one(made, COH_STORE_WRITES, &request);
}

static inline coh_status rig_read(rig *made, uint32_t chunk, uint64_t generation)
{
    coh_store_request request = rig_request(made, chunk, generation);
    memset(request.memory, 0x5a, request.bytes);
    coh_status status = rig_one(made, COH_STORE_READS, &request);
    if (status == COH_OK)
        rig_expect(&request);
    return status;
}

/* Runs all chunks through one port, DEPTH in flight; gives statuses by chunk, and in `order` the
 * chunks in order of completion. */
static inline void rig_all(rig *made, coh_store_port port, uint64_t generation,
                           coh_status *statuses, uint32_t *order)
{
    coh_store_completion completions[DEPTH];
    uint32_t next = 0, in_flight = 0, done = 0, count;
    while (done < CHUNKS) {
        while (next < CHUNKS && in_flight < DEPTH) {
            coh_store_request request = rig_request(made, next, generation);
            if (port == COH_STORE_WRITES)
                rig_fill(&request);
            else
                memset(request.memory, 0x5a, request.bytes);
            assert_int_equal(made->ops->submit(made->store, port, &request), COH_OK);
            next++;
            in_flight++;
        }
        /* Reaps a whole window at once, to show the order within it. */
        assert_int_equal(made->ops->reap(made->store, port, completions, in_flight, DEPTH, &count),
                         COH_OK);
        assert_int_equal(count, in_flight);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t chunk = (uint32_t)(completions[i].number - 1000 * generation);
            assert_true(chunk < CHUNKS);
            statuses[chunk] = completions[i].status;
            order[done++] = chunk;
            if (completions[i].status == COH_OK && port == COH_STORE_READS) {
                coh_store_request request = rig_request(made, chunk, generation);
                rig_expect(&request);
            }
        }
        in_flight -= count;
    }
}

/* Returns 1 if this machine can run the store. */
static inline int rig_can(const coh_store_ops *ops)
{
    rig made = { 0 };
    rig_layout(&made);
    coh_store_config config = rig_config(&made);
    coh_status status = coh_store_open(&config, ops, &made.ops, &made.store);
    rig_close(&made);
    return status != COH_ERR_DEVICE;
}

#endif
