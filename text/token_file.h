/* token_file.h - internals of token files: a header of 64 bytes, then ids, all little-endian.
 *
 *   0  magic "COHTOKEN"      16  count              40  XXH3 of the ids' bytes (from version 2 on:
 *   8  version, u32: 1 to 3  24  vocabulary             and of bytes 48..55 behind them)
 *  12  id bytes, u32: 2, 4   32  tokenizer identity 48  version 1: zero; else window, u32, flags,
 *                                                       u32
 *                                                   56  XXH3 of bytes 0..55
 *
 * Version 2 is for files in which not every id counts as a target (flag 1): the top bit of an id
 * means that the id does not count. Version 3 is for files that also mark where documents begin in
 * a window (flags 1 and 2): the second bit of an id means that it is the first of a document. Such
 * marks take no extra space if ids have spare bits. Window > 0: the file is aligned, and count is a
 * multiple of window + 1.
 *
 * Ids take 2 bytes if the vocabulary (times 2 in version 2, 4 in version 3) has at most 65536, else
 * 4. */
#ifndef COH_TEXT_TOKEN_FILE_H
#define COH_TEXT_TOKEN_FILE_H

#include <sys/stat.h>

#include "cohobate/text.h"

#define COH_TOKEN_HEADER_BYTES 64

typedef struct coh_token_header {
    uint32_t id_bytes;
    uint64_t count, vocabulary, identity, hash;
    uint32_t window; /* 0: packed */
    int has_mask;
    int has_documents; /* with a mask and a window */
} coh_token_header;

/* Marks of an id in the arrays of a writer's caller: it counts as a target, begins a document. */
enum { COH_TOKEN_COUNTS = 1, COH_TOKEN_BEGINS = 2 };

struct coh_token_file {
    int fd;
    uint64_t data_offset; /* offset of the first id */
    int is_raw;           /* in another program's format */
    coh_token_header header;
    char *path;
    uint64_t target_count; /* 0: not counted yet */
};

/* Longest window of an aligned file. */
#define COH_TOKEN_WINDOW_MAX (1 << 24)

/* As coh_token_file_read, with the marks of each id as a writer takes them. */
coh_status coh_token_file_read_marks(coh_token_file *file, uint64_t begin, size_t count,
                                     int32_t *ids, uint8_t *marks);

/* `marks`: bits of an id that are needed for marks. */
uint32_t coh_token_id_bytes(int64_t vocabulary, int marks);
/* The bytes that the hash covers after the ids: none in version 1. */
size_t coh_token_header_tail(const coh_token_header *header, uint8_t bytes[8]);
void coh_token_header_write(const coh_token_header *header, uint8_t bytes[COH_TOKEN_HEADER_BYTES]);
/* ---- writing ---- */

/* Refuses to replace an input, `in` at `in_path`, and any other file that is no token file: a
 * swapped argument must not cost the only copy of a text. */
coh_status coh_token_output_check(const char *path, const char *in_path, const struct stat *in);

/* Writes ids under a temporary name in the folder of `path`; `path` does not exist before publish.
 *
 *     create -> add... -> finish (header, flush to disk) -> publish (rename) -> destroy
 *
 * If two files belong together, finish both before publishing either. */
typedef struct coh_token_writer coh_token_writer;

coh_status coh_token_writer_create(const char *path, int64_t vocabulary, uint64_t identity,
                                   coh_token_writer **out_writer);
/* Call before the first id: gives the file a mask; window > 0 makes it aligned. */
void coh_token_writer_mark(coh_token_writer *writer, uint32_t window);
/* Likewise, after it: the file marks where documents begin. */
void coh_token_writer_mark_documents(coh_token_writer *writer);
/* marks[i]: of ids[i], COH_TOKEN_COUNTS and COH_TOKEN_BEGINS; NULL: all count. */
coh_status coh_token_writer_add(coh_token_writer *writer, const int32_t *ids, const uint8_t *marks,
                                size_t count);
coh_status coh_token_writer_finish(coh_token_writer *writer);
coh_status coh_token_writer_publish(coh_token_writer *writer);
uint64_t coh_token_writer_count(const coh_token_writer *writer);
/* The number of ids that count as targets. */
uint64_t coh_token_writer_target_count(const coh_token_writer *writer);
/* Removes the temporary file unless it was published. Accepts NULL. */
void coh_token_writer_destroy(coh_token_writer *writer);

#endif
