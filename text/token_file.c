/* Reads token files: header, ranges of ids, windows, and passes over the whole file. The one idea:
 * ids stay on disk, and each call reads its range with pread. Next: token_file.h for the format,
 * token_writer.c for writing. */
#include "text/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* a hash state that needs no allocation */
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file_ops.h"
#include "base/plural.h"
#include "base/struct_bytes.h"
#include "base/utf8.h"
#include "cohobate/terms.h"
#include "text/permute.h"

static const char magic[8] = "COHTOKEN";
#define VERSION_PLAIN     1u
#define VERSION_MASKED    2u
#define VERSION_DOCUMENTS 3u
#define FLAG_MASK         1u
#define FLAG_DOCUMENTS    2u
/* Set in memory on an id that does not count as a target, and on one that begins a document. */
#define UNCOUNTED INT32_MIN
#define BEGINS    (INT32_C(1) << 30)

/* Ids counted in one pass over a file (32 MiB of counters), more than tokenizers have; a file may
 * claim a vocabulary of any size. */
#define COUNTED_IDS (UINT64_C(1) << 22)

/* Ids read at once in a pass over a whole file: 64 KiB on the stack. */
#define PASS_IDS 16384u

/* ---- header ---- */

static void put(uint8_t *bytes, uint64_t value, int byte_count)
{
    for (int i = 0; i < byte_count; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *bytes, int byte_count)
{
    uint64_t value = 0;
    for (int i = 0; i < byte_count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

uint32_t coh_token_id_bytes(int64_t vocabulary, int marks)
{
    return vocabulary <= 65536 >> marks ? 2 : 4;
}

static uint32_t flags_of(const coh_token_header *header)
{
    return header->has_documents ? FLAG_MASK | FLAG_DOCUMENTS : header->has_mask ? FLAG_MASK : 0;
}

size_t coh_token_header_tail(const coh_token_header *header, uint8_t bytes[8])
{
    put(bytes, header->window, 4);
    put(bytes + 4, flags_of(header), 4);
    return header->has_mask ? 8 : 0;
}

void coh_token_header_write(const coh_token_header *header, uint8_t bytes[COH_TOKEN_HEADER_BYTES])
{
    memset(bytes, 0, COH_TOKEN_HEADER_BYTES);
    memcpy(bytes, magic, sizeof(magic));
    put(bytes + 8,
        header->has_documents ? VERSION_DOCUMENTS
        : header->has_mask    ? VERSION_MASKED
                              : VERSION_PLAIN,
        4);
    put(bytes + 12, header->id_bytes, 4);
    put(bytes + 16, header->count, 8);
    put(bytes + 24, header->vocabulary, 8);
    put(bytes + 32, header->identity, 8);
    put(bytes + 40, header->hash, 8);
    (void)coh_token_header_tail(header, bytes + 48);
    put(bytes + 56, XXH3_64bits(bytes, 56), 8);
}

/* Could a writer of that version have written this header? */
static int is_written(const coh_token_header *header, uint32_t flags)
{
    if (header->vocabulary < 1 || header->vocabulary > INT32_MAX ||
        header->id_bytes != coh_token_id_bytes((int64_t)header->vocabulary,
                                               header->has_mask + header->has_documents) ||
        header->count > INT64_MAX / 8 || flags != flags_of(header))
        return 0;
    if (!header->has_mask)
        return header->window == 0;
    if (header->has_documents && (header->window == 0 || header->vocabulary > BEGINS))
        return 0;
    return header->window <= COH_TOKEN_WINDOW_MAX &&
           (header->window == 0 || header->count % (header->window + UINT64_C(1)) == 0);
}

static coh_status header_read(const uint8_t bytes[COH_TOKEN_HEADER_BYTES], const char *path,
                              coh_token_header *out_header)
{
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s is not a token file: make one with `cohobate tokenize`", path);
    if (get(bytes + 56, 8) != XXH3_64bits(bytes, 56))
        return coh_fail(COH_ERR_CORRUPT, "the header of token file %s is damaged: make it again",
                        path);
    uint64_t version = get(bytes + 8, 4);
    if (version < VERSION_PLAIN || version > VERSION_DOCUMENTS)
        return coh_fail(COH_ERR_CORRUPT,
                        "token file %s has version %" PRIu64
                        ", this program reads %u to %u: make it again",
                        path, version, VERSION_PLAIN, VERSION_DOCUMENTS);
    coh_token_header header = { .id_bytes = (uint32_t)get(bytes + 12, 4),
                                .count = get(bytes + 16, 8),
                                .vocabulary = get(bytes + 24, 8),
                                .identity = get(bytes + 32, 8),
                                .hash = get(bytes + 40, 8),
                                .window = (uint32_t)get(bytes + 48, 4),
                                .has_mask = version != VERSION_PLAIN,
                                .has_documents = version == VERSION_DOCUMENTS };
    uint32_t flags = (uint32_t)get(bytes + 52, 4);
    if (!is_written(&header, flags))
        return coh_fail(
            COH_ERR_CORRUPT,
            "token file %s has a header that none was written with: %" PRIu64 " ids of %" PRIu32
            " bytes, vocabulary %" PRIu64 ", window %" PRIu32 ", flags %" PRIu32 ": make it again",
            path, header.count, header.id_bytes, header.vocabulary, header.window, flags);
    *out_header = header;
    return COH_OK;
}

/* ---- open ---- */

/* Names the size of a file in which nothing is at `offset`, where a read of `byte_count` ends
 * later: the file may have become much shorter since it was opened. */
static coh_status refuse_end(int fd, const char *path, uint64_t offset, uint64_t byte_count)
{
    struct stat facts;
    uint64_t end = offset;
    if (fstat(fd, &facts) == 0 && (uint64_t)facts.st_size < offset)
        end = (uint64_t)facts.st_size;
    const uint64_t missing = offset + byte_count - end;
    return coh_fail(COH_ERR_CORRUPT, "%s ends at byte %" PRIu64 ", %" PRIu64 " byte%s too early",
                    path, end, missing, COH_PLURAL_S(missing));
}

/* Reads all of [offset, offset + byte_count). Fails: COH_ERR_IO, COH_ERR_CORRUPT (the file is
 * shorter). */
static coh_status read_bytes(int fd, const char *path, uint64_t offset, void *bytes,
                             size_t byte_count)
{
    for (size_t done = 0; done < byte_count;) {
        ssize_t got = pread(fd, (uint8_t *)bytes + done, byte_count - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return coh_fail(COH_ERR_IO, "reading %zu bytes at %" PRIu64 " of %s failed: %s",
                            byte_count, offset, path, strerror(errno));
        if (got == 0)
            return refuse_end(fd, path, offset + done, byte_count - done);
        done += (size_t)got;
    }
    return COH_OK;
}

/* Opens file->path, which must be a regular file. */
static coh_status open_bytes(coh_token_file *file, uint64_t *out_file_bytes)
{
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return coh_fail(
            COH_ERR_IO, "cannot open token file %s: %s: %s", file->path, strerror(errno),
            errno == ENOENT ? "give one that exists"
                            : coh_file_open_remedy(-errno, "see to its rights, or give another"));
    struct stat facts;
    if (fstat(file->fd, &facts) != 0 || !S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_IO, "%s is not a regular file", file->path);
    *out_file_bytes = (uint64_t)facts.st_size;
    return COH_OK;
}

static coh_status open_and_check(coh_token_file *file)
{
    uint64_t file_bytes;
    COH_TRY(open_bytes(file, &file_bytes));
    if (file_bytes < COH_TOKEN_HEADER_BYTES)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s has %" PRIu64
                        " bytes, less than the %d of a token file's header: not one, or cut off",
                        file->path, file_bytes, COH_TOKEN_HEADER_BYTES);
    uint8_t bytes[COH_TOKEN_HEADER_BYTES];
    COH_TRY(read_bytes(file->fd, file->path, 0, bytes, sizeof(bytes)));
    COH_TRY(header_read(bytes, file->path, &file->header));
    file->data_offset = COH_TOKEN_HEADER_BYTES;
    uint64_t expected = COH_TOKEN_HEADER_BYTES + file->header.count * file->header.id_bytes;
    if (file_bytes != expected)
        return coh_fail(COH_ERR_CORRUPT,
                        "token file %s has %" PRIu64 " bytes where its %" PRIu64
                        " ids need %" PRIu64 ": it was cut off or added to, make it again",
                        file->path, file_bytes, file->header.count, expected);
    return COH_OK;
}

static coh_status file_create(const char *path, coh_token_file **out_file)
{
    if (!path[0])
        return coh_fail(COH_ERR_ARGUMENT, "opening a token file needs its path");
    *out_file = NULL;
    coh_token_file *file;
    COH_TRY(COH_ALLOC(1, &file));
    file->fd = -1;
    coh_status status = coh_alloc_text(path, &file->path);
    if (status != COH_OK)
        coh_token_file_close(file);
    else
        *out_file = file;
    return status;
}

/* Passes on the status of opening; a file that could not be opened is closed. */
static coh_status opened(coh_status status, coh_token_file **file)
{
    if (status != COH_OK) {
        coh_token_file_close(*file);
        *file = NULL;
    }
    return status;
}

coh_status coh_token_file_open(const char *path, coh_token_file **out_file)
{
    COH_NEED_PATH(path);
    COH_NEED(out_file);
    COH_TRY(file_create(path, out_file));
    return opened(open_and_check(*out_file), out_file);
}

void coh_token_file_close(coh_token_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    coh_free(file->path);
    coh_free(file);
}

coh_status coh_token_file_facts_get(const coh_token_file *file, coh_token_file_facts *out_facts)
{
    COH_NEED(file);
    COH_NEED_STRUCT(coh_token_file_facts, out_facts);
    const coh_token_file_facts facts = { .token_count = file->header.count,
                                         .vocabulary = (int64_t)file->header.vocabulary,
                                         .tokenizer_identity = file->header.identity,
                                         .hash = file->header.hash,
                                         .window = file->header.window,
                                         .has_mask = file->header.has_mask,
                                         .is_raw = file->is_raw,
                                         .is_llmc = file->is_raw && file->data_offset > 0,
                                         .id_bytes = (int32_t)file->header.id_bytes,
                                         .target_count = file->header.has_mask ? file->target_count
                                                                               : file->header.count,
                                         .marks_documents = file->header.has_documents };
    COH_STRUCT_FILL(facts, out_facts);
    return COH_OK;
}

static coh_status refuse_id(const coh_token_file *file, uint32_t id, uint64_t position)
{
    char remedy[128] = "the file is damaged, make it again";
    if (file->is_raw && file->header.vocabulary < INT32_MAX)
        snprintf(remedy, sizeof(remedy), "give the model and tokenizer it was made for");
    else if (file->is_raw)
        snprintf(remedy, sizeof(remedy),
                 "no id is that large, so these are no ids, or of another width (%s)",
                 coh_term_text(COH_TERM_ID_BYTES));
    return coh_fail(COH_ERR_CORRUPT,
                    "id %" PRIu32 " at position %" PRIu64 " of %s is outside its vocabulary of"
                    " %" PRIu64 ": %s",
                    id, position, file->path, file->header.vocabulary, remedy);
}

/* ---- ids ---- */

/* The id of one that may have marks. */
static int32_t id_of(const coh_token_file *file, int32_t marked)
{
    return marked & (file->header.has_documents ? BEGINS - 1 : INT32_MAX);
}

/* As coh_token_file_read, but ids that do not count as targets have the bit UNCOUNTED set, and
 * those that begin a document BEGINS. */
static coh_status read_marked(coh_token_file *file, uint64_t begin, size_t count, int32_t *ids)
{
    if (begin > file->header.count || count > file->header.count - begin)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%zu ids from %" PRIu64 " on are beyond the %" PRIu64 " of %s", count,
                        begin, file->header.count, file->path);
    size_t id_bytes = file->header.id_bytes;
    const uint32_t mark = file->header.has_mask ? UINT32_C(1) << (8 * id_bytes - 1) : 0;
    const uint32_t begins = file->header.has_documents ? mark >> 1 : 0;
    /* Reads narrow ids into the end of the array and widens them from the front: writing id i
     * touches bytes 4i.., and only bytes 2(count + i).. are still to be read. */
    uint8_t *raw = (uint8_t *)ids + count * (sizeof(int32_t) - id_bytes);
    COH_TRY(read_bytes(file->fd, file->path, file->data_offset + begin * id_bytes, raw,
                       count * id_bytes));
    for (size_t i = 0; i < count; i++) {
        uint32_t stored = (uint32_t)get(raw + i * id_bytes, (int)id_bytes),
                 id = stored & ~(mark | begins);
        if (id >= file->header.vocabulary)
            return refuse_id(file, id, begin + i);
        ids[i] = (int32_t)id | (stored & mark ? UNCOUNTED : 0) | (stored & begins ? BEGINS : 0);
    }
    return COH_OK;
}

coh_status coh_token_file_read(coh_token_file *file, uint64_t begin, size_t count, int32_t *ids)
{
    COH_NEED(file);
    COH_NEED(ids);
    COH_TRY(read_marked(file, begin, count, ids));
    for (size_t i = 0; i < count; i++)
        ids[i] = id_of(file, ids[i]);
    return COH_OK;
}

coh_status coh_token_file_read_marks(coh_token_file *file, uint64_t begin, size_t count,
                                     int32_t *ids, uint8_t *marks)
{
    COH_TRY(read_marked(file, begin, count, ids));
    for (size_t i = 0; i < count; i++) {
        marks[i] =
            (uint8_t)((ids[i] < 0 ? 0 : COH_TOKEN_COUNTS) |
                      (file->header.has_documents && ids[i] & BEGINS ? COH_TOKEN_BEGINS : 0));
        ids[i] = id_of(file, ids[i]);
    }
    return COH_OK;
}

/* Ids that a pass over the whole file reads from `begin` on. */
static size_t pass_count(const coh_token_file *file, uint64_t begin)
{
    const uint64_t left = file->header.count - begin;
    return left < PASS_IDS ? (size_t)left : PASS_IDS;
}

/* Reads and thereby checks all ids, and counts targets. */
static coh_status hash_ids(coh_token_file *file, uint64_t *out_hash, uint64_t *out_target_count)
{
    int32_t ids[PASS_IDS];
    XXH3_state_t hash;
    uint8_t tail[8];
    const uint32_t top = UINT32_C(1) << (8 * file->header.id_bytes - 1);
    XXH3_64bits_reset(&hash);
    *out_target_count = 0;
    for (uint64_t begin = 0; begin < file->header.count; begin += PASS_IDS) {
        const size_t count = pass_count(file, begin);
        COH_TRY(read_marked(file, begin, count, ids));
        for (size_t i = 0; i < count; i++)
            *out_target_count += ids[i] >= 0;
        /* Narrows the ids in place again: the hash covers the stored bytes. */
        uint8_t *raw = (uint8_t *)ids;
        for (size_t i = 0; i < count; i++)
            put(raw + i * file->header.id_bytes,
                (uint32_t)id_of(file, ids[i]) | (ids[i] < 0 ? top : 0) |
                    (file->header.has_documents && ids[i] & BEGINS ? top >> 1 : 0),
                (int)file->header.id_bytes);
        XXH3_64bits_update(&hash, raw, count * file->header.id_bytes);
    }
    XXH3_64bits_update(&hash, tail, coh_token_header_tail(&file->header, tail));
    *out_hash = XXH3_64bits_digest(&hash);
    return COH_OK;
}

coh_status coh_token_file_check(coh_token_file *file)
{
    if (!file)
        return coh_fail(COH_ERR_ARGUMENT, "checking needs an open token file");
    uint64_t found;
    COH_TRY(hash_ids(file, &found, &file->target_count));
    if (found != file->header.hash)
        return coh_fail(COH_ERR_CORRUPT,
                        "the ids of token file %s hash to %016" PRIx64
                        ", its header says %016" PRIx64 ": the file is damaged, make it again",
                        file->path, found, file->header.hash);
    return COH_OK;
}

/* Counts how often each id of [first, first + COUNTED_IDS) is a target, into `id_count`; *out_next
 * is the smallest id beyond those, UINT64_MAX: none. */
static coh_status count_ids(coh_token_file *file, uint64_t first, uint64_t *id_count,
                            uint64_t *out_next)
{
    int32_t ids[PASS_IDS];
    *out_next = UINT64_MAX;
    for (uint64_t begin = 0; begin < file->header.count; begin += PASS_IDS) {
        const size_t count = pass_count(file, begin);
        COH_TRY(read_marked(file, begin, count, ids));
        for (size_t i = 0; i < count; i++) {
            const uint64_t id = (uint64_t)id_of(file, ids[i]);
            if (ids[i] < 0 || id < first)
                continue;
            if (id - first < COUNTED_IDS)
                id_count[id - first]++;
            else if (id < *out_next)
                *out_next = id;
        }
    }
    return COH_OK;
}

coh_status coh_token_file_unigram_entropy(coh_token_file *file, double *out_nats)
{
    if (!file || !out_nats)
        return coh_fail(COH_ERR_ARGUMENT, "entropy needs an open token file and a place for it");
    const uint64_t vocabulary = file->header.vocabulary;
    const uint64_t table = vocabulary < COUNTED_IDS ? vocabulary : COUNTED_IDS;
    uint64_t *id_count, counted = 0;
    coh_status status = COH_OK;
    double sum = 0;
    COH_TRY(COH_ALLOC(table, &id_count));
    /* -sum p log p with p = c / N, computed as log N - (sum c log c) / N. */
    for (uint64_t first = 0, next; first < vocabulary; first = next) {
        memset(id_count, 0, (size_t)table * sizeof(*id_count));
        COH_TRY_GOTO(status, count_ids(file, first, id_count, &next), done);
        for (uint64_t id = 0; id < table; id++) {
            counted += id_count[id];
            if (id_count[id])
                sum += (double)id_count[id] * log((double)id_count[id]);
        }
    }
    *out_nats = counted > 0 ? fmax(0.0, log((double)counted) - sum / (double)counted) : 0.0;
done:
    coh_free(id_count);
    return status;
}

/* ---- files of other programs ---- */

/* .bin files of ids as llm.c and nanoGPT write them are read in place. A file without a header is
 * accepted by its name, after checks for the two likely mistakes. */

/* llm.c: 256 int32, the first three of which are used (its dev/data/data_common.py). */
#define LLMC_HEADER_BYTES 1024u

typedef struct llmc_form {
    uint32_t magic, version, id_bytes;
} llmc_form;

static const llmc_form llmc_forms[] = {
    { 20240520, 1, 2 }, /* GPT-2's ids */
    { 20240801, 7, 4 }, /* Llama 3's */
};

/* NULL: not a header of llm.c's. */
static const llmc_form *find_form(const uint8_t *bytes)
{
    for (size_t i = 0; i < sizeof(llmc_forms) / sizeof(llmc_forms[0]); i++)
        if (get(bytes, 4) == llmc_forms[i].magic)
            return &llmc_forms[i];
    return NULL;
}

static coh_status read_llmc(coh_token_file *file, const llmc_form *form, const uint8_t *bytes,
                            uint64_t file_bytes)
{
    uint32_t version = (uint32_t)get(bytes + 4, 4), count = (uint32_t)get(bytes + 8, 4);
    if (version != form->version)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s begins as llm.c's files of number %" PRIu32
                        " do, but with version %" PRIu32 " instead of %" PRIu32
                        ": write it with a present llm.c",
                        file->path, form->magic, version, form->version);
    file->header.id_bytes = form->id_bytes;
    file->header.count = count;
    file->data_offset = LLMC_HEADER_BYTES;
    uint64_t expected = LLMC_HEADER_BYTES + (uint64_t)count * form->id_bytes;
    if (file_bytes != expected)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s has %" PRIu64 " bytes where llm.c's header and its %" PRIu32
                        " ids need %" PRIu64 ": it was cut off or added to, write it again",
                        file->path, file_bytes, count, expected);
    return COH_OK;
}

