/* vocab.json and merges.txt, read strictly: a file that is accepted defines every id, and what is
 * wrong with one that is not is said with its line. */
#include "text/bpe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#define XXH_STATIC_LINKING_ONLY /* a hash state that needs no allocation */
#include <xxhash.h>

#include "base/alloc.h"

/* GPT-2's files have 1 MB; what is far beyond is something else. */
#define FILE_BYTES_MAX (256u << 20)

static const char end_of_text_name[] = "<|endoftext|>";

/* ---- files ---- */

/* A whole file, with a NUL after it that is not counted. */
static coh_status read_whole(const char *path, char **out_bytes, size_t *out_count)
{
    *out_bytes = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return coh_fail(
            COH_ERR_IO,
            "cannot open %s: %s: a tokenizer is a folder with vocab.json and merges.txt", path,
            strerror(errno));
    coh_status status = COH_OK;
    struct stat facts;
    size_t count = 0;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        status = coh_fail(COH_ERR_IO, "%s is not a regular file", path);
        goto done;
    }
    if (facts.st_size > (off_t)FILE_BYTES_MAX) {
        status = coh_fail(COH_ERR_CORRUPT, "%s has %lld bytes, more than the %u of any vocabulary",
                          path, (long long)facts.st_size, FILE_BYTES_MAX);
        goto done;
    }
    COH_TRY_GOTO(status, COH_ALLOC(facts.st_size + 1, out_bytes), done);
    while (count < (size_t)facts.st_size) {
        ssize_t got = read(fd, *out_bytes + count, (size_t)facts.st_size - count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            status = coh_fail(COH_ERR_IO, "reading %s stopped after %zu of %lld bytes: %s", path,
                              count, (long long)facts.st_size, got ? strerror(errno) : "it ended");
            goto done;
        }
        count += (size_t)got;
    }
    *out_count = count;
done:
    close(fd);
    if (status != COH_OK) {
        coh_free(*out_bytes);
        *out_bytes = NULL;
    }
    return status;
}

/* ---- the alphabet of bytes ---- */

/* Printable bytes stand for themselves, the other 68 for U+0100 on, in order. */
static int is_printable(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

#define ALPHABET_END (256 + 68)

static void alphabet_fill(int16_t byte_of[ALPHABET_END])
{
    int next = 256;
    for (int i = 0; i < ALPHABET_END; i++)
        byte_of[i] = -1;
    for (int byte = 0; byte < 256; byte++)
        byte_of[is_printable(byte) ? byte : next++] = (int16_t)byte;
}

/* The bytes that `name` stands for, at most strlen(name) of them; -1 if a character is none of the
 * alphabet. */
static ptrdiff_t name_to_bytes(const int16_t byte_of[ALPHABET_END], const char *name,
                               uint8_t *out_bytes)
{
    const uint8_t *at = (const uint8_t *)name;
    ptrdiff_t count = 0;
    while (*at) {
        int character = *at++;
        if (character >= 0x80) { /* two bytes hold all below U+0800 */
            if (character >= 0xe0 || (*at & 0xc0) != 0x80)
                return -1;
            character = (character & 0x1f) << 6 | (*at++ & 0x3f);
        }
        if (character >= ALPHABET_END || byte_of[character] < 0)
            return -1;
        out_bytes[count++] = (uint8_t)byte_of[character];
    }
    return count;
}

/* ---- vocab.json ---- */

static coh_status parse_vocabulary(const char *path, const char *text, size_t text_bytes,
                                   json_t **out_root)
{
    json_error_t error;
    *out_root = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*out_root && json_error_code(&error) == json_error_out_of_memory)
        return coh_fail(COH_ERR_MEMORY, "out of memory while reading %s", path);
    if (!*out_root)
        return coh_fail(COH_ERR_CORRUPT, "%s line %d: %s", path, error.line, error.text);
    if (!json_is_object(*out_root) || json_object_size(*out_root) == 0)
        return coh_fail(COH_ERR_CORRUPT, "%s is not an object of tokens with ids", path);
    if (json_object_size(*out_root) > INT32_MAX)
        return coh_fail(COH_ERR_CORRUPT, "%s has %zu tokens, more than ids of 31 bits", path,
                        json_object_size(*out_root));
    return COH_OK;
}

/* The tokens in the order of their ids, which must be 0..count-1, each once. */
static coh_status order_names(const char *path, json_t *root, const char **names)
{
    size_t count = json_object_size(root);
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (uint64_t)id >= count)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: the id of token \"%.100s\" is not an integer in 0..%zu, as the "
                            "number of tokens asks",
                            path, name, count - 1);
        if (names[id])
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: tokens \"%.100s\" and \"%.100s\" have one id, %lld", path,
                            names[id], name, (long long)id);
        names[id] = name;
    }
    return COH_OK;
}

