/* Finds a tokenizer's files in a folder, and has the steps that all readers share. The one idea:
 * the first file found of a fixed order chooses the reader. Next: tokenizer_json.c, sentencepiece.c
 * and merges_read.c are the readers. */
#include "text/tokenizer_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"
#include "text/characters.h"

/* ---- shared steps ---- */

coh_status coh_tokenizer_begin_pipeline(coh_tokenizer *tokenizer, coh_pipeline **out_pipeline)
{
    coh_pipeline *pipeline;
    COH_TRY(COH_ALLOC(1, &pipeline));
    tokenizer->pipeline = pipeline;
    *out_pipeline = pipeline;
    return coh_bpe_create(&pipeline->model);
}

coh_status coh_tokenizer_finish_pipeline(coh_tokenizer *tokenizer)
{
    coh_pipeline *pipeline = tokenizer->pipeline;
    tokenizer->vocabulary = tokenizer->own_vocabulary = pipeline->names.count;
    COH_TRY(COH_GROW(&pipeline->normalized.bytes, &pipeline->normalized.capacity, 1));
    COH_TRY(COH_GROW(&pipeline->waiting.bytes, &pipeline->waiting.capacity, 1));
    coh_bpe_find_cuts(pipeline->model, &pipeline->names);
    return coh_bpe_finish(pipeline->model);
}

/* ---- byte pairs ---- */

static int is_printable(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void coh_alphabet_fill(coh_alphabet *alphabet)
{
    int next = 256;
    memset(alphabet->byte_of, -1, sizeof(alphabet->byte_of));
    for (int byte = 0; byte < 256; byte++)
        alphabet->byte_of[is_printable(byte) ? byte : next++] = (int16_t)byte;
}

ptrdiff_t coh_alphabet_decode(const coh_alphabet *alphabet, coh_slice name, uint8_t *out_bytes)
{
    const uint8_t *text = (const uint8_t *)name.bytes;
    ptrdiff_t count = 0;
    for (size_t at = 0; at < name.count;) {
        int character = text[at++];
        if (character >= 0x80) { /* characters below U+0800 have two bytes */
            if (character >= 0xe0 || at == name.count || (text[at] & 0xc0) != 0x80)
                return -1;
            character = (character & 0x1f) << 6 | (text[at++] & 0x3f);
        }
        if (character >= COH_ALPHABET_END || alphabet->byte_of[character] < 0)
            return -1;
        out_bytes[count++] = (uint8_t)alphabet->byte_of[character];
    }
    return count;
}

coh_status coh_tokenizer_check_bytes(const char *where, const coh_bpe *model)
{
    for (unsigned byte = 0; byte < 256; byte++)
        if (model->byte_id[byte] < 0)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: no token represents byte 0x%02x alone; all 256 are needed to "
                            "encode any text",
                            where, byte);
    return COH_OK;
}

static coh_status find_own(const coh_pipeline *pipeline, const uint8_t *is_own, coh_slice name,
                           int32_t *out_id)
{
    *out_id = coh_token_table_find(&pipeline->names, name.bytes, name.count);
    if (*out_id < 0 || (is_own && !is_own[*out_id]))
        return coh_fail(COH_ERR_CORRUPT, "\"%.*s\" is not in the vocabulary",
                        (int)(name.count < 100 ? name.count : 100), name.bytes);
    return COH_OK;
}

coh_status coh_tokenizer_add_merge(coh_pipeline *pipeline, const uint8_t *is_own, coh_slice left,
                                   coh_slice right, coh_byte_list *joined, int32_t *out_result,
                                   int *out_is_new)
{
    coh_bpe_map *merges = &pipeline->model->merges;
    int32_t left_id = -1, right_id = -1;
    COH_TRY(find_own(pipeline, is_own, left, &left_id));
    COH_TRY(find_own(pipeline, is_own, right, &right_id));
    joined->count = 0;
    COH_TRY(coh_byte_list_add(joined, left.bytes, left.count));
    COH_TRY(coh_byte_list_add(joined, right.bytes, right.count));
    const coh_slice both = { (const char *)joined->bytes, joined->count };
    COH_TRY(find_own(pipeline, is_own, both, out_result));
    const size_t count = merges->count;
    COH_TRY(coh_bpe_add(merges, coh_bpe_pair(left_id, right_id), (int32_t)count, *out_result));
    *out_is_new = merges->count > count;
    return COH_OK;
}