/* Number of 2-byte ids examined, and the least number for a judgement. */
enum { PROBE_IDS = 4096, PROBE_IDS_LEAST = 16 };

/* Is every second id 0, but not every id? */
static int looks_wider(const uint8_t *bytes, size_t id_count)
{
    int has_other = 0;
    for (size_t i = 0; i < id_count; i++) {
        int is_zero = bytes[2 * i] == 0 && bytes[2 * i + 1] == 0;
        if (i % 2 == 1 && !is_zero)
            return 0;
        has_other |= !is_zero;
    }
    return has_other;
}

static int looks_like_text(const uint8_t *bytes, size_t count, int is_cut)
{
    for (size_t at = 0, length; at < count; at += length) {
        length = coh_utf8_character(bytes + at, count - at);
        if (length == 0)
            return is_cut && count - at < 4;
        if (length == 1 && (bytes[at] < 0x20 || bytes[at] == 0x7f) &&
            !(bytes[at] >= '\t' && bytes[at] <= '\r'))
            return 0;
    }
    return 1;
}

/* A file without a header is recognised by its name alone; its first bytes are checked for two
 * mistakes: text, and wider ids. If no vocabulary determines the width, ids that look wider are
 * read as 4 bytes. */
static coh_status check_looks(coh_token_file *file, uint64_t file_bytes, int may_widen)
{
    uint8_t bytes[2 * PROBE_IDS];
    size_t count = file_bytes < sizeof(bytes) ? (size_t)file_bytes : sizeof(bytes);
    if (count / 2 < PROBE_IDS_LEAST)
        return COH_OK;
    COH_TRY(read_bytes(file->fd, file->path, 0, bytes, count));
    if (looks_like_text(bytes, count, count < file_bytes))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s looks like text, and ids of %" PRIu32 " bytes are read from a *.bin "
                        "without a header: give text another name; ids that look so need "
                        "%s %" PRIu32,
                        file->path, file->header.id_bytes, coh_term_text(COH_TERM_ID_BYTES),
                        file->header.id_bytes);
    const int is_wider = file->header.id_bytes == 2 && looks_wider(bytes, count / 2);
    if (is_wider && may_widen)
        file->header.id_bytes = 4;
    else if (is_wider)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s looks like ids of 4 bytes, and those of a vocabulary of %" PRIu64
                        " have 2 where no header says otherwise: give %s 4, or 2 if that is what "
                        "they have",
                        file->path, file->header.vocabulary, coh_term_text(COH_TERM_ID_BYTES));
    return COH_OK;
}