static coh_status fill_tokens(const char *path, const char *const *names, coh_bpe *bpe)
{
    int16_t byte_of[ALPHABET_END];
    alphabet_fill(byte_of);
    size_t total_bytes = 0;
    for (int64_t id = 0; id < bpe->vocabulary; id++)
        total_bytes += strlen(names[id]);
    COH_TRY(COH_ALLOC(total_bytes, &bpe->token_bytes));
    COH_TRY(COH_ALLOC(bpe->vocabulary + 1, &bpe->token_begin));
    memset(bpe->byte_id, -1, sizeof(bpe->byte_id));
    bpe->end_of_text = -1;
    size_t end = 0;
    for (int32_t id = 0; id < bpe->vocabulary; id++) {
        ptrdiff_t bytes = name_to_bytes(byte_of, names[id], bpe->token_bytes + end);
        if (bytes < 1)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: token \"%.100s\" with id %" PRId32 " is not made of the 256 "
                            "characters that stand for bytes",
                            path, names[id], id);
        if (bytes == 1)
            bpe->byte_id[bpe->token_bytes[end]] = id;
        if (strcmp(names[id], end_of_text_name) == 0)
            bpe->end_of_text = id;
        end += (size_t)bytes;
        bpe->token_begin[id + 1] = end;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (bpe->byte_id[byte] < 0)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: no token stands for byte 0x%02x alone; all 256 are needed to "
                            "encode any text",
                            path, (unsigned)byte);
    }
    return COH_OK;
}

/* ---- merges.txt ---- */

/* Where reading stands, for messages and for the rank of the next merge. */
typedef struct merge_reader {
    const char *path;
    int64_t line;
    json_t *vocabulary;
    char *joined; /* room for left and right as one name */
    size_t joined_capacity;
} merge_reader;

static coh_status find_id(const merge_reader *reader, const char *name, int32_t *out_id)
{
    json_t *value = json_object_get(reader->vocabulary, name);
    if (!value)
        return coh_fail(COH_ERR_CORRUPT, "%s line %" PRId64 ": \"%.100s\" is not in the vocabulary",
                        reader->path, reader->line, name);
    *out_id = (int32_t)json_integer_value(value);
    return COH_OK;
}

/* `line` ends with a NUL instead of its line feed; its space becomes one too. */
static coh_status read_merge(merge_reader *reader, char *line, coh_bpe *bpe)
{
    char *space = strchr(line, ' ');
    if (!space || space == line || !space[1] || strchr(space + 1, ' '))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s line %" PRId64 ": \"%.100s\" is not two tokens with one space between",
                        reader->path, reader->line, line);
    *space = '\0';
    const char *right_name = space + 1;
    size_t left_bytes = strlen(line), right_bytes = strlen(right_name);
    COH_TRY(COH_GROW(&reader->joined, &reader->joined_capacity, left_bytes + right_bytes + 1));
    memcpy(reader->joined, line, left_bytes);
    memcpy(reader->joined + left_bytes, right_name, right_bytes + 1);

    int32_t left = -1, right = -1, result = -1;
    COH_TRY(find_id(reader, line, &left));
    COH_TRY(find_id(reader, right_name, &right));
    COH_TRY(find_id(reader, reader->joined, &result));
    if (result == bpe->end_of_text)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s line %" PRId64 " makes %s, which must never come from text",
                        reader->path, reader->line, end_of_text_name);
    coh_bpe_merge *merge = &bpe->merges[coh_bpe_find(bpe, left, right) - bpe->merges];
    if (merge->id >= 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s line %" PRId64 ": the pair \"%.100s\" \"%.100s\" stands there a second "
                        "time",
                        reader->path, reader->line, line, right_name);
    *merge = (coh_bpe_merge){ .pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right,
                              .rank = (int32_t)bpe->merge_count++,
                              .id = result };
    return COH_OK;
}

static coh_status reserve_merges(const char *text, size_t text_bytes, coh_bpe *bpe)
{
    size_t line_count = 1;
    for (size_t i = 0; i < text_bytes; i++)
        line_count += text[i] == '\n';
    bpe->merge_slots = 16;
    while (bpe->merge_slots < 2 * line_count) /* at most half full */
        bpe->merge_slots *= 2;
    COH_TRY(COH_ALLOC(bpe->merge_slots, &bpe->merges));
    for (size_t i = 0; i < bpe->merge_slots; i++)
        bpe->merges[i].id = -1;
    return COH_OK;
}

