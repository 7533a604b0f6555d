/* Reads .bin files of ids as llm.c and nanoGPT write them, in place. The one idea: a file without a
 * header is accepted by its name, after checks for the two likely mistakes. Next: token_file.c. */
#include "text/token_file.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "cohobate/terms.h"

/* llm.c: 256 int32, the first three of which are used (its dev/data/data_common.py). */
#define LLMC_HEADER_BYTES 1024u

typedef struct llmc_form {
    uint32_t magic, version, id_bytes;
} llmc_form;

static const llmc_form llmc_forms[] = {
    { 20240520, 1, 2 }, /* GPT-2's ids */
    { 20240801, 7, 4 }, /* Llama 3's */
};

static uint32_t get_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

/* NULL: not a header of llm.c's. */
static const llmc_form *find_form(const uint8_t *bytes)
{
    for (size_t i = 0; i < sizeof(llmc_forms) / sizeof(llmc_forms[0]); i++)
        if (get_u32(bytes) == llmc_forms[i].magic)
            return &llmc_forms[i];
    return NULL;
}

static coh_status read_llmc(coh_token_file *file, const llmc_form *form, const uint8_t *bytes,
                            uint64_t file_bytes)
{
    uint32_t version = get_u32(bytes + 4), count = get_u32(bytes + 8);
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

/* ---- bytes unlikely to be ids ---- */

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
    COH_TRY(coh_token_read_bytes(file->fd, file->path, 0, bytes, count));
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
    enum { PASS = 16384 };
    int32_t ids[PASS], largest = 0;
    for (uint64_t begin = 0; begin < file->header.count; begin += PASS) {
        const uint64_t left = file->header.count - begin;
        const size_t count = left < PASS ? (size_t)left : PASS;
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
                        "%s has %" PRIu64 " bytes, which is no number of ids of %" PRIu32
                        " bytes: it was cut off, or its ids have others (%s)",
                        file->path, file_bytes, file->header.id_bytes,
                        coh_term_text(COH_TERM_ID_BYTES));
    file->header.count = file_bytes / file->header.id_bytes;
    return COH_OK;
}

static coh_status open_raw(coh_token_file *file, int64_t vocabulary, int32_t id_bytes)
{
    uint8_t bytes[12];
    uint64_t file_bytes;
    COH_TRY(coh_token_file_open_bytes(file, &file_bytes));
    file->is_raw = 1;
    file->header.vocabulary = vocabulary ? (uint64_t)vocabulary : ANY_VOCABULARY;
    file->header.id_bytes = id_bytes ? (uint32_t)id_bytes : coh_token_id_bytes(vocabulary, 0);
    if (file_bytes >= sizeof(bytes))
        COH_TRY(coh_token_read_bytes(file->fd, file->path, 0, bytes, sizeof(bytes)));
    const llmc_form *form = file_bytes >= sizeof(bytes) ? find_form(bytes) : NULL;
    COH_TRY(form ? read_llmc(file, form, bytes, file_bytes)
                 : read_headless(file, vocabulary, id_bytes, file_bytes));
    if (form && id_bytes && id_bytes != (int32_t)form->id_bytes)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s has llm.c's header, which says ids of %" PRIu32 " bytes: leave %s out",
                        file->path, form->id_bytes, coh_term_text(COH_TERM_ID_BYTES));
    if (vocabulary == 0)
        COH_TRY(find_vocabulary(file));
    return coh_token_file_hash(file, &file->header.hash);
}

coh_status coh_token_file_open_raw(const char *path, int64_t vocabulary, int32_t id_bytes,
                                   coh_token_file **out_file)
{
    COH_NEED(path);
    COH_NEED(out_file);
    if (vocabulary < 0 || vocabulary > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary has 1 to %d ids, not %" PRId64
                        " (0: as many as the file needs)",
                        INT32_MAX, vocabulary);
    if (id_bytes != 0 && id_bytes != 2 && id_bytes != 4)
        return coh_fail(COH_ERR_ARGUMENT,
                        "ids have 2 or 4 bytes, not %" PRId32 " (0: as the file says)", id_bytes);
    COH_TRY(coh_token_file_create(path, out_file));
    coh_status status = open_raw(*out_file, vocabulary, id_bytes);
    if (status != COH_OK) {
        coh_token_file_close(*out_file);
        *out_file = NULL;
    }
    return status;
}