/* The limit for ids until all are read: the largest vocabulary. */
#define ANY_VOCABULARY ((uint64_t)INT32_MAX)

static coh_status find_vocabulary(coh_token_file *file)
{
    int32_t ids[PASS_IDS], largest = 0;
    for (uint64_t begin = 0; begin < file->header.count; begin += PASS_IDS) {
        const size_t count = pass_count(file, begin);
        COH_TRY(coh_token_file_read(file, begin, count, ids));
        for (size_t i = 0; i < count; i++)
            largest = ids[i] > largest ? ids[i] : largest;
    }
    file->header.vocabulary = (uint64_t)largest + 1;
    return COH_OK;
}

/* A file with only ids. `id_bytes`: their declared width; 0: guess it. */
static coh_status read_headless(coh_token_file *file, int64_t vocabulary, int32_t id_bytes,
                                uint64_t file_bytes)
{
    if (id_bytes == 0)
        COH_TRY(check_looks(file, file_bytes, vocabulary == 0));
    if (file_bytes % file->header.id_bytes != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s has %" PRIu64 " byte%s, which is no number of ids of %" PRIu32
                        " bytes: it was cut off, or its ids have others (%s)",
                        file->path, file_bytes, COH_PLURAL_S(file_bytes), file->header.id_bytes,
                        coh_term_text(COH_TERM_ID_BYTES));
    file->header.count = file_bytes / file->header.id_bytes;
    return COH_OK;
}