static coh_status read_merges(const char *path, char *text, size_t text_bytes, json_t *vocabulary,
                              coh_bpe *bpe)
{
    coh_status status = COH_OK;
    merge_reader reader = { .path = path, .vocabulary = vocabulary };
    COH_TRY(reserve_merges(text, text_bytes, bpe));
    for (char *line = text, *next; line < text + text_bytes; line = next) {
        reader.line++;
        char *end = memchr(line, '\n', text_bytes - (size_t)(line - text));
        next = end ? end + 1 : text + text_bytes;
        if (!end)
            end = text + text_bytes;
        if (memchr(line, '\0', (size_t)(end - line))) {
            status = coh_fail(COH_ERR_CORRUPT, "%s line %" PRId64 " has a NUL byte: not text", path,
                              reader.line);
            break;
        }
        if (end > line && end[-1] == '\r')
            end--;
        *end = '\0';
        if (reader.line == 1 && strncmp(line, "#version", 8) == 0)
            continue;
        status = read_merge(&reader, line, bpe);
        if (status != COH_OK)
            break;
    }
    coh_free(reader.joined);
    return status;
}

/* ---- identity ---- */

static void hash_u32(XXH3_state_t *hash, uint32_t value)
{
    uint8_t bytes[4] = { (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                         (uint8_t)(value >> 24) };
    XXH3_64bits_update(hash, bytes, sizeof(bytes));
}

/* Of tokens and merges in order, however the files were formatted. */
static coh_status fill_identity(coh_bpe *bpe)
{
    /* Raise the number when the split pattern or the treatment of invalid UTF-8 changes. */
    static const char scheme[] = "cohobate byte pairs 1";
    const coh_bpe_merge **by_rank;
    COH_TRY(COH_ALLOC(bpe->merge_count, &by_rank));
    for (size_t i = 0; i < bpe->merge_slots; i++) {
        if (bpe->merges[i].id >= 0)
            by_rank[bpe->merges[i].rank] = &bpe->merges[i];
    }
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    XXH3_64bits_update(&hash, scheme, sizeof(scheme) - 1);
    hash_u32(&hash, (uint32_t)bpe->vocabulary);
    for (int64_t id = 0; id < bpe->vocabulary; id++) {
        size_t begin = bpe->token_begin[id], end = bpe->token_begin[id + 1];
        hash_u32(&hash, (uint32_t)(end - begin));
        XXH3_64bits_update(&hash, bpe->token_bytes + begin, end - begin);
    }
    for (size_t i = 0; i < bpe->merge_count; i++) {
        hash_u32(&hash, (uint32_t)(by_rank[i]->pair >> 32));
        hash_u32(&hash, (uint32_t)by_rank[i]->pair);
    }
    bpe->identity = XXH3_64bits_digest(&hash);
    coh_free(by_rank);
    return COH_OK;
}

coh_status coh_bpe_read(const char *folder, coh_bpe *bpe)
{
    char vocabulary_path[PATH_MAX], merges_path[PATH_MAX];
    if (snprintf(vocabulary_path, PATH_MAX, "%s/vocab.json", folder) >= PATH_MAX ||
        snprintf(merges_path, PATH_MAX, "%s/merges.txt", folder) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a tokenizer's path of %zu bytes is too long",
                        strlen(folder));
    coh_status status;
    char *text = NULL, *merges = NULL;
    const char **names = NULL;
    size_t text_bytes, merges_bytes;
    json_t *root = NULL;
    COH_TRY_GOTO(status, read_whole(vocabulary_path, &text, &text_bytes), done);
    COH_TRY_GOTO(status, read_whole(merges_path, &merges, &merges_bytes), done);
    COH_TRY_GOTO(status, parse_vocabulary(vocabulary_path, text, text_bytes, &root), done);
    bpe->vocabulary = (int64_t)json_object_size(root);
    COH_TRY_GOTO(status, COH_ALLOC(bpe->vocabulary, &names), done);
    COH_TRY_GOTO(status, order_names(vocabulary_path, root, names), done);
    COH_TRY_GOTO(status, fill_tokens(vocabulary_path, names, bpe), done);
    COH_TRY_GOTO(status, read_merges(merges_path, merges, merges_bytes, root, bpe), done);
    status = fill_identity(bpe);
done:
    coh_free(names);
    json_decref(root);
    coh_free(merges);
    coh_free(text);
    return status;
}
