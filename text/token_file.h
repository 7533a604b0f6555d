/* token_file.h - the inside of token files: a header of 64 bytes, then ids, all little-endian.
 *
 *   0  magic "COHTOKEN"      16  count              40  XXH3 of the ids' bytes
 *   8  version, u32 = 1      24  vocabulary         48  zero
 *  12  id bytes, u32: 2, 4   32  tokenizer identity 56  XXH3 of bytes 0..55
 *
 * Ids take 2 bytes if the vocabulary has at most 65536, else 4. */
#ifndef COH_TEXT_TOKEN_FILE_H
#define COH_TEXT_TOKEN_FILE_H

#include "cohobate/text.h"

#define COH_TOKEN_HEADER_BYTES 64

typedef struct coh_token_header {
    uint32_t id_bytes;
    uint64_t count, vocabulary, identity, hash;
} coh_token_header;

struct coh_token_file {
    int fd;
    coh_token_header header;
    char *path;
};

uint32_t coh_token_id_bytes(int64_t vocabulary);
void coh_token_header_write(const coh_token_header *header, uint8_t bytes[COH_TOKEN_HEADER_BYTES]);
/* `path` is for the sentence. Fails: COH_ERR_CORRUPT. */
coh_status coh_token_header_read(const uint8_t bytes[COH_TOKEN_HEADER_BYTES], const char *path,
                                 coh_token_header *out_header);

/* ---- writing ---- */

/* Ids under a temporary name in the folder of `path`; nothing is at `path` before publish.
 *
 *     create -> add... -> finish (header, flush to disk) -> publish (rename) -> destroy
 *
 * Two files that belong together are both finished before either is published. */
typedef struct coh_token_writer coh_token_writer;

coh_status coh_token_writer_create(const char *path, int64_t vocabulary, uint64_t identity,
                                   coh_token_writer **out_writer);
coh_status coh_token_writer_add(coh_token_writer *writer, const int32_t *ids, size_t count);
coh_status coh_token_writer_finish(coh_token_writer *writer);
coh_status coh_token_writer_publish(coh_token_writer *writer);
uint64_t coh_token_writer_count(const coh_token_writer *writer);
/* Removes the temporary file unless it was published. Accepts NULL. */
void coh_token_writer_destroy(coh_token_writer *writer);

/* ---- folders ---- */

/* The regular files under `folder` as "<folder>/<path>", by byte order of <path>, names beginning
 * with "." and links left out. Release with coh_file_list_free. */
typedef struct coh_file_list {
    char **paths;
    size_t count, capacity;
} coh_file_list;

coh_status coh_file_list_fill(coh_file_list *list, const char *folder);
void coh_file_list_free(coh_file_list *list);

#endif