static coh_status open_raw(coh_token_file *file, int64_t vocabulary, int32_t id_bytes)
{
    uint8_t bytes[12];
    uint64_t file_bytes;
    COH_TRY(open_bytes(file, &file_bytes));
    file->is_raw = 1;
    file->header.vocabulary = vocabulary ? (uint64_t)vocabulary : ANY_VOCABULARY;
    file->header.id_bytes = id_bytes ? (uint32_t)id_bytes : coh_token_id_bytes(vocabulary, 0);
    if (file_bytes >= sizeof(bytes))
        COH_TRY(read_bytes(file->fd, file->path, 0, bytes, sizeof(bytes)));
    if (file_bytes >= sizeof(bytes) && memcmp(bytes, magic, sizeof(magic)) == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is a token file, which says how its ids are stored: open it with "
                        "coh_token_file_open",
                        file->path);
    const llmc_form *form = file_bytes >= sizeof(bytes) ? find_form(bytes) : NULL;
    COH_TRY(form ? read_llmc(file, form, bytes, file_bytes)
                 : read_headless(file, vocabulary, id_bytes, file_bytes));
    if (form && id_bytes && id_bytes != (int32_t)form->id_bytes)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s has llm.c's header, which says ids of %" PRIu32 " bytes: leave %s out",
                        file->path, form->id_bytes, coh_term_text(COH_TERM_ID_BYTES));
    if (vocabulary == 0)
        COH_TRY(find_vocabulary(file));
    return hash_ids(file, &file->header.hash, &file->target_count);
}