void coh_identity_add_tokens(coh_identity *identity, const coh_token_table *table)
{
    coh_identity_add_u32(identity, (uint32_t)table->count);
    for (int64_t id = 0; id < table->count; id++) {
        coh_slice token = coh_token_table_at(table, id);
        coh_identity_add_bytes(identity, token.bytes, token.count);
    }
}

coh_status coh_identity_add_merges(coh_identity *identity, const coh_bpe *bpe)
{
    uint64_t *by_rank;
    COH_TRY(COH_ALLOC(bpe->merges.count, &by_rank));
    for (size_t i = 0; i < bpe->merges.slots; i++) {
        const coh_bpe_entry *merge = &bpe->merges.entries[i];
        if (merge->id >= 0)
            by_rank[merge->rank] = merge->key;
    }
    for (size_t i = 0; i < bpe->merges.count; i++) {
        coh_identity_add_u32(identity, (uint32_t)(by_rank[i] >> 32));
        coh_identity_add_u32(identity, (uint32_t)by_rank[i]);
    }
    coh_free(by_rank);
    return COH_OK;
}

/* ---- tokens of bytes ---- */

int coh_tokenizer_byte_of(coh_slice name)
{
    if (name.count != 6 || memcmp(name.bytes, "<0x", 3) != 0 || name.bytes[5] != '>')
        return -1;
    /* Rust parses "+A" as a number. */
    int high = name.bytes[3] == '+' ? 0 : coh_hex_digit((uint8_t)name.bytes[3]),
        low = coh_hex_digit((uint8_t)name.bytes[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

coh_status coh_tokenizer_find_byte_tokens(const char *where, coh_pipeline *pipeline)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", byte);
        int32_t id = coh_token_table_find(&pipeline->names, name, 6);
        if (id < 0)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: no token is called %s; all 256 bytes are needed to encode any "
                            "text",
                            where, name);
        pipeline->model->byte_id[byte] = id;
    }
    return COH_OK;
}

/* ---- choice of the file ---- */

coh_status coh_tokenizer_find_file(const char *folder, const char *name, char *path,
                                   int *out_exists)
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a tokenizer's path of %zu bytes is too long",
                        strlen(folder));
    *out_exists = access(path, F_OK) == 0;
    return COH_OK;
}

typedef coh_status (*text_reader)(const char *path, const char *text, size_t text_bytes,
                                  coh_tokenizer *tokenizer);

static coh_status read_file(const char *path, text_reader reader, coh_tokenizer *tokenizer)
{
    char *text;
    size_t text_bytes;
    COH_TRY(coh_file_read_whole(path, COH_TOKENIZER_FILE_BYTES_MAX, &text, &text_bytes));
    coh_status status = COH_OK;
    if (!reader) { /* a file was given: JSON is recognised by its first character */
        size_t at = strspn(text, " \t\r\n");
        reader = text[at] == '{' ? coh_tokenizer_read_json : coh_tokenizer_read_sentencepiece;
    }
    status = reader(path, text, text_bytes, tokenizer);
    coh_free(text);
    return status;
}

static coh_status read_folder(const char *folder, coh_tokenizer *tokenizer)
{
    char path[PATH_MAX];
    int exists;
    COH_TRY(coh_tokenizer_find_file(folder, "tokenizer.json", path, &exists));
    if (exists) {
        COH_TRY(read_file(path, coh_tokenizer_read_json, tokenizer));
        return coh_tokenizer_read_config(folder, 1, tokenizer);
    }
    COH_TRY(coh_tokenizer_find_file(folder, "tokenizer.model", path, &exists));
    if (exists) {
        COH_TRY(read_file(path, coh_tokenizer_read_sentencepiece, tokenizer));
    } else {
        COH_TRY(coh_tokenizer_find_file(folder, "vocab.json", path, &exists));
        if (!exists)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s holds no tokenizer: a folder with tokenizer.json, tokenizer.model "
                            "or vocab.json and merges.txt is one",
                            folder);
        COH_TRY(coh_tokenizer_read_merges(folder, tokenizer));
    }
    return coh_tokenizer_read_config(folder, 0, tokenizer);
}

coh_status coh_tokenizer_read(const char *what, coh_tokenizer *tokenizer)
{
    struct stat facts;
    if (stat(what, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot look at tokenizer %s: %s", what, strerror(errno));
    if (S_ISDIR(facts.st_mode))
        return read_folder(what, tokenizer);
    if (!S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_ARGUMENT, "tokenizer %s is neither a file nor a folder", what);
    return read_file(what, NULL, tokenizer);
}