coh_status coh_token_file_open_raw(const char *path, int64_t vocabulary, int32_t id_bytes,
                                   coh_token_file **out_file)
{
    COH_NEED_PATH(path);
    COH_NEED(out_file);
    if (vocabulary < 0 || vocabulary > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary has 1 to %d ids, not %" PRId64
                        " (0: as many as the file needs)",
                        INT32_MAX, vocabulary);
    if (id_bytes != 0 && id_bytes != 2 && id_bytes != 4)
        return coh_fail(COH_ERR_ARGUMENT,
                        "ids have 2 or 4 bytes, not %" PRId32 " (0: as the file says)", id_bytes);
    COH_TRY(file_create(path, out_file));
    return opened(open_raw(*out_file, vocabulary, id_bytes), out_file);
}

/* ---- windows ---- */

uint64_t coh_token_file_window_count(const coh_token_file *file, int64_t tokens)
{
    if (!file || tokens < 1 || file->header.count == 0)
        return 0;
    if (file->header.window == 0)
        return (file->header.count - 1) / (uint64_t)tokens;
    return tokens == file->header.window ? file->header.count / ((uint64_t)tokens + 1) : 0;
}

static coh_status no_window(const coh_token_file *file, int64_t tokens)
{
    if (file->header.window > 0 && tokens != file->header.window)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s has documents in windows of %" PRIu32 " tokens, not %" PRId64
                        ": use sequences of %" PRIu32 ", or make it again",
                        file->path, file->header.window, tokens, file->header.window);
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s has %" PRIu64 " id%s: no window of %" PRId64
                    " token%s and the one after; use more text or a shorter sequence",
                    file->path, file->header.count, COH_PLURAL_S(file->header.count), tokens,
                    COH_PLURAL_S(tokens));
}

/* Finds the positions of tokens in their documents; the first begins one. */
static void find_positions(const coh_token_file *file, const int32_t *tokens, size_t count,
                           int32_t *out_positions)
{
    for (size_t i = 0; i < count; i++)
        out_positions[i] = i == 0 || (file->header.has_documents && tokens[i] & BEGINS)
                               ? 0
                               : out_positions[i - 1] + 1;
}

/* Reads `count` ids from `begin` on, the id after each and, unless it is NULL, the position of
 * each; all must be within the file. */
static coh_status read_pairs(coh_token_file *file, uint64_t begin, size_t count,
                             int32_t *out_tokens, int32_t *out_targets, int32_t *out_positions)
{
    const int has_last = begin + count < file->header.count;
    COH_TRY(read_marked(file, begin, count, out_tokens));
    memcpy(out_targets, out_tokens + 1, (count - 1) * sizeof(int32_t));
    out_targets[count - 1] = -1;
    if (has_last)
        COH_TRY(read_marked(file, begin + count, 1, out_targets + count - 1));
    if (out_positions)
        find_positions(file, out_tokens, count, out_positions);
    if (!file->header.has_mask)
        return COH_OK;
    for (size_t i = 0; i < count; i++) {
        out_tokens[i] = id_of(file, out_tokens[i]);
        out_targets[i] = out_targets[i] < 0 ? -1 : id_of(file, out_targets[i]);
    }
    return COH_OK;
}

coh_status coh_token_file_window(coh_token_file *file, uint64_t seed, uint64_t window_number,
                                 int64_t tokens, int32_t *out_tokens, int32_t *out_targets)
{
    return coh_token_file_window_positions(file, seed, window_number, tokens, out_tokens,
                                           out_targets, NULL);
}

coh_status coh_token_file_window_positions(coh_token_file *file, uint64_t seed,
                                           uint64_t window_number, int64_t tokens,
                                           int32_t *out_tokens, int32_t *out_targets,
                                           int32_t *out_positions)
{
    if (!file || !out_tokens || !out_targets)
        return coh_fail(COH_ERR_ARGUMENT, "a window needs an open token file and two places");
    uint64_t window_count = coh_token_file_window_count(file, tokens);
    if (window_count == 0)
        return no_window(file, tokens);
    uint64_t window =
        coh_permute(seed, window_number / window_count, window_count, window_number % window_count);
    uint64_t begin = window * ((uint64_t)tokens + (file->header.window > 0));
    return read_pairs(file, begin, (size_t)tokens, out_tokens, out_targets, out_positions);
}

coh_status coh_token_file_stretch(coh_token_file *file, uint64_t begin, int64_t tokens,
                                  int32_t *out_tokens, int32_t *out_targets)
{
    return coh_token_file_stretch_positions(file, begin, tokens, out_tokens, out_targets, NULL);
}

coh_status coh_token_file_stretch_positions(coh_token_file *file, uint64_t begin, int64_t tokens,
                                            int32_t *out_tokens, int32_t *out_targets,
                                            int32_t *out_positions)
{
    if (!file || !out_tokens || !out_targets)
        return coh_fail(COH_ERR_ARGUMENT, "a stretch needs an open token file and two places");
    if (tokens < 1 || begin >= file->header.count)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId64 " tokens from id %" PRIu64 " on are not in the %" PRIu64
                        " ids of %s: ask for at least 1, from an id that is there",
                        tokens, begin, file->header.count, file->path);
    const uint64_t left = file->header.count - begin;
    const size_t count = left < (uint64_t)tokens ? (size_t)left : (size_t)tokens;
    COH_TRY(read_pairs(file, begin, count, out_tokens, out_targets, out_positions));
    memset(out_tokens + count, 0, ((size_t)tokens - count) * sizeof(int32_t));
    memset(out_targets + count, 0xff, ((size_t)tokens - count) * sizeof(int32_t));
    if (out_positions)
        memset(out_positions + count, 0, ((size_t)tokens - count) * sizeof(int32_t));
    return COH_OK;
}
